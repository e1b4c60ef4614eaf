"""I12: what is due by an auto-replay begins then, once, and not while it should wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.destination import Order
from redrive.model.gate import Closed
from redrive.policies.auto_replay import next_due
from redrive.store import Replay
from tests.proof.checkers.check import Check
from tests.proof.checkers.entry import Step
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import Healed, Looked, Record

__all__ = ["AutoReplaysInTime"]

_NEVER = datetime.max.replace(tzinfo=UTC)


class AutoReplaysInTime(Check):
    """An auto-replay starts one replay for a due time, of at most a batch, by an open gate.

    A letter is sent in this way at most `cycles` times; in the end none is left that was not.
    """

    name = "I12 auto-replay"

    def __init__(self) -> None:
        self._earliest = _NEVER
        self._started: dict[str, datetime] = {}
        self._sent: Counter[DeliveryId] = Counter()
        self._bound: float | None = None

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        now, entry = step.call.now, step.entry
        # The store counts from when it first sees an auto-replay, which nobody tells.
        self._earliest = min(self._earliest, now)
        if step.how == "auto_replay":
            (name,) = step.detail.destinations
            yield from self._begun(ledger, step.detail, name, now)
            self._started[name] = now
        elif step.how == "replayed" and entry is not None:
            for replay in _senders(step, entry.id):
                yield from self._count(ledger, entry.id, replay)

    def _begun(self, ledger: Ledger, replay: Replay, name: str, now: datetime) -> Iterator[str]:
        auto_replay = ledger.promises[name].destination.auto_replay
        if auto_replay is None:
            yield f"{name} has no auto-replay, and was replayed by one"
            return
        since = self._started.get(name, self._earliest)
        if next_due(auto_replay, since) > now:
            yield f"{name} was replayed at {now}, and nothing was due since {since}"
        if name in ledger.paused or not isinstance(ledger.breaker(name), Closed):
            yield f"{name} was replayed by its auto-replay, and its gate is shut"
        if replay.selected > auto_replay.batch:
            yield f"{replay.selected} letters of {name} were taken at once, not {auto_replay.batch}"

    def _count(self, ledger: Ledger, number: DeliveryId, replay: Replay) -> Iterator[str]:
        self._sent[number] += 1
        auto_replay = ledger.promises[replay.destinations[0]].destination.auto_replay
        if auto_replay is not None and self._sent[number] > auto_replay.cycles:
            yield f"delivery {number} was sent {self._sent[number]} times by its auto-replay"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Healed):
            self._bound = record.bound
        if not isinstance(record, Looked) or not record.is_final:
            return
        left = [one for one in record.deliveries if self._is_neglected(ledger, one)]
        if left and self._bound is not None and record.at >= self._bound:
            yield f"{len(left)} dead letters were left alone by their auto-replays: {left[0].id}"

    def _is_neglected(self, ledger: Ledger, one: Delivery) -> bool:
        destination = ledger.promises[one.destination].destination
        auto_replay = destination.auto_replay
        return (
            auto_replay is not None
            and destination.order is Order.NONE
            and one.is_dead_letter
            and self._sent[one.id] < auto_replay.cycles
        )


def _senders(step: Step, number: DeliveryId) -> list[Replay]:
    """Return the automatic replay that has sent a letter, if one has."""
    if step.call.method != "advance_replays":
        return []
    replays = [one.replay for one in step.call.answer.steps if number in one.sent]
    return [one for one in replays if one.is_automatic]
