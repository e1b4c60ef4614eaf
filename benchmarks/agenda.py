"""What is to be measured, in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from benchmarks.contender import Arena, Contender, Workload
from benchmarks.plan import Plan
from benchmarks.results import Part, Results
from benchmarks.study import Study, engine_of

__all__ = ["Errand", "agenda"]


@dataclass(frozen=True, kw_only=True)
class Errand:
    """One run of a contender at a workload or, without a workload, a whole study."""

    part: Part
    arena: Arena
    workload: Workload | None = None


def agenda(
    plan: Plan,
    contenders: Mapping[str, Contender],
    studies: Mapping[str, Study],
    *,
    only: Collection[str],
    results: Results,
) -> list[Errand]:
    """Return what is wanted and not yet there.

    Contenders take turns, so that a slow minute of the machine hits all of them.
    """
    errands = [
        errand
        for arena in Arena
        for number in range(plan.rounds)
        for workload in plan.sizes
        for errand in _turn(plan, contenders, arena, workload, number)
        if len(results.runs.get(errand.part, ())) <= number
    ]
    errands += [
        Errand(part=part, arena=arena)
        for module, study in studies.items()
        if study.is_quick or not plan.is_quick
        for arena in study.arenas
        if (part := Part(section=study.section, workload=module, contender=engine_of(arena)))
        not in results.runs
    ]
    return [errand for errand in errands if errand.part.is_meant_by(only)]


def _turn(
    plan: Plan,
    contenders: Mapping[str, Contender],
    arena: Arena,
    workload: Workload,
    number: int,
) -> list[Errand]:
    modules = [
        module
        for module, one in contenders.items()
        if one.arena is arena and workload in one.workloads
        if one.is_quick or not plan.is_quick
    ]
    # Who begins changes, so that nobody always comes after the same one.
    first = number % len(modules) if modules else 0
    return [
        Errand(
            part=Part(section=arena, workload=workload.name.lower(), contender=module),
            arena=arena,
            workload=workload,
        )
        for module in modules[first:] + modules[:first]
    ]
