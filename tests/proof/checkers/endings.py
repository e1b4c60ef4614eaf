"""I13, I15 and I16: work comes to an end, so do workers, and they leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.delivery import Lease, Status
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step
from tests.proof.checkers.records import (
    Born,
    Died,
    Healed,
    Left,
    Looked,
    Record,
    Silenced,
    Stopped,
    Stopping,
)

__all__ = ["AllSettles", "NoDrip", "StopsInTime", "WaitsForSomebody"]

_MOST_NAMED = 5


class AllSettles(Check):
    """Once everything is healed, all work settles before the bound that was computed."""

    name = "I13 liveness"

    def __init__(self) -> None:
        self._bound: float | None = None

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Healed):
            self._bound = record.bound
        if not isinstance(record, Looked) or not record.is_final:
            return
        left = [
            one for one in record.deliveries if one.status in (Status.PENDING, Status.IN_FLIGHT)
        ]
        if left and self._bound is not None and record.at >= self._bound:
            named = ", ".join(
                f"{one.id} to {one.destination} ({one.status}, due {one.due}, "
                f"behind {one.behind}, {one.kind}, {one.crashes} crashes)"
                for one in left[:_MOST_NAMED]
            )
            yield f"{len(left)} are not settled {record.at - self._bound:.1f} s too late: {named}"


class WaitsForSomebody(Check):
    """Who waits behind another of its key waits for one that is still to go."""

    name = "I13 waiting"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if not isinstance(record, Looked):
            return
        for number in record.stuck:
            yield f"{number} waits behind nobody"
        to_go = {
            one.id
            for one in record.deliveries
            if one.status in (Status.PENDING, Status.IN_FLIGHT) or one.is_dead_letter
        }
        for one in record.deliveries:
            if one.behind is not None and (one.behind == one.id or one.behind not in to_go):
                yield f"{one.id} to {one.destination} waits behind {one.behind}, which is over"


class StopsInTime(Check):
    """A worker ends within its grace time; what it gives back it has not settled."""

    name = "I15 shutdown"

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._machines: dict[str, str] = {}
        self._settling: dict[Lease, None] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Born(worker=worker, machine=machine):
                self._machines[worker] = machine
            case Stopping(worker=worker, within=within):
                self._ends[worker] = record.at + within
            case Died(machine=machine) | Silenced(machine=machine):
                self._ends = {
                    worker: end
                    for worker, end in self._ends.items()
                    if self._machines.get(worker) != machine
                }
            case Stopped(worker=worker):
                end = self._ends.pop(worker, None)
                if end is not None and record.at > end:
                    yield f"the worker {worker} stopped {record.at - end:.3f} s too late"
            case Looked(is_final=True):
                late = [worker for worker, end in self._ends.items() if record.at > end]
                yield from (f"the worker {worker} has not stopped" for worker in late)
            case _:
                pass

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.lease is None:
            return
        if step.how in ("settled", "settle refused"):
            self._settling[step.lease] = None
        elif step.how in ("released", "release refused") and step.lease in self._settling:
            yield f"{step.lease} was given back, and it was settled"


class NoDrip(Check):
    """What a process that stopped leaves behind is nothing, so nothing can gather."""

    name = "I16 no drip"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Left) and record.tasks:
            yield f"{record.machine} stopped in good order and left {record.tasks} tasks"
