"""I2: which declaration of a destination is in force changes only as it should."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import inf

import msgspec

from redrive.model.destination import Destination
from redrive.policies.declaring import digest
from redrive.store import PUBLISHER, Declarer
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step
from tests.proof.checkers.records import ClockSet, Record

__all__ = ["InForce"]


class InForce(Check):
    """A worker's new declaration takes effect, one that comes back waits for those who serve.

    Who only publishes adds patterns, and changes nothing else.
    """

    name = "I2 in force"

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}
        self._in_force: dict[str, str] = {}
        self._declared: dict[str, dict[str, str]] = {}
        self._heard: dict[str, list[tuple[float, datetime]]] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        call = step.call
        match step.how:
            case "heartbeat":
                self._heard.setdefault(call.given["worker"], []).append((call.at, call.now))
            case "retire":
                self._declared.pop(call.given["worker"], None)
            case "routed" if call.method == "register":
                yield from self._brought(ledger, step)
            case _:
                pass

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, ClockSet):
            self._heard.clear()  # who was heard of by another clock may seem silent
        yield from ()

    def _brought(self, ledger: Ledger, step: Step) -> Iterator[str]:
        given, now = step.call.given, step.call.now
        by: Declarer = given.get("by", PUBLISHER)
        after = {one.name: one for one in step.call.answer.routes.destinations}
        for declared in given["destinations"]:
            before = ledger.promises[declared.name].destination
            found = after.get(declared.name)
            if found is None or ledger.routed is None or declared.name not in ledger.routed:
                continue
            if by.worker:
                yield from self._by_worker(declared, before, found, step=step)
            else:
                yield from _by_publisher(before, found)
        if by.worker:
            # Those who register wait for each other, so each sees all that did before.
            self._heard.setdefault(by.worker, []).append((-inf, now))
            marks = {one.name: digest(one) for one in given["destinations"]}
            if not given.get("again"):
                self._declared[by.worker] = marks
            for name, mark in marks.items():
                self._seen.setdefault(name, set()).add(mark)

    def _by_worker(
        self,
        declared: Destination,
        before: Destination,
        after: Destination,
        *,
        step: Step,
    ) -> Iterator[str]:
        by: Declarer = step.call.given["by"]
        name, mark = declared.name, digest(declared)
        is_changed = digest(before) != digest(after)
        if mark not in self._seen.get(name, ()):
            if mark != self._in_force.get(name, mark) and digest(after) != mark:
                yield f"{by.worker} declares {name} as nobody did before, and that has no effect"
            self._in_force[name] = mark
            return
        if not is_changed or mark == self._in_force.get(name):
            return
        if digest(after) != mark:
            yield f"{by.worker} declares {name}, and something else takes effect"
        for worker, marks in self._declared.items():
            is_live = worker != by.worker and self._is_live(worker, step, lease=by.lease)
            if is_live and marks.get(name) == self._in_force.get(name):
                yield f"{by.worker} brought back what it declares of {name}, beside {worker}"
        self._in_force[name] = mark

    def _is_live(self, worker: str, step: Step, *, lease: timedelta) -> bool:
        """Tell whether a worker was heard of; who brings something may not see the latest."""
        since, now = step.call.since, step.call.now
        return any(
            now - heard < lease
            for at, heard in self._heard.get(worker, ())
            if since is None or at < since
        )


def _by_publisher(before: Destination, after: Destination) -> Iterator[str]:
    if not set(before.patterns) <= set(after.patterns):
        yield f"who only publishes took patterns from {before.name}"
    if digest(_bare(before)) != digest(_bare(after)):
        yield f"who only publishes changed more of {before.name} than its patterns"


def _bare(destination: Destination) -> Destination:
    return msgspec.structs.replace(destination, patterns=("*",))
