"""The house holds: every rule against every module; a failure names all that break it."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.rules import (
    ENGINE,
    ROOT,
    ambient_uses,
    blanket_ignores,
    broken_contracts,
    export_order,
    exports,
    glossary_terms,
    homes,
    introduction,
    is_sentence,
    machine_paths,
    module_name,
    parse,
    python_files,
    set_iterations,
    sleeps,
    tracked_texts,
    vague_parts,
    within_engine,
)

LONGEST_MODULE = 600
PORTS = ("clock.py", "clock/")


class Exemption(NamedTuple):
    """Lets one module (or folder, ending in a slash) of the engine use one ambient name."""

    where: str
    what: str
    why: str


EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption("testing/fakes.py", "random.Random", "with a seed it repeats itself exactly"),
    Exemption("transports/calls.py", "loop.time", "timers of a loop are set by its own time"),
)


def of_each(files: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make a test of a rule: it holds every file against it, and names all that break it."""

    def decorate(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for path in files:
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(f"{path.relative_to(ROOT).as_posix()}: {error}")
            assert not broken, "\n\n".join(broken)

        test.__name__, test.__doc__, test.__module__ = rule.__name__, rule.__doc__, rule.__module__
        return test

    return decorate


@of_each(python_files(ENGINE))
def test_public_names_are_sorted_and_exist(path: Path) -> None:
    """A list of names nobody checks rots, and an unsorted one hides it."""
    names = exports(parse(path))

    if names is not None:
        module = importlib.import_module(module_name(path))
        assert names == sorted(set(names), key=export_order)
        assert [name for name in names if not hasattr(module, name)] == []


@of_each(python_files(ENGINE))
def test_a_module_stays_short(path: Path) -> None:
    """A centre that swells is the common illness; past the limit it becomes a folder."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


@of_each(python_files(ENGINE))
def test_time_chance_and_ids_come_through_the_ports(path: Path) -> None:
    """One hidden clock or random number, and the engine can no longer be simulated."""
    where = within_engine(path)
    if where.startswith(PORTS):
        return

    found = [
        finding
        for finding in ambient_uses(parse(path))
        if not any(where.startswith(e.where) and finding.what == e.what for e in EXEMPTIONS)
    ]

    assert found == []


def test_every_exemption_from_the_ports_is_still_needed() -> None:
    """An exemption that outlives its use is an open door."""
    unused = [
        exemption
        for exemption in EXEMPTIONS
        if not exemption.why
        or not any(
            finding.what == exemption.what
            for path in python_files(ENGINE)
            if within_engine(path).startswith(exemption.where)
            for finding in ambient_uses(parse(path))
        )
    ]

    assert unused == []


@of_each(python_files(ENGINE))
def test_no_loop_runs_over_a_set(path: Path) -> None:
    """The order of a set differs between runs, and a simulation must repeat itself exactly."""
    assert list(set_iterations(parse(path))) == []


@of_each([path for path in python_files(ROOT / "tests") if path != ROOT / "tests/waiting.py"])
def test_no_test_sleeps(path: Path) -> None:
    """A test that sleeps is slow when it passes and wrong when the machine is busy.

    Conditions are looked at again and again in `tests.waiting`, and nowhere else.
    """
    assert list(sleeps(parse(path))) == []


@of_each([path for name in ("src", "tests", "benchmarks") for path in python_files(ROOT / name)])
def test_a_silenced_type_error_is_named(path: Path) -> None:
    """A blanket ignore also hides the errors that nobody has seen yet."""
    assert list(blanket_ignores(path.read_text(encoding="utf-8"))) == []


@of_each(python_files(ENGINE))
def test_a_module_is_named_for_what_it_does(path: Path) -> None:
    """A vague name collects whatever has no home."""
    assert vague_parts(path.relative_to(ENGINE)) == []


def test_every_folder_with_code_is_a_package() -> None:
    """Without `__init__.py` a folder escapes both the import contracts and the wheel."""
    folders = {folder for path in python_files(ENGINE) for folder in path.parents}
    inside = sorted(folder for folder in folders if folder.is_relative_to(ENGINE))

    assert [str(folder) for folder in inside if not (folder / "__init__.py").exists()] == []


def test_a_word_of_the_glossary_names_one_class() -> None:
    """A reader who knows the word must not find another thing of that name."""
    found = homes(glossary_terms(), python_files(ENGINE))

    assert len([places for places in found.values() if places]) > 50
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_a_folder_explains_itself_in_its_first_line() -> None:
    """The tree is read from the top: what is in a folder must not take opening its modules."""
    lines = {
        within_engine(path.parent): introduction(parse(path))
        for path in python_files(ENGINE)
        if path.name == "__init__.py"
    }

    assert [where for where, line in lines.items() if not is_sentence(line)] == []
    assert len(set(lines.values())) == len(lines), "two folders say the same"


def test_imports_point_one_way() -> None:
    """The layers are what lets a reader understand one part without the rest."""
    assert broken_contracts(ENGINE.parent) == ""


def test_no_file_mentions_a_path_of_one_machine() -> None:
    """Such a path is of no use to anyone else."""
    found = {
        str(path.relative_to(ROOT)): paths
        for path in tracked_texts()
        if (paths := machine_paths(path.read_text(encoding="utf-8", errors="replace")))
    }

    assert found == {}


def test_the_order_of_public_names_is_the_one_the_linter_wants() -> None:
    """Two opinions on the order could not both be satisfied."""
    names = ["a10", "X", "T10", "_private", "Route", "MAX", "a2", "Event", "T2", "__version__"]

    assert sorted(names, key=export_order) == [
        *("MAX", "T2", "T10"),
        *("Event", "Route", "X"),
        *("__version__", "_private", "a2", "a10"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "import time as clock\nclock.sleep(1)",
        "from time import sleep as nap\nnap(1)",
        "from time import *",
        "if not TYPE_CHECKING:\n    from random import random\nrandom()",
        "def later():\n    from random import random\n    return random()",
        "import random\nrng = random.Random(7)",
        "import secrets\nsecrets.token_hex()",
        "import uuid_utils as ids\nids.uuid7()",
        "from uuid import uuid4\nevent_id = uuid4()",
        "from datetime import datetime as dt\ndt.now(tz=None)",
        "import datetime\nstamp = datetime.datetime.utcnow",
        "import asyncio as aio\naio.sleep(0)",
        "import asyncio\nasyncio.get_running_loop().time()",
        "class Worker:\n    def now(self): return self._loop.time()",
    ],
)
def test_the_check_for_ambient_uses_finds(source: str) -> None:
    """A check that cannot fail is a defect."""
    assert list(ambient_uses(ast.parse(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "clock.sleep(1)\nrng.random()\nids.uuid7()",
        "from datetime import datetime\ndatetime.fromisoformat('2026-01-01').time()",
        "if TYPE_CHECKING:\n    from random import Random\nx: Random",
        "from redrive.clock import time\ntime()",
        "from .clock import random\nrandom()",
        "time = 3\nprint(time)",
    ],
)
def test_the_check_for_ambient_uses_accepts(source: str) -> None:
    """A check that cries wolf is switched off."""
    assert list(ambient_uses(ast.parse(source))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("for x in {1, 2}: pass", 1),
        ("for x in list(set(y)): pass", 1),
        ("y = [x for x in frozenset(z)]", 1),
        ("y = {x: 1 for x in {a for a in b}}", 1),
        ("for i, x in enumerate(set(a) - b): pass", 1),
        ("async def f():\n    async for x in {1}: pass", 1),
        ("for x in sorted({1, 2}): pass", 0),
        ("for x in {1: 2}: pass", 0),
        ("if x in {1, 2}: pass", 0),
    ],
)
def test_the_check_for_loops_over_sets_can_fail(source: str, expected: int) -> None:
    """A check that cannot fail is a defect, and one that cries wolf is switched off."""
    assert len(list(set_iterations(ast.parse(source)))) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.sleep(1)", 1),
        ("import asyncio\nasync def f(): await asyncio.sleep(0)", 1),
        ("from asyncio import sleep as nap\nnap(1)", 1),
        ("sleep(1)", 1),
        ("clock.sleep(1)", 1),
        ("from redrive.clock import SystemClock\nSystemClock().sleep(0.1)", 1),
        ("from redrive.testing import FakeClock\nclock.sleep(1)", 0),
        ("from redrive.clock import SystemClock\nfrom redrive.testing import Kit\nc.sleep(1)", 1),
        ("clock.sleep(0)", 0),
        ("clock.sleep(wait)", 1),
        ("import threading\nthreading.Event().wait(1)", 1),
        ("import threading\nthreading.Event().wait(timeout=1)", 1),
        ("import threading, asyncio\nasyncio.to_thread(threading.Event().wait, 0.1)", 1),
        ("import threading\nthreading.Event().wait()", 0),
        ("stopped.wait(5)", 0),
    ],
)
def test_the_check_for_sleeping_can_fail(source: str, expected: int) -> None:
    """A check that cannot fail is a defect, and one that cries wolf is switched off."""
    assert len(list(sleeps(ast.parse(source)))) == expected


def test_the_smaller_checks_can_fail() -> None:
    """A check that cannot fail is a defect, and one that cries wolf is switched off."""
    ignores = "a = 1  # type: ignore\nb = 2  # type: ignore[misc]\nc = '# type: ignore'\n"
    home = "root"
    mine, theirs = f"/{home}/notes", f"https://example.org/{home}/notes"

    assert exports(ast.parse("__all__ = ['b', 'a']")) == ["b", "a"]
    assert exports(ast.parse("__all__: list[str] = ['a']")) == ["a"]
    assert exports(ast.parse("a = ['b']")) is None
    assert [finding.line for finding in blanket_ignores(ignores)] == [1]
    assert homes(["Gate"], [Path(__file__)]) == {"Gate": []}
    assert homes(["Finding"], [Path(__file__).with_name("rules.py")])["Finding"] != []
    assert introduction(ast.parse('"""One.\n\nTwo."""')) == "One."
    assert is_sentence("What is here: this and that.")
    assert not is_sentence("Stuff.")
    assert not is_sentence("no sentence of words")
    assert vague_parts(Path("stores/_utils/sqlite.py")) == ["_utils"]
    assert vague_parts(Path("stores/sqlite.py")) == []
    assert machine_paths(f"see {mine} and {theirs}") == [mine]


HOUSE = {
    "__init__.py": "import redrive.app",
    "app.py": "import redrive.stores.memory",
    "model.py": "",
    "pipeline/__init__.py": "",
    "pipeline/claim.py": "import redrive.store",
    "pipeline/settle.py": "import redrive.policies.retry",
    "policies/__init__.py": "",
    "policies/retry.py": "import redrive.model",
    "store.py": "import redrive.policies",
    "stores/__init__.py": "",
    "stores/memory.py": "import redrive.store",
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, ""),
        ({"model.py": "import redrive.app"}, "redrive.model is not allowed to import redrive.app"),
        ({"model.py": "import redrive"}, "redrive.model is not allowed to import redrive.app"),
        ({"stray.py": ""}, "redrive.stray"),
        ({"pipeline/claim.py": "import redrive.pipeline.settle"}, "redrive.pipeline.claim is not"),
        ({"stores/memory.py": "import redrive.policies.retry"}, "redrive.stores is not allowed"),
    ],
    ids=["intact", "upwards", "upwards-by-the-front-door", "stray", "stages", "stores"],
)
def test_the_import_contracts_can_break(
    change: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    """A contract that holds for any tree protects none."""
    for name, source in (HOUSE | change).items():
        file = tmp_path / "redrive" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")

    found = broken_contracts(tmp_path)

    assert complaint in found
    assert bool(found) is bool(complaint)
