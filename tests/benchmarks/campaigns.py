"""Results that nobody measured."""

from __future__ import annotations

from benchmarks.contender import Arena, Contender, Place, Role, Run, Workload
from benchmarks.results import Part, Results

__all__ = ["CONTENDERS", "a_rate", "part"]


def _contender(name: str, role: Role) -> Contender:
    def measure(size: int, place: Place) -> Run:
        raise NotImplementedError

    return Contender(
        name=name,
        role=role,
        arena=Arena.POSTGRES,
        describe=lambda _: {},
        workloads={Workload.DRAIN: measure},
    )


CONTENDERS = {
    "raw_postgres": _contender("raw asyncpg", Role.LIMIT),
    "pgqueuer": _contender("PgQueuer", Role.PEER),
    "redrive_postgres": _contender("Redrive", Role.ENGINE),
}


def part(contender: str, workload: str = "drain", section: str = "postgres") -> Part:
    return Part(section=section, workload=workload, contender=contender)


def a_rate(results: Results, of: Part, *rates: float, point: str = "") -> None:
    for rate in rates:
        results.add(of, Run(figures={"per_second": rate}, point=point))
