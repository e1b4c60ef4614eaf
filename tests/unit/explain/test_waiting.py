"""Waiting: every reason there is, from a delivery, a gate and the workers."""

from datetime import timedelta

import msgspec
import pytest

from redrive.model.delivery import Attempt, Delivery, DeliveryId, Kind, Status
from redrive.model.event import EventId
from redrive.model.gate import Gate, GateFigures, Hold, Pause
from redrive.model.limits import Limits
from redrive.operations.explain.waiting import WaitReason, why_waiting
from redrive.store import Serving, WorkerFigures
from redrive.testing import FakeClock

NOW = FakeClock().now()
LATER = NOW + timedelta(minutes=5)
OPEN_GATE = GateFigures(destination="billing", at=NOW, gate=Gate(), limits=Limits())
WORKER = WorkerFigures(
    id="w1",
    seen_at=NOW,
    in_flight=0,
    serving=Serving(destinations=("billing",), generations=("default",)),
)
DELIVERY = Delivery(
    id=DeliveryId(7),
    event_id=EventId("e"),
    event_type="order.paid",
    destination="billing",
    status=Status.PENDING,
    due=NOW,
    enqueued_at=NOW,
    generation="default",
    attempts=0,
)


def reasons(
    delivery: Delivery = DELIVERY,
    gate: GateFigures = OPEN_GATE,
    workers: tuple[WorkerFigures, ...] = (WORKER,),
) -> list[WaitReason]:
    return [one.reason for one in why_waiting(delivery, gate, workers)]


def a_delivery(**fields: object) -> Delivery:
    return msgspec.structs.replace(DELIVERY, **fields)


def held(*holds: Hold, **state: object) -> GateFigures:
    return msgspec.structs.replace(
        OPEN_GATE,
        hold=holds[0],
        holds=holds,
        until=LATER,
        gate=Gate(**state),  # type: ignore[arg-type]
    )


def tried(result: str) -> Attempt:
    return Attempt(number=1, started_at=NOW, ended_at=NOW, worker="w1", result=result)


def test_what_could_run_waits_for_its_turn() -> None:
    assert reasons() == [WaitReason.TURN]


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.PENDING])
def test_what_is_not_pending_waits_for_nothing(status: Status) -> None:
    assert reasons(a_delivery(status=status)) == []


@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        (a_delivery(due=LATER), WaitReason.DUE),
        (
            a_delivery(due=LATER, kind=Kind.RETRY, attempts=2, log=(tried("retry"),)),
            WaitReason.BACKOFF,
        ),
        (a_delivery(due=LATER, snoozes=1, log=(tried("snoozed"),)), WaitReason.SNOOZE),
        (
            a_delivery(due=LATER, kind=Kind.RETRY, log=(tried("retry"), tried("snoozed"))),
            WaitReason.SNOOZE,
        ),
        (a_delivery(due=LATER, crashes=1), WaitReason.RECOVERY),
    ],
)
def test_what_is_not_due_says_what_for(delivery: Delivery, reason: WaitReason) -> None:
    [waiting] = why_waiting(delivery, OPEN_GATE, [WORKER])

    assert (waiting.reason, waiting.until) == (reason, LATER)


def test_order_comes_before_everything_else() -> None:
    behind = a_delivery(due=LATER, behind=DeliveryId(3))
    paused = held(Hold.PAUSED, pause=Pause(by="ada", why="", at=NOW))

    [waiting] = why_waiting(behind, paused, [])

    assert (waiting.reason, waiting.behind) == (WaitReason.ORDER, 3)


def test_a_delivery_may_wait_for_several_things() -> None:
    gate = held(Hold.PAUSED, pause=Pause(by="ada", why="they migrate", at=NOW))
    old = msgspec.structs.replace(WORKER, seen_at=NOW - timedelta(minutes=2))

    assert reasons(a_delivery(due=LATER), gate, (old,)) == [
        WaitReason.DUE,
        WaitReason.PAUSE,
        WaitReason.WORKER,
    ]


def test_a_passed_deadline_is_named() -> None:
    assert reasons(a_delivery(deadline=NOW))[0] is WaitReason.DEADLINE


@pytest.mark.parametrize(
    ("hold", "kind", "expected"),
    [
        (Hold.BLOCKED, Kind.FIRST, WaitReason.BLOCKED),
        (Hold.BREAKER_OPEN, Kind.REPLAY, WaitReason.BREAKER),
        (Hold.SLOWED, Kind.RETRY, WaitReason.SLOWED),
        (Hold.PROBING, Kind.FIRST, WaitReason.PROBING),
        (Hold.CONCURRENCY, Kind.FIRST, WaitReason.CONCURRENCY),
        (Hold.RATE, Kind.FIRST, WaitReason.RATE),
        (Hold.RATE, Kind.RETRY, WaitReason.TURN),
        (Hold.RETRY_RATE, Kind.RETRY, WaitReason.RETRY_RATE),
        (Hold.RETRY_RATE, Kind.FIRST, WaitReason.TURN),
        (Hold.RETRY_BUDGET, Kind.RETRY, WaitReason.RETRY_BUDGET),
        (Hold.RETRY_BUDGET, Kind.REPLAY, WaitReason.TURN),
        (Hold.REPLAY_RATE, Kind.REPLAY, WaitReason.REPLAY_RATE),
        (Hold.REPLAY_RATE, Kind.FIRST, WaitReason.TURN),
        (Hold.RAMP, Kind.RETRY, WaitReason.RAMP),
        (Hold.RAMP, Kind.FIRST, WaitReason.TURN),
    ],
)
def test_a_hold_concerns_the_kinds_that_it_stops(
    hold: Hold, kind: Kind, expected: WaitReason
) -> None:
    assert reasons(a_delivery(kind=kind), held(hold)) == [expected]


def test_what_was_held_pays_and_waits_as_retries_do() -> None:
    gate = held(Hold.RAMP, Hold.RATE, Hold.RETRY_RATE, reopened_at=NOW)

    assert reasons(a_delivery(), gate) == [WaitReason.RAMP, WaitReason.RETRY_RATE]


def test_every_hold_has_a_reason() -> None:
    """A new way to hold must be answerable too."""
    shut = Pause(by="ada", why="", at=NOW)
    for hold in Hold:
        gate = held(hold, pause=shut) if hold is Hold.PAUSED else held(hold)
        found = {one for kind in Kind for one in reasons(a_delivery(kind=kind), gate)}
        assert found - {WaitReason.TURN}, hold


def test_a_worker_that_has_not_said_what_it_serves_may_serve_anything() -> None:
    silent = msgspec.structs.replace(WORKER, serving=None)

    assert reasons(a_delivery(generation="green"), workers=(WORKER, silent)) == [WaitReason.TURN]


def test_a_foreign_generation_or_destination_is_named() -> None:
    elsewhere = msgspec.structs.replace(
        WORKER, serving=Serving(destinations=("other",), generations=("green",))
    )

    assert reasons(a_delivery(generation="green")) == [WaitReason.GENERATION]
    assert reasons(workers=(elsewhere,)) == [WaitReason.DESTINATION]
    assert reasons(a_delivery(generation="green"), workers=(WORKER, elsewhere)) == [
        WaitReason.GENERATION
    ]


def test_a_suspect_waits_until_a_worker_has_nothing_else() -> None:
    assert reasons(a_delivery(crashes=2)) == [WaitReason.SUSPECT]
