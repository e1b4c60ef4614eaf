"""The parts of a proof: each tries one kind of thing for as long as it is given."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof.callers import prove_callers
from tests.proof.contract import prove_contract
from tests.proof.grounds import GROUNDS
from tests.proof.linear import explain, history_of_processes, history_of_tasks
from tests.proof.nth import prove_every_call, prove_every_write
from tests.proof.payloads import prove_payloads
from tests.proof.results import Result
from tests.proof.sabotage.acts import SABOTAGES
from tests.proof.sabotage.running import is_caught
from tests.proof.soak import BEDS, soak
from tests.servers.postgres import the_database
from tests.web.contract import prove_answers, served

__all__ = ["PARTS", "Order", "Part"]

ROOT = Path(__file__).parents[2]
_PASSED = re.compile(r"(\d+) passed")
_CHUNK = 25
_MOST_EXAMPLES = 5_000
_STEPS = 100
_SEEDS_ON_A_SERVER = 300
_SEEDS_THAT_PROJECT = 300
_SEEDS_THAT_TRACK = 500
_SEEDS_OF_SERVICES = 300
_SAME_SEEDS = range(250, 500)
"""Always these, after those that `make test` runs: a change is to blame when one fails."""
_SHARED = ("sqlite", "postgres")
"""The stores that processes share."""


class Order(NamedTuple):
    """How much is asked for: seconds for what takes as long as it may, and the sizes."""

    seconds: float
    start: int
    seeds: int | None
    soak_seconds: float
    fault_every: float
    kills: int
    told: Callable[[str], None]


class Part(NamedTuple):
    """A kind of thing to try; `share` is what it gets of the time that is to be divided."""

    name: str
    about: str
    share: float
    run: Callable[[Order], Iterator[Result]]


class _Watch:
    """Measures one line of the result, and turns what goes wrong into its failure."""

    def __init__(self, part: str, what: str, store: str) -> None:
        self._given = {"part": part, "what": what, "store": store}
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def result(
        self,
        tried: int,
        *,
        lost: int = 0,
        failure: str = "",
        ways: Mapping[str, int] | None = None,
    ) -> Result:
        return Result(
            **self._given,
            tried=tried,
            lost=lost,
            seconds=round(self.seconds, 1),
            failure=failure,
            ways=dict(sorted((ways or {}).items())),
        )


def _told(error: BaseException) -> str:
    notes = "\n".join(getattr(error, "__notes__", []))
    return f"{type(error).__name__}: {error}\n{notes[-6_000:]}".rstrip()


def _numbered(order: Order, name: str) -> Callable[[int, int], None]:
    return lambda number, of: order.told(f"{name}, {number} of {of}")


def _timed(order: Order, name: str) -> Callable[[float], None]:
    return lambda seconds: order.told(f"{name}, {seconds:.0f} s")


def contract(order: Order) -> Iterator[Result]:
    """Random steps against the model, by new seeds until the time is up."""
    for name, open_ground in GROUNDS.items():
        watch, examples, failure = _Watch("contract", "random steps against a model", name), 0, ""
        with open_ground() as ground:
            while watch.seconds < order.seconds / len(GROUNDS) and examples < _MOST_EXAMPLES:
                order.told(f"{name}, {examples * _STEPS:,} steps")
                seed, is_plain = order.start + examples, examples // _CHUNK % 2 == 1
                try:
                    prove_contract(
                        ground, examples=_CHUNK, steps=_STEPS, seed=seed, is_plain=is_plain
                    )
                except Exception as error:  # noqa: BLE001 - it is the result
                    failure = f"Seed {seed}.\n{_told(error)}"
                    break
                examples += _CHUNK
        yield watch.result(examples * _STEPS, failure=failure, ways=ground.ways)


def calls(order: Order) -> Iterator[Result]:
    """Fail every call of a store, and every write of SQLite."""
    for name, open_ground in GROUNDS.items():
        watch = _Watch(
            "calls", "each call of a store failed, before and after it took effect", name
        )
        try:
            with open_ground() as ground:
                runs = prove_every_call(ground, told=_numbered(order, name))
            yield watch.result(runs)
        except Exception as error:  # noqa: BLE001 - it is the result
            yield watch.result(0, failure=_told(error))
    watch = _Watch("calls", "each write to the disk failed", "sqlite")
    try:
        with GROUNDS["sqlite"]() as ground:
            runs = prove_every_write(ground, told=_numbered(order, "write"))
        yield watch.result(runs)
    except Exception as error:  # noqa: BLE001 - it is the result
        yield watch.result(0, failure=_told(error))


def clients(order: Order) -> Iterator[Result]:
    """Histories of clients at the same time, each with an order that explains it."""
    for name in _SHARED:
        watch, histories, failure = _Watch("clients", "histories of clients at once", name), 0, ""
        with GROUNDS[name]() as ground:
            while watch.seconds < order.seconds / len(_SHARED) and not failure:
                order.told(f"{name}, {histories:,} histories")
                seed = str(order.start + histories)
                with ground.fresh() as site:
                    found = (
                        history_of_processes(site, processes=2, steps=8, seed=seed)
                        if histories % 20 == 0
                        else history_of_tasks(site, clients=2 + histories % 3, steps=6, seed=seed)
                    )
                if explain(found) is None:
                    failure = f"Seed {seed}: nothing explains\n{found}"
                histories += 1
        yield watch.result(histories, failure=failure)


def callers(order: Order) -> Iterator[Result]:
    """Callers' own transactions with views of any age, by new seeds until the time is up."""
    watch = _Watch("callers", "random steps of callers with old views", "postgres")
    tried, failure = 0, ""
    with the_database() as database:
        while watch.seconds < order.seconds and not failure:
            order.told(f"{tried:,} scenes")
            seed = order.start + tried
            try:
                with database.empty_store() as url:
                    prove_callers(url, seed=seed, steps=_STEPS)
            except Exception as error:  # noqa: BLE001 - it is the result
                failure = _told(error)
            tried += 1
    yield watch.result(tried * _STEPS, failure=failure)


def payloads(order: Order) -> Iterator[Result]:
    """Payloads of every shape at each door of each store, by new seeds until the time is up."""
    for name, open_ground in GROUNDS.items():
        watch = _Watch("payloads", "payloads of every shape, taken or refused", name)
        tried, seed, failure = 0, order.start, ""
        with open_ground() as ground:
            while watch.seconds < order.seconds / len(GROUNDS) and not failure:
                order.told(f"{name}, {tried:,} payloads")
                try:
                    tried += prove_payloads(ground, seed=seed, count=_STEPS)
                except Exception as error:  # noqa: BLE001 - it is the result
                    failure = _told(error)
                seed += 1
        yield watch.result(tried, failure=failure)


def answers(order: Order) -> Iterator[Result]:
    """Requests made from the OpenAPI document, by new seeds until the time is up."""
    watch = _Watch("answers", "requests that fit the document of the API, or do not", "sqlite")
    tried, seed, failure = 0, order.start, ""
    with served() as send:
        while watch.seconds < order.seconds and not failure:
            order.told(f"{tried:,} requests")
            try:
                tried += prove_answers(send, examples=_CHUNK, start=seed)
            except BaseExceptionGroup as error:
                failure = f"Seed {seed}.\n{_told(error)}"
            except Exception as error:  # noqa: BLE001 - it is the result
                failure = f"Seed {seed}.\n{_told(error)}"
            seed += 1
    yield watch.result(tried, failure=failure)


def kills(order: Order) -> Iterator[Result]:
    """`kill -9` of workers, of publishers, and of publishers in a transaction."""
    tests = {
        "workers killed under load": ("tests/faults/test_kill.py", "workers_are_killed"),
        "publishers killed": ("tests/faults/test_kill.py", "publishers_are_killed"),
        "workers killed that project": ("tests/faults/test_projecting.py", "recount_of_the_log"),
        "versions swapped under readers": (
            "tests/faults/test_swapping.py",
            "of_a_version",
        ),
    }
    for what, (path, words) in tests.items():
        for name in _SHARED:
            order.told(f"{what}, {name}")
            yield _tested("kills", what, name, [path, "-k", f"{words} and {name}"], order)
    what = "publishers killed in a transaction"
    order.told(what)
    yield _tested("kills", what, "postgres", ["tests/joining/test_kill.py"], order)


FAULTS: dict[str, dict[str, Sequence[str]]] = {
    "sqlite": {
        "a poison pill": ["tests/faults/test_poison.py", "-k", "pill and sqlite"],
        "a handler of ten leases": ["tests/faults/test_stuck.py", "-k", "many_leases and sqlite"],
        "a worker frozen past its lease": [
            "tests/faults/test_pause.py",
            "-k",
            "sqlite or no_crash",
        ],
        "a disk full or read only": ["tests/faults/test_full_disk.py"],
        "signals at any moment": [
            *("tests/faults/test_stuck.py", "tests/faults/test_stop.py"),
            *("-k", "signal and not postgres"),
        ],
        "forks beside writers, and threads all taken": [
            *("tests/app/test_lifetime.py", "tests/app/test_transactions.py"),
            *("-k", "fork or fill_the_threads"),
        ],
        "releases rolled out and back": ["tests/faults/test_deployment.py", "-k", "sqlite"],
        "one poison event of 100,000, and 100,000 behind one": [
            *("tests/faults/test_parking.py", "-k", "very_many and sqlite"),
        ],
        "the HTTP server killed under 50 clients": ["tests/faults/test_serving.py"],
        "workers, publishers, a server, the command line at once": [
            *("tests/faults/test_sharing.py", "-k", "sqlite"),
        ],
    },
    "postgres": {
        "a poison pill": ["tests/faults/test_poison.py", "-k", "pill and postgres"],
        "a handler of ten leases": ["tests/faults/test_stuck.py", "-k", "many_leases and postgres"],
        "a worker frozen past its lease": ["tests/faults/test_pause.py", "-k", "postgres"],
        "signals at any moment": ["tests/faults/test_stop.py", "-k", "signal and postgres"],
        "the server crashed under load": ["tests/faults/test_server_crash.py"],
        "releases rolled out and back": ["tests/faults/test_deployment.py", "-k", "postgres"],
        "one poison event of 100,000, and 100,000 behind one": [
            *("tests/faults/test_parking.py", "-k", "very_many and postgres"),
        ],
        "a network that delays, narrows, stalls, cuts": ["tests/faults/test_network.py"],
    },
}
"""The faults of each store and the tests that show them; a store joins by a line of its own."""


def faults(order: Order) -> Iterator[Result]:
    """Every other fault, over and over until the time is up, each at least once."""
    share = order.seconds / sum(map(len, FAULTS.values()))
    for name, tests in FAULTS.items():
        for what, arguments in tests.items():
            watch, tried, failure = _Watch("faults", what, name), 0, ""
            while not failure and (tried == 0 or watch.seconds < share):
                order.told(f"{what}, {name}")
                once = _tested("faults", what, name, arguments, order)
                tried, failure = tried + once.tried, once.failure
            yield watch.result(tried, failure=failure)


def _tested(part: str, what: str, store: str, arguments: Sequence[str], order: Order) -> Result:
    """Run tests in a process of their own; what passed is what was tried."""
    watch = _Watch(part, what, store)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *arguments, "-x", "-q", "--timeout", "900"),
            *("-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        env={**os.environ, "REDRIVE_TEST_KILLS": str(order.kills), "REDRIVE_TEST_LONG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = _PASSED.search(done.stdout)
    tried = int(passed[1]) if passed else 0
    if part == "kills":
        tried *= order.kills
    failure = "" if done.returncode == 0 else (done.stdout + done.stderr)[-4_000:]
    return watch.result(tried, failure=failure)


def soaking(order: Order) -> Iterator[Result]:
    """A load of 200 events a second with faults, on each store in turn."""
    for name, open_bed in BEDS.items():
        what = "events of the soak: 200/s, 5 % failures, faults"
        watch = _Watch("soak", what, name)
        try:
            with open_bed() as bed, tempfile.TemporaryDirectory(prefix="redrive-soak-") as folder:
                verdict = soak(
                    bed,
                    Path(folder),
                    seconds=order.soak_seconds / len(BEDS),
                    fault_every=order.fault_every,
                    seed=order.start,
                    told=_timed(order, name),
                )
        except Exception as error:  # noqa: BLE001 - it is the result
            yield watch.result(0, failure=_told(error))
            continue
        failure = "" if verdict.is_clean else str(verdict)
        yield watch.result(verdict.acknowledged, lost=verdict.lost, failure=failure)


def sabotage(order: Order) -> Iterator[Result]:
    """Spoil one line each of the stores and the engine, and see that the tests notice."""
    for name in dict.fromkeys(one.where for one in SABOTAGES):
        watch = _Watch("sabotage", "spoiled lines that the tests found", name)
        acts = [one for one in SABOTAGES if one.where == name]
        missed = []
        for act in acts:
            order.told(f"{name}, {act.name}")
            if not is_caught(act):
                missed.append(act.name)
        failure = f"Not found: {', '.join(missed)}." if missed else ""
        yield watch.result(len(acts) - len(missed), failure=failure)


def simulation(order: Order) -> Iterator[Result]:
    """The whole engine in a simulated world: by the same seeds, then by new ones for the time."""
    watch = _Watch("simulation", "simulated worlds, always the same", "memory and sqlite")
    order.told("the same seeds as ever")
    start, number = str(_SAME_SEEDS.start), str(len(_SAME_SEEDS))
    figures, failure = _simulated("--start", start, "--seeds", number)
    yield watch.result(figures["seeds"] if isinstance(figures, dict) else 0, failure=failure)
    watch = _Watch("simulation", "simulated worlds", "memory and sqlite")
    order.told("seed by seed")
    if order.seeds is None:
        size = ("--minutes", f"{order.seconds / 60:.3f}")
    else:
        size = ("--seeds", str(order.seeds))
    figures, failure = _simulated(*size)
    yield watch.result(figures["seeds"] if isinstance(figures, dict) else 0, failure=failure)
    watch = _Watch("simulation", "simulated worlds", "postgres")
    order.told("seed by seed, on a server")
    figures, failure = _simulated("--store", "postgres", "--seeds", str(_SEEDS_ON_A_SERVER))
    figures = figures or {"seeds": 0, "ways": {}}
    yield watch.result(figures["seeds"], failure=failure, ways=figures["ways"])
    watch = _Watch("simulation", "simulated worlds that project", "sqlite")
    order.told("seed by seed, with projections")
    figures, failure = _simulated("--projections", "--seeds", str(_SEEDS_THAT_PROJECT))
    yield watch.result(figures["seeds"] if isinstance(figures, dict) else 0, failure=failure)
    watch = _Watch("simulation", "simulated worlds that track", "memory")
    order.told("seed by seed, with tracking")
    figures, failure = _simulated("--tracking", "--seeds", str(_SEEDS_THAT_TRACK))
    yield watch.result(figures["seeds"] if isinstance(figures, dict) else 0, failure=failure)
    watch = _Watch("simulation", "simulated worlds of stored services", "memory and sqlite")
    order.told("seed by seed, with services that people change")
    figures, failure = _simulated("--gateway", "--seeds", str(_SEEDS_OF_SERVICES))
    yield watch.result(figures["seeds"] if isinstance(figures, dict) else 0, failure=failure)


def planted(order: Order) -> Iterator[Result]:
    """Plant bugs in the engine, and see that the simulation finds each of them."""
    watch = _Watch("planted", "planted bugs that the simulation found", "all stores")
    order.told("bug by bug")
    catches, failure = _simulated("--bugs")
    yield watch.result(sum(one.get("seed") is not None for one in catches or ()), failure=failure)


def _simulated(*arguments: str) -> tuple[Any, str]:
    """Run the simulation; return its figures, if it has any, and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="redrive-simulation-") as folder:
        told = Path(folder) / "result.json"
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *arguments, "--json", str(told)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        figures = json.loads(told.read_text("utf-8")) if told.exists() else None
    return figures, "" if done.returncode == 0 else (done.stdout + done.stderr)[-4_000:]


PARTS = (
    Part("simulation", "the whole engine, in virtual time", 8, simulation),
    Part("planted", "planted bugs are found", 0, planted),
    Part("contract", "random steps against a model", 4, contract),
    Part("calls", "every call of a store fails once", 0, calls),
    Part("clients", "an order for what clients at once were told", 1, clients),
    Part("callers", "callers' transactions with views of any age", 1, callers),
    Part("payloads", "payloads of every shape at each door", 1, payloads),
    Part("answers", "requests made from the document of the API", 1, answers),
    Part("kills", "kill -9 of workers and publishers", 0, kills),
    Part("faults", "frozen, blocked, full, cut off, crashed", 3, faults),
    Part("soak", "a load with faults, for minutes", 0, soaking),
    Part("sabotage", "spoiled lines are found", 0, sabotage),
)
