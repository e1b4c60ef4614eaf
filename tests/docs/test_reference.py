"""What the pages list is what there is: settings, options, commands, words, links."""

import ast
import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from typer.main import get_command

from redrive.app.config import AppOptions, Settings
from redrive.app.declaration import (
    DestinationOptions,
    HandlerOptions,
    NamedOptions,
    Ports,
    declare_handler,
)
from redrive.app.projecting import ProjectionOptions
from redrive.app.scheduling import ScheduleOptions
from redrive.cli import main as cli
from redrive.model.access import Grant, Role
from redrive.model.event import EventAttributes, NewEvent
from redrive.model.fairness import Fairness
from redrive.model.gate import Hold
from redrive.model.health import HealthCheck
from redrive.model.limits import Breaker, Limits, read_rate
from redrive.model.replay import AutoReplay, Pace
from redrive.model.schedule import Schedule
from redrive.operations.explain.waiting import WaitReason
from redrive.policies.access import NEEDS, Need, refusal
from redrive.policies.profiles import PROFILES, Profile
from redrive.policies.retry import PRESETS, Proportional, Retry
from redrive.policies.terms import Terms
from redrive.store import TenantFigures
from redrive.templates.checks import CHECKS
from redrive.templates.filters import FILTERS
from redrive.templates.methods import METHODS
from redrive.templates.parsing import LONGEST, MOST_PARTS
from redrive.templates.rendering import DEEPEST, LARGEST, MOST_STEPS, MOST_WORK
from redrive.transports.http.options import HttpOptions, LineOptions, RequestOptions
from tests.docs.pages import (
    ROOT,
    anchors_of,
    blocks_of,
    code_of,
    links_of,
    mentions_of,
    name_of,
    pages,
    table_of,
)

GUIDES = ROOT / "docs" / "guides"
ENGINE = ROOT / "src" / "redrive"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links_of(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" in link or (target.is_file() and (not anchor or anchor in anchors_of(target))):
            continue
        broken.append(link)

    assert broken == []


def test_every_page_can_be_reached_from_the_first() -> None:
    """A page nobody links to is a page nobody reads."""
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = [
            (page.parent / link.partition("#")[0]).resolve()
            for link in links_of(page)
            if "://" not in link
        ]
        ahead += [one for one in targets if one.suffix == ".md" and one not in reached]

    assert [name_of(page) for page in pages() if page not in reached] == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links_of(index)}

    assert {page for page in GUIDES.glob("*.md") if page not in listed} == set()


def test_the_index_of_decisions_lists_every_record() -> None:
    folder = ROOT / "docs" / "decisions"

    assert links_of(folder / "README.md") == sorted(one.name for one in folder.glob("0*.md"))


def test_every_setting_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "configuration.md", "Settings of the app")

    assert list(listed) == list(Settings.__struct_fields__)
    for name, (default, _) in listed.items():
        written = msgspec.structs.replace(Settings(), **{name: default.strip("`")})
        assert getattr(written, name) == getattr(Settings(), name), name


def test_every_option_of_a_handler_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "configuration.md", "Options of a handler")
    written = {
        name: default.strip("`")
        for name, (default, _) in listed.items()
        if name in {"timeout", "snooze_age"}
    }

    assert sorted(listed) == sorted(HandlerOptions.__annotations__)
    assert Terms(**written) == Terms()  # type: ignore[arg-type]
    assert listed["snooze_limit"][0] == f"`{Terms().snooze_limit}`"


def test_every_attribute_of_an_event_is_listed() -> None:
    listed = table_of(GUIDES / "publishing.md", "Attributes")

    assert sorted(listed) == sorted(EventAttributes.__annotations__)
    assert sorted(NewEvent.__struct_fields__) == sorted(["type", "payload", *listed])


@pytest.mark.parametrize(
    "kinds",
    [
        (AppOptions,),
        (EventAttributes,),
        (HandlerOptions, NamedOptions, DestinationOptions),
        (HttpOptions, RequestOptions, LineOptions),
        (ScheduleOptions,),
    ],
    ids=lambda kinds: kinds[0].__name__,
)
def test_editors_have_something_to_say_of_each_option(kinds: Sequence[type]) -> None:
    """Of a key that is given by name, an editor shows the text below its annotation."""
    told: set[str] = set()
    for one in kinds:
        [declared] = ast.parse(inspect.getsource(one)).body
        assert isinstance(declared, ast.ClassDef)
        told |= {
            key.target.id
            for key, text in pairwise(declared.body)
            if isinstance(key, ast.AnnAssign)
            and isinstance(key.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        }

    assert set(kinds[0].__annotations__) - told == set()


def test_every_filter_and_test_of_templates_is_listed() -> None:
    filters, tests = (
        table_of(GUIDES / "templates.md", heading) for heading in ("Filters", "Tests")
    )

    assert sorted(filters) == sorted([*FILTERS, "default"])
    assert list(tests) == sorted(CHECKS)


def test_the_methods_and_limits_of_templates_are_listed() -> None:
    page = (GUIDES / "templates.md").read_text("utf-8")
    limits = (LONGEST, MOST_PARTS, DEEPEST, MOST_STEPS, MOST_WORK, LARGEST)

    assert [name for name in METHODS if f"`{name}`" not in page] == []
    assert [limit for limit in limits if f"| {limit:,}" not in page] == []


def test_every_option_of_a_retry_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "retries.md", "The curve")
    count, base, factor, cap, jitter = [cells[0].strip('`"') for cells in listed.values()]

    assert list(listed) == list(Retry.__struct_fields__)
    assert Retry() == Retry(
        max_attempts=int(count),
        base=base,
        factor=float(factor),
        cap=cap,
        jitter=jitter,  # type: ignore[arg-type]
    )


def test_every_preset_is_listed_as_it_is() -> None:
    listed = table_of(GUIDES / "retries.md", "Presets")

    assert list(listed) == list(PRESETS)
    for name, (attempts, base, cap, jitter) in listed.items():
        share = re.fullmatch(r"±(\d+) %", jitter)
        assert PRESETS[name] == Retry(
            max_attempts=int(attempts),
            base=base,
            cap=cap,
            jitter=Proportional(int(share[1]) / 100) if share else jitter,  # type: ignore[arg-type]
        )


def test_every_field_of_a_breaker_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "limits.md", "Breakers")
    written = {name: cells[0].strip("`") for name, cells in listed.items() if name != "rate"}
    texts = {
        name: written.pop(name)
        for name in ("window", "open_for", "longest_open", "on_open", "ramp")
    }

    assert list(listed) == list(Breaker.__struct_fields__)
    counts = {name: int(value) for name, value in written.items()}
    assert Breaker(**texts, **counts) == Breaker()  # type: ignore[arg-type]


def test_every_field_of_a_health_check_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "limits.md", "Health checks")
    written = {name: cells[0].strip("`") for name, cells in listed.items() if name != "ask"}

    assert list(listed) == list(HealthCheck.__struct_fields__)
    assert HealthCheck(print, **written) == HealthCheck(print)  # type: ignore[arg-type]


def test_every_profile_is_listed_as_it_is() -> None:
    listed = table_of(GUIDES / "limits.md", "Profiles")

    assert list(listed) == list(PROFILES)
    for name, (failures, open_for, attempts, base, timeout) in listed.items():
        assert PROFILES[name] == Profile(
            breaker=Breaker(failures=int(failures), open_for=open_for),
            retry=Retry(max_attempts=int(attempts), base=base),
            timeout=timeout,
        )


def test_every_reason_to_wait_is_listed() -> None:
    text = (GUIDES / "limits.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| reason | it waits for |")
    cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]

    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(WaitReason)


def test_every_limit_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "limits.md", "Rates")
    usual = declare_handler(print, ("*",), {}, Ports()).destination.limits

    assert sorted([*listed, "breaker"]) == sorted(Limits.__struct_fields__)
    for name, (default, _) in listed.items():
        written = None if default == "none" else default.strip("`")
        value = written if name == "over_retry_rate" else read_rate(written, name=name)
        assert getattr(usual, name) == value, name


def test_every_field_of_an_automatic_replay_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "replay.md", "By itself")
    batch, age, cycles = [listed[name][0].strip("`") for name in ("batch", "max_age", "cycles")]

    assert list(listed) == list(AutoReplay.__struct_fields__)
    written = AutoReplay(cron="* * * * *", batch=int(batch), max_age=age, cycles=int(cycles))
    assert written == AutoReplay(cron="* * * * *")


def test_every_option_of_a_schedule_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "schedules.md", "Declare one")
    usual = Schedule(name="a", type="a", cron="* * * * *")

    times = ["cron", "every", "type", "timezone"]
    assert sorted(listed) == sorted([*times, *ScheduleOptions.__annotations__])
    for name in ("timezone", "priority", "missed", "overlap"):
        assert listed[name][0] == f"`{getattr(usual, name)}`", name


def test_every_option_of_a_projection_is_listed() -> None:
    listed = table_of(GUIDES / "projections.md", "Declare one")

    assert sorted(listed) == sorted(ProjectionOptions.__annotations__)


def test_every_option_of_a_replay_is_told() -> None:
    text = (GUIDES / "replay.md").read_text(encoding="utf-8")

    for name in Pace.__struct_fields__:
        assert f"`{name}`" in text
        assert f"`--{name.replace('_', '-')}`" in text


def test_every_field_of_fairness_is_listed_with_its_default() -> None:
    listed = table_of(GUIDES / "fairness.md", "Weights and rates")

    assert list(listed) == list(Fairness.__struct_fields__)
    assert listed["turn"][0] == f"`{Fairness().turn}`"
    assert not any((Fairness().weights, Fairness().rate, Fairness().rates))


def test_every_figure_of_a_tenant_is_listed() -> None:
    listed = table_of(GUIDES / "fairness.md", "What you see")

    assert sorted(listed) == sorted(TenantFigures.__struct_fields__)


def test_every_hold_is_listed() -> None:
    assert list(table_of(GUIDES / "limits.md", "What you see")) == list(Hold)


def test_every_reason_that_can_come_about_is_listed() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for path in ENGINE.rglob("*.py")
        if path.is_relative_to(ENGINE / "policies") or path.is_relative_to(ENGINE / "stores")
    ]
    given = {name.lower() for one in sources for name in re.findall(r"FailureReason\.(\w+)", one)}

    assert set(table_of(GUIDES / "dead-letters.md", "Dead letters")) == given


def test_every_line_of_the_log_is_listed_with_its_level() -> None:
    source = (ENGINE / "observers" / "logging.py").read_text(encoding="utf-8")
    written = re.findall(r"log\.(debug|info|warning|error|critical)\(\s*\"([^\"]+)\"", source)
    listed = table_of(GUIDES / "operations.md", "Logs")

    assert {(cells[0], line) for line, cells in listed.items()} == set(written)


def test_every_metric_is_listed() -> None:
    source = "".join(
        (ENGINE / "observers" / name).read_text(encoding="utf-8")
        for name in ("prometheus.py", "gauges.py", "tracking.py")
    )

    assert set(table_of(GUIDES / "operations.md", "Metrics")) == set(
        re.findall(r'"(redrive_\w+)"', source)
    )


def test_every_exit_code_of_the_command_line_is_listed() -> None:
    told = re.findall(r"^ +(\d+) ", str(cli.app.info.epilog), flags=re.MULTILINE)

    assert list(table_of(GUIDES / "operations.md", "Exit codes")) == sorted({*told, "70"}, key=int)


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\*\*([\w ]+)\.\*\*", text, flags=re.MULTILINE)

    assert words == sorted(set(words))
    assert {"Endpoint", "Terms", "Load", "Runner", "Carrier", "Suspect", "Tally"} <= set(words)


def test_the_tree_of_the_architecture_is_the_tree_there_is() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = next(
        block.source
        for block in blocks_of(ROOT / "docs" / "architecture.md")
        if block.source.startswith("src/redrive/")
    )
    named = set(re.findall(r"([a-z_]+(?:\.py|/))(?: |$)", tree, flags=re.MULTILINE))
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in ENGINE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    files = re.findall(r"`((?:pipeline|policies|transports)/\w+\.py)`", text)

    assert there - named == {"__main__.py"}
    assert [file for file in files if not (ENGINE / file).exists()] == []


def test_every_command_and_option_that_is_mentioned_exists() -> None:
    commands = dict(_commands(get_command(cli.app), "redrive"))
    unknown = []
    for page in pages():
        for mention in mentions_of(page):
            path, rest = _longest_command(mention, commands)
            options = re.findall(r"(?<!\S)(--?[a-z][\w-]*)", rest)
            if path is None or any(one not in commands[path] for one in options):
                unknown.append(f"{name_of(page)}: {mention}")

    assert unknown == []


def test_every_option_that_is_mentioned_alone_exists() -> None:
    commands = dict(_commands(get_command(cli.app), "redrive"))
    known = {option for options in commands.values() for option in options}
    alone = {code.split()[0] for page in pages() for code in code_of(page) if code[:2] == "--"}

    assert alone - known == set()


def test_every_target_of_make_that_is_mentioned_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    shown = [block.source for page in pages() for block in blocks_of(page)]
    said = [code for page in pages() for code in code_of(page)]

    mentioned = set(
        re.findall(r"^(?:\$ )?make ([a-z-]+)", "\n".join([*shown, *said]), re.MULTILINE)
    )

    assert mentioned - targets == set()


def _commands(command: typing.Any, path: str) -> Iterator[tuple[str, list[str]]]:  # noqa: ANN401 - Typer's releases differ in where the class lives
    options = [name for one in command.params for name in [*one.opts, *one.secondary_opts]]
    yield path, [*options, "--help"]
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def _longest_command(mention: str, commands: Mapping[str, list[str]]) -> tuple[str | None, str]:
    """Return the command that a mention begins with, and the rest; none if a word is unknown."""
    path, rest = "redrive", mention.split()[1:]
    while rest and f"{path} {rest[0]}" in commands:
        path = f"{path} {rest.pop(0)}"
    is_group = any(name.startswith(f"{path} ") for name in commands)
    is_unknown = is_group and rest and not rest[0].startswith("-")
    return (None if is_unknown else path), " ".join(rest)


def test_who_may_do_what_is_listed() -> None:
    rows: dict[Need, list[str]] = {}
    for name, need in NEEDS.items():
        rows.setdefault(need, []).append(f"`{name}`")
    page = (GUIDES / "access.md").read_text("utf-8")

    for need, names in rows.items():
        mine = {"tenant": "acme"}, {"destinations": ("billing",)}
        limited = [Grant(role=Role.ADMIN, **one) for one in mine]
        operation = names[0].strip("`")
        may = [
            "no" if refusal(one, operation, tenant="acme", destination="billing") else "yes"
            for one in limited
        ]
        row = f"| {need.role} | {need.reach} | {', '.join(names)} | {may[0]} | {may[1]} |"
        assert row in page.splitlines()
