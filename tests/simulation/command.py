"""Run many seeds on all processors, show how it goes, and end with a table and JSON."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from random import SystemRandom
from typing import Any, Literal, get_args

import msgspec

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.plan import StoreKind
from tests.simulation.run import Result, run

__all__ = ["KEPT", "Brief", "hunt", "kept_seeds", "main", "run_brief"]

_World = StoreKind | Literal["projections", "tracking", "crowds", "gateway"]

KEPT = Path(__file__).parent / "kept.txt"
"""Seeds that once found something; every run replays them."""
_AT_ONCE = 20
_MOST_PER_BUG = 1_000
_TROUBLES = (
    *("lost_requests", "lost_replies", "late_replies", "duplicates", "disk_errors"),
    *("lost_notices", "lock_timeout"),
)


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed amounted to."""

    seed: int
    store: str
    records: int
    steps: int
    seconds: float
    deliveries: int
    faults: dict[str, int]
    ways: dict[str, int] = {}
    is_repeated: bool = False
    report: str = ""


def kept_seeds(*world: _World) -> list[int]:
    """Return the seeds of the kept list that found something in worlds as drawn, or in such ones.

    What follows a `#` says what each found.
    """
    lines = [line.partition("#")[0].split() for line in KEPT.read_text("utf-8").splitlines()]
    return [int(line[0]) for line in lines if line and line[1:] == [*world]]


def run_brief(
    seed: int,
    *,
    store: StoreKind | None = None,
    projects: bool = False,
    tracks: bool = False,
    is_crowded: bool = False,
    has_services: bool = False,
) -> Brief:
    """Run a seed; one in a hundred twice, which must give the same trace."""
    once = partial(
        run,
        seed,
        store=store,
        projects=projects,
        tracks=tracks,
        is_crowded=is_crowded,
        has_services=has_services,
    )
    result = once()
    report = "" if result.is_well else result.report()
    is_repeated = seed % 100 == 0
    if is_repeated and not report:
        again = once()
        if again.trace != result.trace:
            report = f"seed {seed} has two traces: {result.trace} and {again.trace}"
    faults = Counter(one.what for one in result.plan.faults)
    for name in _TROUBLES:
        faults[name.replace("_", " ")] += getattr(result.plan, name) > 0
    return Brief(
        seed=seed,
        store=result.plan.store,
        records=result.records,
        steps=result.steps,
        seconds=result.seconds,
        deliveries=result.deliveries,
        faults={name: number for name, number in sorted(faults.items()) if number},
        ways=result.ways,
        is_repeated=is_repeated,
        report=report,
    )


def hunt(bug: Bug, *, most: int = _MOST_PER_BUG, first: int = 0) -> Result | None:
    """Return the first run that finds a planted bug; `None` if so many seeds do not.

    The seed that is tried first is one that has found it before; all others are left to try.
    """
    seeds = [first, *(seed for seed in range(most) if seed != first)]
    results = (run(seed, bug=bug) for seed in seeds)
    return next((one for one in results if not one.is_well), None)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this one, and show how it went")
    parser.add_argument("--seeds", type=int, help="how many to run")
    parser.add_argument("--minutes", type=float, help="for how long to run")
    parser.add_argument("--start", type=int, help="the first seed; drawn when left out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--bugs", action="store_true", help="look for planted bugs: all, or a kind")
    stores = get_args(StoreKind)
    parser.add_argument("--store", choices=stores, help="run on this store; drawn when left out")
    parser.add_argument("--projections", action="store_true", help="run worlds that project")
    parser.add_argument("--tracking", action="store_true", help="run worlds that track")
    parser.add_argument("--crowds", action="store_true", help="run worlds of 40 destinations on")
    parser.add_argument("--gateway", action="store_true", help="run worlds of stored services")
    options = parser.parse_args()
    if options.projections and options.store not in {None, "sqlite"}:
        parser.error("worlds that project are on SQLite; leave out --store")
    if options.bugs:
        _hunt_all(options)
    if options.seed is not None:
        _show(run(options.seed, **_world_of(options)))
        return
    start = options.start if options.start is not None else SystemRandom().randrange(10**9)
    seeds = iter(kept_seeds(*_kept_in(options)))
    more = count(start)
    number = options.seeds or (10**9 if options.minutes else 500)
    _run_all(seeds, islice(more, number), start=start, options=options)


def _world_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return which worlds are asked for, as `run` and `run_brief` take them."""
    return {
        "store": options.store,
        "projects": options.projections,
        "tracks": options.tracking,
        "is_crowded": options.crowds,
        "has_services": options.gateway,
    }


def _kept_in(options: argparse.Namespace) -> list[_World]:
    if options.projections:
        return ["projections"]
    if options.tracking:
        return ["tracking"]
    if options.gateway:
        return ["gateway"]
    on: list[_World] = [] if options.store is None else [options.store]
    return [*on, "crowds"] if options.crowds else on


class _Catch(msgspec.Struct, frozen=True, kw_only=True):
    """Which seed found a planted bug, and by which invariant; the first of all if none did."""

    bug: str
    seed: int | None = None
    check: str = ""


def _catch(number: int) -> _Catch:
    bug = BUGS[number]
    found = hunt(bug)
    if found is None:
        return _Catch(bug=bug.name)
    return _Catch(bug=bug.name, seed=found.seed, check=found.violations[0].check)


def _bugs_of(options: argparse.Namespace) -> list[int]:
    """Return the numbers of the bugs to look for: of the worlds that are asked for, or all."""
    kinds = {
        "is_projecting": options.projections,
        "is_tracking": options.tracking,
        "is_crowded": options.crowds,
        "has_services": options.gateway,
    }
    asked = [name for name, is_asked in kinds.items() if is_asked]
    return [
        number
        for number, bug in enumerate(BUGS)
        if not asked or any(getattr(bug, name) for name in asked)
    ]


def _hunt_all(options: argparse.Namespace) -> None:
    catches: list[_Catch] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("forkserver")) as pool:
        for catch in pool.map(_catch, _bugs_of(options)):
            catches.append(catch)
            how = "NOT FOUND" if catch.seed is None else f"seed {catch.seed:<4} {catch.check}"
            _say(f"{catch.bug:<40} {how}")
    found = sum(one.seed is not None for one in catches)
    _say(f"{found} of {len(catches)} planted bugs were found")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(catches), indent=2))
    sys.exit(found < len(catches))


def _show(result: Result) -> None:
    _say("\n".join(result.last) if result.is_well else result.report())
    if result.is_well:
        _say(
            f"seed {result.seed}: all well after {result.seconds:.1f} s of virtual time, "
            f"{result.steps} steps, {result.records} lines; trace {result.trace}"
        )
    sys.exit(not result.is_well)


def _run_all(
    kept: Iterator[int], fresh: Iterator[int], *, start: int, options: argparse.Namespace
) -> None:
    begun = time.monotonic()
    ends = begun + options.minutes * 60 if options.minutes else None
    briefs: list[Brief] = []
    wrong: list[Brief] = []

    def still_going() -> Iterator[int]:
        yield from kept
        for seed in fresh:
            if ends is not None and time.monotonic() >= ends:
                return
            yield seed

    with ProcessPoolExecutor(options.jobs, mp_context=get_context("forkserver")) as pool:
        seeds = still_going()
        while batch := list(islice(seeds, _AT_ONCE * options.jobs)):
            run_one = partial(run_brief, **_world_of(options))
            for brief in pool.map(run_one, batch, chunksize=5):
                briefs.append(brief)
                if brief.report:
                    wrong.append(brief)
                    _say(f"\n{brief.report}\n")
            pace = len(briefs) / (time.monotonic() - begun) * 60
            _say(f"\r{len(briefs)} seeds, {len(wrong)} wrong, {pace:.0f} a minute", end="")
    _sum_up(briefs, wrong, start=start, took=time.monotonic() - begun, path=options.json)
    sys.exit(bool(wrong))


def _sum_up(
    briefs: list[Brief], wrong: list[Brief], *, start: int, took: float, path: Path | None
) -> None:
    faults: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for brief in briefs:
        faults.update(brief.faults)
        ways.update(brief.ways)
    figures = {
        "seeds": len(briefs),
        "first": start,
        "wrong": [one.seed for one in wrong],
        "run twice": sum(one.is_repeated for one in briefs),
        "on sqlite": sum(one.store == "sqlite" for one in briefs),
        "on postgres": sum(one.store == "postgres" for one in briefs),
        "deliveries": sum(one.deliveries for one in briefs),
        "virtual hours": round(sum(one.seconds for one in briefs) / 3600, 1),
        "steps": sum(one.steps for one in briefs),
        "seconds": round(took, 1),
        "seeds a minute": round(len(briefs) / took * 60),
    }
    rows = [*figures.items(), *((f"fault: {name}", one) for name, one in sorted(faults.items()))]
    rows += [(f"way: {name}", one) for name, one in sorted(ways.items())]
    _say("\n" + "\n".join(f"{name:<32} {value}" for name, value in rows))
    if path is not None:
        told = {**figures, "faults": dict(faults), "ways": dict(ways)}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2))


def _say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()
