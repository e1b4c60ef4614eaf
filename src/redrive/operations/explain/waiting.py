"""Waiting: why a pending delivery is not under way, in words for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from redrive.model.delivery import SUSPECT_AFTER, Delivery, DeliveryId, Kind, Status
from redrive.model.gate import GateFigures, Hold
from redrive.policies.attention import SILENT_AFTER
from redrive.store import TenantFigures, WorkerFigures

__all__ = ["WaitReason", "Waiting", "why_waiting"]


class WaitReason(StrEnum):
    """What a pending delivery waits for."""

    ORDER = "order"
    DUE = "due"
    BACKOFF = "backoff"
    SNOOZE = "snooze"
    RECOVERY = "recovery"
    DEADLINE = "deadline"
    PAUSE = "pause"
    BLOCKED = "blocked"
    BREAKER = "breaker"
    PROBING = "probing"
    SLOWED = "slowed"
    RAMP = "ramp"
    RATE = "rate"
    RETRY_RATE = "retry_rate"
    RETRY_BUDGET = "retry_budget"
    REPLAY_RATE = "replay_rate"
    SHARED_RATE = "shared_rate"
    TENANT_PAUSE = "tenant_pause"
    TENANT_RATE = "tenant_rate"
    CONCURRENCY = "concurrency"
    WORKER = "worker"
    DESTINATION = "destination"
    GENERATION = "generation"
    SUSPECT = "suspect"
    TURN = "turn"


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a delivery waits for: in words, and until when if that is known."""

    reason: WaitReason
    what: str
    until: datetime | None = None
    behind: DeliveryId | None = None


_SHUT = {
    Hold.BLOCKED: (WaitReason.BLOCKED, "A dead letter stops the whole destination, in order."),
    Hold.BREAKER_OPEN: (WaitReason.BREAKER, "The breaker of the destination is open."),
    Hold.SLOWED: (WaitReason.SLOWED, "The destination asked for less."),
}
_LIMITS = {
    Hold.PROBING: (WaitReason.PROBING, "The breaker is half-open: only probes pass."),
    Hold.CONCURRENCY: (WaitReason.CONCURRENCY, "As many run as the destination may have at once."),
    Hold.RAMP: (WaitReason.RAMP, "The destination has just come back, so what waited goes slowly."),
    Hold.RATE: (WaitReason.RATE, "The rate of first attempts is used up."),
    Hold.RETRY_RATE: (WaitReason.RETRY_RATE, "The rate of retries is used up."),
    Hold.RETRY_BUDGET: (WaitReason.RETRY_BUDGET, "The budget of retries is used up."),
    Hold.REPLAY_RATE: (WaitReason.REPLAY_RATE, "The rate of replays is used up."),
    Hold.SHARED_RATE: (WaitReason.SHARED_RATE, "The rate it shares with others is used up."),
}


def why_waiting(
    delivery: Delivery,
    gate: GateFigures,
    workers: Sequence[WorkerFigures],
    tenant: TenantFigures | None = None,
) -> tuple[Waiting, ...]:
    """Return everything a pending delivery waits for, what comes first first; never nothing.

    `gate` is that of its destination, `tenant` its own there. A delivery in another status waits
    for nothing.
    """
    if delivery.status is not Status.PENDING:
        return ()
    if delivery.behind is not None:
        what = f"Delivery {delivery.behind} of the same key goes first."
        return (Waiting(reason=WaitReason.ORDER, what=what, behind=delivery.behind),)
    reasons = (
        *_time(delivery, now=gate.at),
        *_gate(delivery, gate),
        *_tenant(tenant),
        *_workers(delivery, workers, now=gate.at),
    )
    if reasons:
        return reasons
    return (Waiting(reason=WaitReason.TURN, what="It is due: the next free worker takes it."),)


def _time(delivery: Delivery, *, now: datetime) -> Iterator[Waiting]:
    if delivery.deadline is not None and delivery.deadline <= now:
        what = "Its deadline has passed, so it is about to fail."
        yield Waiting(reason=WaitReason.DEADLINE, what=what)
    if delivery.due <= now:
        return
    last = delivery.log[-1].result if delivery.log else ""
    if last == "snoozed":
        reason, what = WaitReason.SNOOZE, "It was put off."
    elif delivery.kind is Kind.RETRY and delivery.crashes == 0:
        reason, what = WaitReason.BACKOFF, f"Try {delivery.attempts} failed; the next one waits."
    elif delivery.crashes:
        reason, what = WaitReason.RECOVERY, "Its worker crashed, so it waits before it runs again."
    else:
        reason, what = WaitReason.DUE, "Its due time has not come."
    yield Waiting(reason=reason, what=what, until=delivery.due)


def _gate(delivery: Delivery, gate: GateFigures) -> Iterator[Waiting]:
    if gate.gate.pause is not None:
        pause = gate.gate.pause
        why = f": {pause.why}" if pause.why else ""
        yield Waiting(reason=WaitReason.PAUSE, what=f"Paused by {pause.by}{why}.")
    for hold in gate.holds:
        if hold in _SHUT:
            reason, what = _SHUT[hold]
            yield Waiting(reason=reason, what=what, until=gate.until)
        elif hold in _LIMITS and _concerns(hold, delivery, gate):
            reason, what = _LIMITS[hold]
            until = None if hold in (Hold.PROBING, Hold.CONCURRENCY) else gate.until
            yield Waiting(reason=reason, what=what, until=until)


def _tenant(tenant: TenantFigures | None) -> Iterator[Waiting]:
    if tenant is None:
        return
    who = "Events without a tenant" if tenant.tenant is None else f"The tenant {tenant.tenant}"
    if tenant.pause is not None:
        verb = "are" if tenant.tenant is None else "is"
        where = " at all destinations" if tenant.is_paused_everywhere else ""
        why = f": {tenant.pause.why}" if tenant.pause.why else ""
        what = f"{who} {verb} paused{where} by {tenant.pause.by}{why}."
        yield Waiting(reason=WaitReason.TENANT_PAUSE, what=what)
    elif tenant.hold is Hold.RATE:
        verb = "have" if tenant.tenant is None else "has"
        what = f"{who} {verb} used up the rate that a tenant has."
        yield Waiting(reason=WaitReason.TENANT_RATE, what=what, until=tenant.until)


def _concerns(hold: Hold, delivery: Delivery, gate: GateFigures) -> bool:
    reopened_at = gate.gate.reopened_at
    was_held = reopened_at is not None and delivery.due <= reopened_at
    match hold:
        case Hold.RATE:
            return delivery.kind is Kind.FIRST and not was_held
        case Hold.RETRY_RATE:
            return delivery.kind is Kind.RETRY or (delivery.kind is Kind.FIRST and was_held)
        case Hold.RETRY_BUDGET:
            return delivery.kind is Kind.RETRY
        case Hold.REPLAY_RATE:
            return delivery.kind is Kind.REPLAY
        case Hold.RAMP:
            return was_held or delivery.kind is Kind.RETRY
        case _:
            return True


def _workers(
    delivery: Delivery, workers: Sequence[WorkerFigures], *, now: datetime
) -> Iterator[Waiting]:
    alive = [one for one in workers if now - one.seen_at < SILENT_AFTER]
    told = [one.serving for one in alive if one.serving is not None]
    serving = [one for one in told if delivery.destination in one.destinations]
    knows_all = len(told) == len(alive)
    if not alive:
        yield Waiting(reason=WaitReason.WORKER, what="No worker is alive.")
    elif knows_all and not serving:
        what = f"No live worker declares the destination {delivery.destination}."
        yield Waiting(reason=WaitReason.DESTINATION, what=what)
    elif knows_all and not any(delivery.generation in one.generations for one in serving):
        what = f"No live worker claims the generation {delivery.generation}."
        yield Waiting(reason=WaitReason.GENERATION, what=what)
    if delivery.crashes >= SUSPECT_AFTER:
        what = "It is suspected of crashing workers, and runs when one has nothing else under way."
        yield Waiting(reason=WaitReason.SUSPECT, what=what)
