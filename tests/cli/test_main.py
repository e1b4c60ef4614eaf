"""The command as a whole: help, versions, and the ways a command may end."""

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from typer.core import TyperGroup

import redrive
from redrive.cli import inspect
from redrive.cli.main import app
from redrive.cli.needed import command_for
from redrive.cli.worker import Choice
from tests.cli.shell import Shell, Shop
from tests.waiting import PATIENCE_SECONDS

HEAVY = ("apsw", "asyncio", "msgspec", "pydantic", "rich", "starlette", "structlog", "typer")


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: this is about commands as such."""
    return sqlite


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def seconds_of(arguments: Sequence[str]) -> float:
    """Return the processor time of a command, which other work on the machine does not stretch."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert python(*arguments).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def commands_of(command: object, *names: str) -> Iterator[str]:
    """Return the names of all commands in it, each with those of its groups."""
    if not isinstance(command, TyperGroup):
        yield " ".join(names)
        return
    for name, inner in command.commands.items():
        yield from commands_of(inner, *names, name)


@pytest.mark.parametrize("arguments", [("--help",), ("dlq", "replay", "--help"), ("--version",)])
def test_help_answers_at_once(arguments: Sequence[str]) -> None:
    """Nobody should pay for the engine to read the manual: the library of commands is most of it.

    Measured beside it, because on a busy machine even processor time is stretched.
    """
    best = min(seconds_of(["-m", "redrive", *arguments]) for _ in range(5))
    of_library = min(seconds_of(["-c", "import typer"]) for _ in range(5))

    assert best < 6 * of_library


def test_help_imports_nothing_of_the_engine() -> None:
    """The clock on a busy machine lies, the list of modules does not."""
    script = (
        "import sys; from redrive.cli.main import main; main(['--help'])\n"
        "print(*(name for name in sys.modules), file=sys.stderr)"
    )

    loaded = python("-c", script).stderr.split()

    assert "typer" in loaded
    assert [name for name in HEAVY if name in loaded and name != "typer"] == []
    assert "redrive.app.redrive" not in loaded


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (("dlq", "list", "--limit", "5"), {"dlq list"}),
        (("--debug", "status"), {"status"}),
        (("breaker",), {"breaker list", "breaker open", "breaker reset"}),
        (("breaker", "rest"), {"breaker list", "breaker open", "breaker reset"}),
    ],
)
def test_only_what_is_named_is_made_ready(arguments: Sequence[str], made: set[str]) -> None:
    """All commands together take longer than most of them run; a slip needs them for its hint."""
    whole = command_for(app, arguments)

    assert set(commands_of(whole)) == made
    assert len(list(commands_of(command_for(app, ("stauts",))))) > 100


def test_a_command_leaves_the_garbage_collector_as_it_was(shell: Shell) -> None:
    before = gc.get_threshold()

    assert shell("--version").code == 0

    assert gc.get_threshold() == before


def test_importing_redrive_imports_no_command_line_and_no_store() -> None:
    """An application pays for what it uses, and for nothing else."""
    script = "import sys, redrive; redrive.Redrive; print(*sys.modules)"

    loaded = python("-c", script).stdout.split()

    unwanted = (
        *("apsw", "prometheus_client", "pydantic", "rich", "starlette", "structlog", "typer"),
        *("jinja2", "redrive.cli", "redrive.worker.health"),
    )
    assert "redrive.app.redrive" in loaded
    assert [name for name in unwanted if name in loaded] == []


def test_help_names_every_command_and_the_exit_codes(shell: Shell) -> None:
    answer = shell("--help")

    words = answer.out.split()
    assert answer.code == 0
    for name in ("demo", "worker", "init", "publish", "status", "dlq", "delivery", "audit"):
        assert name in words
    assert {"destination", "breaker", "doctor"} <= set(words)
    assert "3    the store could not do it" in answer.out


@pytest.mark.parametrize("arguments", [(), ("dlq",), ("delivery",), ("destination",), ("breaker",)])
def test_a_group_without_a_command_shows_its_help(arguments: Sequence[str], shell: Shell) -> None:
    answer = shell(*arguments)

    assert answer.code == 0
    assert answer.out.startswith("Usage: redrive")


def test_help_fits_eighty_columns(shell: Shell) -> None:
    for arguments in (
        (),
        ("dlq",),
        ("destination",),
        ("publish",),
        ("dlq", "replay"),
        ("delivery", "list"),
    ):
        answer = shell(*arguments, "--help")

        lines = answer.out.splitlines()
        assert [line for line in lines if len(line) > 80] == []
        assert [line for line in lines[1:] if line.endswith("...")] == []


def test_the_version_is_told(shell: Shell) -> None:
    assert shell("--version").out.startswith("redrive 0.")
    assert shell("--version").out == f"redrive {redrive.__version__}\n"


def test_python_runs_the_package_as_the_command() -> None:
    assert python("-m", "redrive", "--version").stdout.startswith("redrive ")


def test_a_wrong_command_gets_a_suggestion_in_one_sentence(shell: Shell) -> None:
    answer = shell("stauts")

    assert answer.code == 2
    assert answer.err == "redrive: No such command 'stauts'. Did you mean 'status'?\n"


def test_errors_are_json_for_programs(shell: Shell) -> None:
    answer = shell("status", "--store", "sqlite:///nowhere.db", "--json")

    error = json.loads(answer.err)["error"]
    assert answer.code == 3
    assert answer.out == ""
    assert error["type"] == "StoreUnavailableError"
    assert error["message"].startswith("There is no store at nowhere.db;")


def test_errors_of_usage_are_json_for_programs(shell: Shell) -> None:
    answer = shell("dlq", "show", "x", "--json")

    assert answer.code == 2
    assert json.loads(answer.err)["error"]["type"] == "UsageError"


def test_what_should_not_happen_is_told_in_one_line(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback is no answer to a person who typed a command."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(inspect, "in_session", broken)

    answer = shell("status")

    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("redrive: RuntimeError: no such luck (")
    assert "--debug" in answer.err


def test_debug_shows_the_traceback(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(inspect, "in_session", broken)

    answer = shell("--debug", "status")

    assert answer.code == 1
    assert "Traceback (most recent call last)" in answer.err


def test_the_worker_gets_its_options(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def worker(target: str, **options: object) -> int:
        given.extend([target, options])
        return 70

    monkeypatch.setattr("redrive.cli.worker.worker", worker)

    answer = shell(
        *("worker", "shop:app", "--processes", "2", "--concurrency", "9", "--store", "s:"),
        *("--port", "9090", "--host", "::1"),
        *("--only", "billing", "--only", "mailing", "--except", "mailing"),
    )

    assert answer.code == 70
    assert given == [
        "shop:app",
        {
            "store": "s:",
            "processes": 2,
            "concurrency": 9,
            "log_level": "info",
            "port": 9090,
            "host": "::1",
            "choice": Choice(("billing", "mailing"), ("mailing",)),
        },
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [((), 10), (("--plain",), 11), (("--plain", "--web"), 13), (("--gateway",), 14)],
)
def test_the_demo_plays_and_its_code_counts(
    options: Sequence[str], code: int, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "redrive.demo.run_demo",
        lambda *, plain, store, web, gateway: 10 + plain + 2 * web + 4 * gateway,
    )

    assert shell("demo", *options).code == code


def test_an_interrupt_ends_the_command_quietly(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "in_session", interrupted)

    assert shell("status") == (130, "", "")


def test_a_reader_that_goes_away_is_no_error(shop: Shop) -> None:
    """`redrive dlq list | head` must not end in a traceback."""
    reader, writer = os.pipe()
    os.close(reader)

    for options in ((), ("--json",)):
        ran = subprocess.run(
            [sys.executable, "-m", "redrive", "status", *options],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

        assert ran.stderr == ""
        assert ran.returncode == 1
    os.close(writer)


def test_nothing_is_coloured_when_nobody_watches(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    for arguments in (("status",), ("dlq", "list"), ("dlq", "show", "1"), ("doctor",)):
        assert "\x1b" not in shell(*arguments).out
