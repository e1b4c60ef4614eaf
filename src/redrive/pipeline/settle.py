"""Settle: from outcomes to decisions, and from decisions to the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol, assert_never

import msgspec

from redrive.clock import Rng
from redrive.model.delivery import Attempt, Lease, Leased
from redrive.model.gate import BreakerState, Closed
from redrive.model.outcome import Applied, Fault, Faulted, Nature, Outcome, Succeeded
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.observer import (
    AlreadyApplied,
    BreakerChanged,
    DeadLettered,
    DestinationPaused,
    Observer,
    Settlements,
    SettlementsRefused,
)
from redrive.policies.capture import bounded_message
from redrive.policies.fingerprint import grouped
from redrive.policies.redact import Redaction
from redrive.policies.retry import bounded_retry_after
from redrive.policies.settlement import excused, settle, was_carried_out
from redrive.policies.terms import Terms
from redrive.store import DeliveryQueue, Gates, Inspection, Left, Report, Settled

__all__ = ["Decision", "Settler", "Tally"]

_DELIVERED = Delivered()
_INTERRUPTED = "interrupted"


class Tally(msgspec.Struct):
    """What a worker has settled since it started; `failed` also counts what it gave up untried."""

    delivered: int = 0
    retried: int = 0
    snoozed: int = 0
    failed: int = 0
    refused: int = 0

    @property
    def attempts(self) -> int:
        """How many were settled in all."""
        return self.delivered + self.retried + self.snoozed + self.failed

    def count(self, settlement: Settlement) -> None:
        """Count one that was accepted."""
        match settlement:
            case Delivered():
                self.delivered += 1
            case RetryAt():
                self.retried += 1
            case Snoozed():
                self.snoozed += 1
            case Failed():
                self.failed += 1
            case never:
                assert_never(never)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A settlement, the delivery it is about, and how many seconds the try took.

    `is_success` is whether the destination answered, `None` when the try does not tell;
    `slow_for` is a wait it asked of everybody, `pause` why it must be left alone. `is_settled` is
    whether the store has carried it out already, together with the handler's effect, and
    `is_repeat` whether that effect was there before. `if_down` is what is decided instead if the
    failure turns out to be the destination's.
    """

    leased: Leased
    settled: Settled
    took: float
    is_success: bool | None = None
    slow_for: timedelta | None = None
    pause: str = ""
    is_settled: bool = False
    is_repeat: bool = False
    if_down: Settled | None = None
    code: str = ""

    @property
    def error(self) -> str:
        """How the try failed, in one line."""
        fault = self.settled.attempt and self.settled.attempt.fault
        return bounded_message(f"{fault.error_class}: {fault.message}") if fault else ""

    @property
    def exhausts(self) -> int:
        """Which try it was, if it failed and was the last."""
        one = self.settled.settlement
        is_last = isinstance(one, Failed) and one.reason is FailureReason.EXHAUSTED
        return self.leased.attempt if is_last else 0

    def about(self, settled: Settled) -> Decision:
        """Return the decision about a delivery that was made only when it was carried out."""
        leased = msgspec.structs.replace(self.leased, lease=settled.lease)
        return msgspec.structs.replace(self, leased=leased, settled=settled)

    def after(self, state: BreakerState | None) -> Decision:
        """Return the decision, by how the breaker is after it was told of the failure.

        A call that began before the breaker opened, or has opened it, says as little of its
        delivery as a probe does.
        """
        if self.if_down is None or state is None:
            return self
        is_up = isinstance(state, Closed) and state.generation == self.leased.breaker_generation
        return self if is_up else msgspec.structs.replace(self, settled=self.if_down, if_down=None)


class _Queue(DeliveryQueue, Gates, Inspection, Protocol):
    """What settling needs of a store."""


class Settler(msgspec.Struct, frozen=True, kw_only=True):
    """Settles in the name of one worker."""

    store: _Queue
    worker: str
    rng: Rng
    observer: Observer
    is_reported: Callable[[str], bool]
    """Tells whether a destination's health is counted: now, because that may change."""
    redaction: Redaction = Redaction()

    def decide_with_followers(
        self, leased: Leased, outcome: Outcome, terms: Terms, *, waited: float, took: float
    ) -> list[Decision]:
        """Decide about one delivery, and those that were settled with it; each took its share."""
        followers = outcome.followers if isinstance(outcome, Applied) else ()
        share = took / (1 + len(followers))
        return [
            self.decide(leased, outcome, terms, waited=waited, took=share),
            *(self.decide(one, Applied(), terms, waited=waited, took=share) for one in followers),
        ]

    def decide(
        self, leased: Leased, outcome: Outcome, terms: Terms, *, waited: float, took: float
    ) -> Decision:
        """Decide about one delivery `waited` seconds after its claim, of which it ran `took`.

        Times are counted from the claim's instant, so they are of the store's clock.
        """
        if isinstance(outcome, Succeeded):
            settled = Settled(lease=leased.lease, settlement=_DELIVERED, exchange=outcome.exchange)
            is_success = True if outcome.is_sent else None
            return Decision(leased, settled, took, is_success, code=outcome.code)
        if isinstance(outcome, Applied):
            settled = Settled(lease=leased.lease, settlement=_DELIVERED)
            is_repeat, is_success = outcome.is_repeat, None if outcome.is_repeat else True
            return Decision(leased, settled, took, is_success, is_settled=True, is_repeat=is_repeat)
        now = leased.claimed_at + timedelta(seconds=waited)
        settlement = settle(outcome, leased, terms, now=now, rng=self.rng)
        settled = self._settled(leased, outcome, settlement, now=now, took=took)
        if not isinstance(outcome, Faulted):
            return Decision(leased, settled, took)
        if_down: Settled | None = None
        match outcome.nature:
            case Nature.TRANSIENT:
                is_success, slow_for = False, _asked_of_all(outcome)
                # A destination that wants a single try gets no second one because the first failed.
                is_only = terms.retry_for(leased.event.type).max_attempts == 1
                may_excuse = not (leased.is_probe or is_only)
                if may_excuse and self.is_reported(leased.destination):
                    instead = excused(outcome, leased, terms, now=now, rng=self.rng)
                    if_down = self._settled(leased, outcome, instead, now=now, took=took)
            case Nature.THROTTLED if isinstance(settlement, Snoozed):
                is_success, slow_for = None, settlement.until - now
            case _:
                is_success, slow_for = None, None
        pause = self.redaction.text(outcome.pause)
        return Decision(leased, settled, took, is_success, slow_for, pause, if_down=if_down)

    def _settled(
        self,
        leased: Leased,
        outcome: Outcome,
        settlement: Settlement,
        *,
        now: datetime,
        took: float,
    ) -> Settled:
        settlement = self._redacted(settlement, leased)
        attempt = self._record(leased, settlement, now=now, took=timedelta(seconds=took))
        if isinstance(settlement, Failed):
            fault = grouped(settlement.fault, leased.destination)
            settlement = Failed(reason=settlement.reason, fault=fault)
        return Settled(
            lease=leased.lease,
            settlement=settlement,
            attempt=attempt,
            exchange=outcome.exchange if isinstance(outcome, Faulted) else None,
            addressees=outcome.addressees if isinstance(outcome, Faulted) else None,
        )

    def _redacted(self, settlement: Settlement, leased: Leased) -> Settlement:
        """Return it without the secrets that an error repeats: it is read in logs and in SQL."""
        if isinstance(settlement, Delivered) or settlement.fault is None:
            return settlement
        secrets = self.redaction.values_of(leased.event)
        if secrets:
            fault = self.redaction.fault(settlement.fault, secrets)
        else:
            fault = _shown(self.redaction, settlement.fault)
        return msgspec.structs.replace(settlement, fault=fault)

    def _record(
        self, leased: Leased, settlement: Settlement, *, now: datetime, took: timedelta
    ) -> Attempt | None:
        match settlement:
            case Delivered():
                return None
            case RetryAt(fault=fault, spends=spends):
                result = "retry" if spends else "probe" if leased.is_probe else "down"
            case Failed(fault=fault):
                result = "failed"
            case Snoozed(fault=fault):
                result = "snoozed"
            case never:
                assert_never(never)
        return self._attempt(leased, result, fault, now=now, took=took)

    def leave(self, leased: Leased, *, waited: float, took: float) -> Left:
        """Return what the story says of a try that goes on after the worker has left."""
        now = leased.claimed_at + timedelta(seconds=waited)
        attempt = self._attempt(leased, _INTERRUPTED, None, now=now, took=timedelta(seconds=took))
        return Left(leased.lease, attempt)

    def _attempt(
        self,
        leased: Leased,
        result: str,
        fault: Fault | None,
        *,
        now: datetime,
        took: timedelta,
    ) -> Attempt:
        return Attempt(
            number=leased.attempt,
            started_at=now - took,
            ended_at=now,
            worker=self.worker,
            result=result,
            fault=fault,
        )

    async def settle(
        self, decisions: Sequence[Decision], *, unsure: Collection[Lease] = ()
    ) -> Sequence[Decision]:
        """Carry out the decisions; returns those that were accepted.

        Those about `unsure` leases were sent before, and no answer came: what the store has carried
        out is not sent again, where it would be refused as late, and nobody would hear of it.
        """
        done = {
            one.settled.lease
            for one in decisions
            if one.settled.lease in unsure and await self._was_carried_out(one)
        }
        open_ones = [
            one.settled for one in decisions if not one.is_settled and one.settled.lease not in done
        ]
        refused = frozenset(await self.store.settle(open_ones) if open_ones else ())
        if refused:
            late = tuple(one.settled.lease for one in decisions if one.settled.lease in refused)
            self.observer.notice(SettlementsRefused(worker=self.worker, leases=late))
            decisions = [one for one in decisions if one.settled.lease not in refused]
        self.tell(decisions)
        return decisions

    def tell(self, decisions: Sequence[Decision]) -> None:
        """Tell what was carried out."""
        self.observer.notice(
            Settlements(
                worker=self.worker,
                settled=tuple((one.leased, one.settled.settlement) for one in decisions),
                took=tuple(one.took for one in decisions),
                codes=tuple(one.code for one in decisions),
            )
        )
        for one in decisions:
            if isinstance(one.settled.settlement, Failed):
                self.observer.notice(_dead_letter(one.leased, one.settled.settlement))
            elif one.is_repeat:
                self.observer.notice(AlreadyApplied(worker=self.worker, leased=one.leased))

    async def _was_carried_out(self, decision: Decision) -> bool:
        delivery = await self.store.find_delivery(decision.settled.lease.delivery_id)
        return delivery is not None and was_carried_out(decision.settled, delivery)

    def _reports(self, decisions: Sequence[Decision]) -> list[Report]:
        """Return what the attempts say of their destinations; alike ones in a row are one."""
        reports: list[Report] = []
        for one in decisions:
            tells_more = one.slow_for is not None or one.pause
            if not tells_more and not self.is_reported(one.leased.destination):
                continue
            report = Report(
                destination=one.leased.destination,
                generation=one.leased.breaker_generation,
                is_success=one.is_success,
                slow_for=one.slow_for,
                pause=bounded_message(one.pause),
                error=one.error if one.is_success is False else "",
                exhausts=one.exhausts if one.is_success is False else 0,
            )
            if reports and msgspec.structs.replace(reports[-1], times=1) == report:
                report = msgspec.structs.replace(report, times=reports.pop().times + 1)
            reports.append(report)
        return reports

    async def report(
        self, decisions: Sequence[Decision], *, more: Sequence[Report] = ()
    ) -> Sequence[Decision]:
        """Tell the gates what the attempts say of their destinations, once for each decision.

        Returns the decisions as they are in the light of the answer.
        """
        reports = [*self._reports(decisions), *more]
        if not reports:
            return decisions
        chance = self.rng.uniform(0.0, 1.0)
        reported = await self.store.report(reports, chance=chance)
        for change in reported.changes:
            self.observer.notice(BreakerChanged(change=change))
        for destination in reported.paused:
            why = reported.reasons[destination]
            self.observer.notice(DestinationPaused(destination=destination, why=why))
        return [one.after(reported.breakers.get(one.leased.destination)) for one in decisions]


def _asked_of_all(outcome: Faulted) -> timedelta | None:
    if outcome.retry_after is None or not outcome.is_for_all:
        return None
    return bounded_retry_after(outcome.retry_after)


@lru_cache(maxsize=100)
def _shown(redaction: Redaction, fault: Fault) -> Fault:
    """Return a fault as it may be shown: those of a batch that has failed as one are alike."""
    return redaction.fault(fault)


def _dead_letter(leased: Leased, failed: Failed) -> DeadLettered:
    return DeadLettered(
        delivery_id=leased.lease.delivery_id,
        event_id=leased.event.id,
        event_type=leased.event.type,
        destination=leased.destination,
        tenant=leased.event.tenant,
        reason=failed.reason,
        fault=failed.fault,
        attempts=leased.attempt,
        key=leased.event.key,
        source=leased.event.source,
        cycles=leased.cycles,
    )
