"""Terms: what each option of a destination, and each field of its retry, does."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from redrive import Event, NewEvent, PayloadError, Query, Redrive, Retry, Snooze, Transient
from redrive.model.delivery import Delivery, Status
from redrive.observer import Claimed
from redrive.testing import Kit
from tests.app.recorder import Recorder

ONCE = Retry(max_attempts=1)


async def calls(retry: Retry) -> list[float]:
    """Return at which seconds a destination that is always down is called."""
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=retry)(print)
    async with Kit(app) as kit:
        start, times = kit.clock.now(), []
        billing = kit.script("billing", [Transient("busy")], repeats=True)
        await app.publish("order.paid")
        while (await kit.drain()).attempts:
            times.append((kit.clock.now() - start).total_seconds())
            if waiting := await pending(kit):
                kit.clock.advance(waiting[0].due - kit.clock.now())
        assert len(billing.attempts) == len(times)
        return times


async def pending(kit: Kit) -> list[Delivery]:
    page = await kit.operations.deliveries(Query(status=Status.PENDING))
    return list(page.deliveries)


async def test_name_is_what_a_destination_is_called() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app):
        assert (await app.publish("order.paid")).destinations == ("billing",)


async def test_without_a_name_the_function_gives_it() -> None:
    app = Redrive("memory://")

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None: ...

    async with Kit(app):
        assert (await app.publish("order.paid")).destinations == ("bill",)


async def test_batch_is_how_many_events_a_handler_takes() -> None:
    app, sizes = Redrive("memory://"), []

    @app.handler("order.*", batch=4)
    async def bill(events: list[Event[Any]]) -> None:
        sizes.append(len(events))

    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(10)])
        await kit.drain()

    assert sizes == [4, 4, 2]


async def test_retry_is_how_a_destination_is_tried_again() -> None:
    assert await calls(Retry(max_attempts=3, base="5s", jitter="none")) == [0, 5, 15]


async def test_retry_overrides_hold_for_the_types_that_fit() -> None:
    app = Redrive("memory://")
    app.handler(
        "order.*",
        name="billing",
        retry_overrides={"order.test*": ONCE},
        retry=Retry(base="1h", cap="1h"),
    )(print)
    async with Kit(app) as kit:
        kit.script("billing", [Transient("busy")], repeats=True)
        await app.publish("order.tested")
        await app.publish("order.paid")

        tally = await kit.drain()

        assert (tally.failed, tally.retried) == (1, 1)
        assert [one.event_type for one in kit.dead_letters()] == ["order.tested"]


async def test_timeout_ends_an_attempt() -> None:
    app, started = Redrive("memory://"), asyncio.Event()

    @app.handler("order.*", timeout="4s", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Kit(app) as kit:
        await app.publish("order.paid")
        draining = asyncio.ensure_future(kit.drain())
        await started.wait()
        kit.clock.advance("4s")
        await draining

        [dead] = kit.dead_letters()
        assert dead.fault is not None
        assert dead.fault.message == "No answer within 4s, so the attempt was ended."


async def test_concurrency_of_a_destination_is_its_own() -> None:
    app, recorder = Redrive("memory://"), Recorder()
    app.observe(recorder)
    app.handler("order.*", name="billing", concurrency=2)(print)
    async with Kit(app) as kit:
        kit.script("billing")
        await app.publish_many([NewEvent(type="order.paid") for _ in range(5)])
        await kit.drain()

    assert [len(one.deliveries) for one in recorder.of(Claimed)] == [2, 2, 1]


async def test_terminal_lists_what_is_never_retried() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", terminal=(LookupError,))(print)
    async with Kit(app) as kit:
        kit.script("billing", [KeyError("iban")])
        await app.publish("order.paid")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert dead.fault is not None
        assert dead.fault.rule == "destination says terminal: LookupError"


async def test_transient_lists_what_is_retried_all_the_same() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", transient=(PayloadError,))(print)
    async with Kit(app) as kit:
        kit.script("billing", [PayloadError("the schema is not deployed yet")])
        await app.publish("order.paid")

        assert (await kit.drain()).retried == 1


async def test_snooze_limit_bounds_how_often_a_delivery_is_put_off() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", snooze_limit=2)(print)
    async with Kit(app) as kit:
        billing = kit.script("billing", [Snooze("1m")], repeats=True)
        await app.publish("order.paid")
        await kit.drain(until="1h")

        [dead] = kit.dead_letters()
        assert len(billing.attempts) == 3
        assert dead.reason == "exhausted"
        assert dead.fault is not None
        assert "snooze_limit allows no more" in dead.fault.message


async def test_snooze_age_bounds_for_how_long_a_delivery_is_put_off() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", snooze_age="10m")(print)
    async with Kit(app) as kit:
        billing = kit.script("billing", [Snooze("4m")], repeats=True)
        await app.publish("order.paid")
        await kit.drain(until="1h")

        [dead] = kit.dead_letters()
        assert len(billing.attempts) == 4
        assert dead.fault is not None
        assert "older than 10m, the snooze_age" in dead.fault.message


async def test_order_keeps_the_events_of_a_key_apart() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", order="park", retry=Retry(base="1h", cap="1h"))(print)
    async with Kit(app) as kit:
        billing = kit.script("billing", [Transient("busy")])
        await app.publish("order.paid", 1, key="order-42")
        await app.publish("order.paid", 2, key="order-42")
        await kit.drain()

        assert [one.payload for one in billing.attempts] == [1]


async def test_max_attempts_counts_the_first_try() -> None:
    assert len(await calls(Retry(max_attempts=3, base="1s"))) == 3


async def test_base_is_the_first_wait() -> None:
    assert await calls(Retry(max_attempts=2, base="250ms", jitter="none")) == [0, 0.25]


async def test_factor_is_how_the_waits_grow() -> None:
    retry = Retry(max_attempts=4, base="1s", factor=3, jitter="none")

    assert await calls(retry) == [0, 1, 4, 13]


async def test_cap_is_the_longest_wait() -> None:
    retry = Retry(max_attempts=4, base="1s", factor=10, cap="20s", jitter="none")

    assert await calls(retry) == [0, 1, 11, 31]


async def test_jitter_spreads_the_waits() -> None:
    retry = Retry(max_attempts=4, base="1h", factor=1, cap="1h", jitter="equal")

    times = await calls(retry)

    waits = [later - earlier for earlier, later in pairwise(times)]
    assert all(1800 <= wait <= 3600 for wait in waits)
    assert len(set(waits)) == 3
