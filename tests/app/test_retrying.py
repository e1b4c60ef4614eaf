"""Retrying: when a delivery is tried again, when it is given up, and what is known of it then."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from redrive import Event, Proportional, Query, Redrive, Retry, Snooze, Terminal, Transient
from redrive.app.declaration import Ports
from redrive.model.delivery import Delivery, Status
from redrive.store import Blame
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, Kit
from redrive.testing.fakes import InlineExecutor

QUICK = Retry(max_attempts=5, base="100ms", factor=2, jitter="none")


class Unreachable:
    """A destination that is always down, and notes when it was called."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._start = kit.clock.now()
        self.calls: list[float] = []

    async def __call__(self, event: Event[Any]) -> None:
        self.calls.append((self._kit.clock.now() - self._start).total_seconds())
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens at port 443")


async def only_pending(kit: Kit) -> Delivery:
    page = await kit.operations.deliveries(Query(status=Status.PENDING))
    [delivery] = page.deliveries
    return (await kit.operations.show(delivery.id)).delivery


async def calls_of(store: str, retry: Retry, *, overrides: dict[str, Retry] | None = None) -> Any:  # noqa: ANN401 - numbers
    app = Redrive("memory://")
    kit = Kit(app, store=store)
    unreachable = Unreachable(kit)
    app.handler("order.*", name="billing", retry=retry, retry_overrides=overrides or {})(
        unreachable
    )
    async with kit:
        await app.publish("order.paid")
        await kit.drain(until="30d")
    return unreachable.calls


async def test_the_waits_follow_the_curve_to_the_millisecond(store: str) -> None:
    assert await calls_of(store, QUICK) == [0, 0.1, 0.3, 0.7, 1.5]


async def test_no_wait_is_longer_than_the_cap(store: str) -> None:
    retry = Retry(max_attempts=5, base="1s", factor=10, cap="1m", jitter="none")

    assert await calls_of(store, retry) == [0, 1, 11, 71, 131]


async def test_jitter_spreads_the_waits_within_its_bounds(store: str) -> None:
    retry = Retry(max_attempts=20, base="10s", factor=1, jitter=Proportional(0.1))

    calls = await calls_of(store, retry)

    waits = [after - before for before, after in pairwise(calls)]
    assert all(9 <= wait <= 11 for wait in waits)
    assert len({round(wait, 3) for wait in waits}) > 10


async def test_a_single_attempt_is_never_retried(store: str) -> None:
    assert await calls_of(store, Retry(max_attempts=1)) == [0]


async def test_an_event_type_may_have_its_own_retry(store: str) -> None:
    overrides = {"order.p*": Retry(max_attempts=2, base="5m", cap="5m", jitter="none")}

    assert await calls_of(store, QUICK, overrides=overrides) == [0, 300]


async def test_a_retry_waits_in_the_store(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=QUICK)(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [Transient("busy")])
        await app.publish("order.paid")
        await kit.drain()

        waiting = await only_pending(kit)

        assert (waiting.status, waiting.attempts, waiting.kind) == ("pending", 1, "retry")
        assert waiting.due - kit.clock.now() == timedelta(milliseconds=100)
        assert [(one.number, one.result) for one in waiting.log] == [(1, "retry")]


async def test_a_delivery_that_recovers_is_delivered_once(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=QUICK)(print)
    async with Kit(app, store=store) as kit:
        billing = kit.script("billing", [Transient("busy"), TimeoutError("no answer")])
        await app.publish("order.paid")

        tally = await kit.drain(until="1h")

        status = await kit.operations.status()
        assert (tally.retried, tally.delivered) == (2, 1)
        assert len(billing.received) == 1
        assert [(one.delivered, one.failed) for one in status.destinations] == [(1, 0)]


async def test_an_exhausted_delivery_tells_its_whole_story(store: str) -> None:
    app = Redrive("memory://")
    kit = Kit(app, store=store)
    app.handler("order.*", name="billing", retry=QUICK)(Unreachable(kit))
    async with kit:
        start = kit.clock.now()
        receipt = await app.publish(
            "order.paid", {"order": 42}, key="order-42", tenant="acme", generation="default"
        )
        await kit.drain(until="1h")

        [listed] = kit.dead_letters()
        story = await kit.operations.show(listed.id)

        dead, fault = story.delivery, story.delivery.fault
        end = start + timedelta(milliseconds=1500)
        assert (dead.status, dead.reason, dead.attempts) == ("failed", "exhausted", 5)
        assert fault is not None
        assert fault.error_class == "ConnectionRefusedError"
        assert fault.message == "[Errno 111] nobody listens at port 443"
        assert (fault.code, fault.rule) == ("ECONNREFUSED", "network: ConnectionRefusedError")
        assert 'raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody' in fault.stack
        assert (dead.enqueued_at, dead.settled_at) == (start, end)
        assert (dead.first_failed_at, dead.last_failed_at) == (start, end)
        assert (dead.event_id, dead.event_type) == (receipt.event_id, "order.paid")
        assert (dead.destination, dead.tenant, dead.key) == ("billing", "acme", "order-42")
        assert dead.generation == "default"
        assert story.payload == {"order": 42}
        assert [one.number for one in dead.log] == [1, 2, 3, 4, 5]
        assert [one.result for one in dead.log] == ["retry"] * 4 + ["failed"]
        assert all(one.worker and one.fault for one in dead.log)


@pytest.mark.parametrize(
    ("step", "reason", "attempts"),
    [
        (Terminal("no such customer"), "terminal", 1),
        (Transient("busy"), "exhausted", 1),
        (Snooze("2h"), "expired", 1),
    ],
    ids=["terminal", "exhausted", "snoozed past its deadline"],
)
async def test_no_dead_letter_is_without_a_reason(
    store: str, step: Exception | Snooze, reason: str, attempts: int
) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=Retry(max_attempts=1))(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [step])
        await app.publish("order.paid", deadline="1h")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert (dead.reason, dead.attempts) == (reason, attempts)
        assert dead.fault is not None
        assert dead.fault.error_class
        assert dead.fault.message
        assert dead.fault.rule
        assert dead.first_failed_at == dead.last_failed_at == dead.settled_at == kit.clock.now()


async def test_past_its_deadline_a_delivery_fails_without_being_tried(store: str) -> None:
    app, told = Redrive("memory://"), []
    app.handler("order.*", name="billing")(print)
    app.on_failed(lambda letter: told.append(letter.reason))
    async with Kit(app, store=store) as kit:
        billing = kit.script("billing")
        await app.publish("order.paid", deadline="1h")

        kit.clock.advance("1h")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert billing.attempts == []
        assert (dead.reason, dead.attempts) == ("expired", 0)
        assert dead.fault is not None
        assert "deadline" in dead.fault.message
        assert told == ["expired"]


async def test_a_worker_that_stops_still_tells_of_what_it_has_expired() -> None:
    """The store has failed it by then: dropped now, no hook would ever hear of it."""

    class SlowStore(MemoryStore):
        async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
            expired = await super().expire(blame=blame, limit=limit)
            for _ in range(100):
                await clock.sleep(0)
            return expired

    app, told, clock = Redrive("memory://"), [], FakeClock()
    app.handler("order.*", name="billing")(print)
    app.on_failed(lambda letter: told.append(letter.reason))
    store = SlowStore(clock)
    with app.rewired(Ports(clock=clock, executor=InlineExecutor()), lambda: store):
        await app.publish("order.paid", deadline="1h")
        clock.advance("1h")

        await app.drain()

    assert told == ["expired"]


async def test_just_before_its_deadline_a_delivery_is_tried(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing")
        await app.publish("order.paid", deadline="1h")

        kit.clock.advance(timedelta(hours=1) - timedelta(microseconds=1))

        assert (await kit.drain()).delivered == 1


async def test_a_retry_that_would_come_after_the_deadline_is_given_up_at_once(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=Retry(base="10m", cap="1h", jitter="none"))(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [ConnectionError("refused")])
        await app.publish("order.paid", deadline="5m")

        await kit.drain()

        [dead] = kit.dead_letters()
        assert (dead.reason, dead.attempts) == ("expired", 1)
        assert dead.fault is not None
        assert dead.fault.message == "refused"


async def test_a_delayed_event_is_not_delivered_before_its_time(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing")
        at_noon: datetime = kit.clock.now() + timedelta(hours=3, milliseconds=1)
        await app.publish("order.paid", due=at_noon)

        kit.clock.advance("3h")
        early = await kit.drain()
        kit.clock.advance("1ms")
        in_time = await kit.drain()

        assert (early.attempts, in_time.delivered) == (0, 1)


async def test_a_failing_destination_does_not_delay_another(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=QUICK)(print)
    app.handler("order.*", name="mailing")(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [ConnectionError("refused")], repeats=True)
        mailing = kit.script("mailing")
        await app.publish("order.paid")

        tally = await kit.drain()

        assert (tally.retried, tally.delivered) == (1, 1)
        assert len(mailing.received) == 1
