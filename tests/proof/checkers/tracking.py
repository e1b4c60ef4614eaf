"""I17: what was tracked has arrived, or is counted as dropped, or was in a buffer that was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from redrive.model.destination import Order
from redrive.model.event import EventId
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import Arrived, Counted, Looked, Record, Tracked

__all__ = ["TrackedAddsUp", "TrackedInOrder"]


class TrackedAddsUp(Check):
    """Of each life no more is lost than its books say, and at most what waited when it was killed.

    Nothing arrives that was not tracked, nor where it is not wanted.
    """

    name = "I17 tracked"

    def __init__(self) -> None:
        self._tracked: dict[EventId, Tracked] = {}
        self._arrived: Counter[tuple[EventId, str]] = Counter()
        self._counted: dict[str, Counted] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Tracked(event_id=event_id):
                self._tracked[event_id] = record
            case Counted(life=life):
                self._counted[life] = record
                if record.waiting < 0 or (record.waiting and not record.is_killed):
                    yield f"{life} has ended, and {record.waiting} events wait"
            case Arrived(event_id=event_id, destination=name):
                self._arrived[event_id, name] += 1
                tracked = self._tracked.get(event_id)
                if tracked is None:
                    yield f"{name} was given {event_id}, which nobody has tracked"
                elif name not in self._wanting(ledger, tracked):
                    yield f"{name} was given {event_id}, and does not want {tracked.event_type}"
            case Looked(is_final=True):
                for counted in self._counted.values():
                    yield from self._add_up(ledger, counted)
            case _:
                pass

    def _add_up(self, ledger: Ledger, counted: Counted) -> Iterator[str]:
        tracked = [one for one in self._tracked.values() if one.life == counted.life]
        lost = sum(
            any(not self._arrived[one.event_id, name] for name in self._wanting(ledger, one))
            for one in tracked
        )
        lost += counted.tracked - len(tracked)  # the buffer was full, and that was raised
        most = counted.dropped + counted.waiting
        if lost > most:
            yield f"{counted.life}: {lost} events are lost, and its books explain {most}: {counted}"
        if not counted.is_exact or counted.is_killed:
            return
        if lost != most:
            yield f"{counted.life}: {lost} events are lost, and its books say {most}: {counted}"
        for one in tracked if counted.is_once else ():
            for name in self._wanting(ledger, one):
                if (times := self._arrived[one.event_id, name]) > 1:
                    yield f"{name} was given {one.event_id} {times} times"

    def _wanting(self, ledger: Ledger, tracked: Tracked) -> list[str]:
        return [
            name
            for name, promise in ledger.promises.items()
            if promise.destination.wants(tracked.event_type, None)
        ]


class TrackedInOrder(Check):
    """Where order is kept, the events of a key that one life has tracked arrive in that order."""

    name = "I17 tracked in order"

    def __init__(self) -> None:
        self._places: dict[EventId, tuple[str, str, int]] = {}
        self._last: dict[tuple[str, str, str], int] = {}
        self._arrived: set[tuple[EventId, str]] = set()

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Tracked(event_id=event_id, key=str() as key, life=life):
                self._places[event_id] = (life, key, len(self._places))
            case Arrived(event_id=event_id, destination=name) if event_id in self._places:
                order = ledger.promises[name].destination.order
                if order is Order.NONE or (event_id, name) in self._arrived:
                    return
                self._arrived.add((event_id, name))
                life, key, place = self._places[event_id]
                before = self._last.get((life, key, name), -1)
                self._last[life, key, name] = max(before, place)
                if place < before:
                    yield f"{name} was given {event_id} of {key} after a later one"
            case _:
                pass
