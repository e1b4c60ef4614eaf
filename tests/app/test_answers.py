"""Answers: what becomes of a delivery by what its handler says, or when it says nothing."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive import Cancel, Event, Query, Redrive, Retry, Snooze, Terminal, Transient
from redrive.app.declaration import Ports
from redrive.executor import Executor, ThreadExecutor
from redrive.model.delivery import Delivery, Status
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, Kit
from redrive.testing.fakes import InlineExecutor

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
STEADY = Retry(max_attempts=3, base="10s", cap="10s", jitter="none")


async def pending(kit: Kit) -> list[Delivery]:
    page = await kit.operations.deliveries(Query(status=Status.PENDING))
    return sorted(page.deliveries, key=lambda one: one.id)


async def reasons(kit: Kit) -> list[str]:
    return [one.fault.message for one in await pending(kit) if one.fault]


async def test_a_snooze_waits_as_long_as_it_says_and_spends_no_attempt(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=Retry(max_attempts=1))(print)
    async with Kit(app, store=store) as kit:
        billing = kit.script("billing", [Snooze("5m"), Snooze("250ms")])
        await app.publish("order.paid")
        start = kit.clock.now()
        await kit.drain()

        [waiting] = await pending(kit)
        tally = await kit.drain(until="1h")

        assert (waiting.attempts, waiting.snoozes) == (0, 1)
        assert waiting.due == start + timedelta(minutes=5)
        assert tally.delivered == 1
        assert len(billing.attempts) == 3
        assert kit.clock.now() == start + timedelta(minutes=5, milliseconds=250)


async def test_a_cancel_ends_the_delivery_with_its_reason(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [Cancel("the order was withdrawn")])
        await app.publish("order.paid")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert dead.reason == "cancelled"
        assert dead.fault is not None
        assert dead.fault.message == "the order was withdrawn"


async def test_terminal_fails_at_once(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [Terminal("no such customer")])
        await app.publish("order.paid")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert (dead.reason, dead.attempts) == ("terminal", 1)
        assert dead.fault is not None
        assert (dead.fault.message, dead.fault.rule) == ("no such customer", "raised Terminal")


async def test_transient_is_retried_and_may_ask_for_a_longer_wait(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=STEADY)(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [Transient("busy"), Transient("very busy", retry_after="1m")])
        await app.publish("order.paid")
        start = kit.clock.now()

        await kit.drain(until="1h")

        assert kit.clock.now() == start + timedelta(seconds=70)


async def test_an_attempt_that_takes_too_long_is_ended_and_retried(store: str) -> None:
    app, started = Redrive("memory://"), asyncio.Event()
    was_cancelled = False

    @app.handler("order.*", timeout="3s", retry=STEADY)
    async def bill(event: Event[Any]) -> None:
        nonlocal was_cancelled
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        draining = asyncio.ensure_future(kit.drain())
        await started.wait()

        kit.clock.advance("3s")
        tally = await draining

        [waiting] = await pending(kit)
        assert was_cancelled
        assert tally.retried == 1
        assert waiting.fault is not None
        assert waiting.fault.error_class == "TimeoutError"
        assert waiting.fault.message == "No answer within 3s, so the attempt was ended."


async def test_the_next_delivery_runs_well_after_one_was_ended(store: str) -> None:
    """The task is used again, so its cancellation must not stick to it."""
    app, started = Redrive("memory://", concurrency=1), asyncio.Event()

    @app.handler("order.*", timeout="3s", retry=Retry(max_attempts=1))
    async def bill(event: Event[Any]) -> None:
        if event.payload == "slow":
            started.set()
            await asyncio.Event().wait()
        async with asyncio.timeout(60):
            await asyncio.wait([asyncio.ensure_future(kit.clock.sleep(0))])

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", "slow")
        await app.publish("order.paid", "quick")
        draining = asyncio.ensure_future(kit.drain())
        await started.wait()

        kit.clock.advance("3s")
        tally = await draining

        assert (tally.failed, tally.delivered) == (1, 1)


class Quit(BaseException):
    """What some libraries raise past everybody who catches exceptions."""


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    "raised",
    [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Quit()],
    ids=lambda one: type(one).__name__,
)
async def test_whatever_a_handler_raises_is_a_failure_of_that_delivery(
    raised: BaseException, *, is_async: bool
) -> None:
    """A place of the worker would be lost with each, or the whole process."""
    app = Redrive("memory://", concurrency=1)

    def fail(event: Event[Any]) -> None:
        raise raised

    async def fail_later(event: Event[Any]) -> None:
        raise raised

    handler = fail_later if is_async else fail
    app.handler("order.*", name="billing", retry=Retry(max_attempts=1))(handler)

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")

        tally = await kit.drain()

        assert tally.failed == 2
        assert all(one.fault and one.fault.stack for one in kit.dead_letters())


async def test_a_handler_that_interrupts_is_retried_a_few_times_and_no_more(store: str) -> None:
    """Were it to end the worker, nothing would be counted, and each restart would do the same."""
    app = Redrive("memory://")

    @app.handler("order.*", retry=STEADY)
    async def bill(event: Event[Any]) -> None:
        raise KeyboardInterrupt

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")

        await kit.drain(until="1h")

        [dead] = kit.dead_letters()
        assert (dead.reason, dead.attempts) == ("exhausted", 3)
        assert dead.fault is not None
        assert dead.fault.error_class == "KeyboardInterrupt"


@pytest.mark.parametrize("answer", [Terminal, LookupError, Snooze, Cancel])
async def test_a_class_is_no_answer(answer: type) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=STEADY)(lambda event: answer)

    async with Kit(app) as kit:
        await app.publish("order.paid")

        assert (await kit.drain()).retried == 1
        assert await reasons(kit) == [f"the handler returned the class {answer.__name__}; call it"]


async def test_a_batch_handler_may_empty_its_list() -> None:
    app, seen = Redrive("memory://"), []

    @app.handler("order.*", batch=10)
    async def bill(events: list[Event[Any]]) -> None:
        while events:
            seen.append(events.pop().payload)

    async with Kit(app) as kit:
        for number in (1, 2, 3):
            await app.publish("order.paid", number)

        assert (await kit.drain()).delivered == 3
        assert seen == [3, 2, 1]


async def test_in_a_batch_a_class_is_no_answer_for_an_event() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", batch=2, retry=STEADY)(lambda events: [Terminal, None])

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")

        tally = await kit.drain()

        assert (tally.delivered, tally.retried) == (1, 1)
        assert await reasons(kit) == ["the handler returned the class Terminal; call it"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda events: (None for _ in events), "with a generator"),
        (lambda events: dict.fromkeys(range(len(events))), "with a dict"),
        (lambda events: Terminal, "with the class Terminal"),
        (lambda events: True, "with a bool"),
    ],
    ids=["generator", "dict", "class", "bool"],
)
async def test_an_answer_that_says_nothing_of_each_event_fails_the_batch(
    answer: Callable[[list[Event[Any]]], object], said: str
) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", batch=10, retry=STEADY)(answer)

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")

        assert (await kit.drain()).retried == 2
        for reason in await reasons(kit):
            assert reason.startswith(f"The batch handler answered {said}; answer None when all are")


@pytest.mark.parametrize("executor", [InlineExecutor(), ThreadExecutor()], ids=["inline", "thread"])
async def test_the_stack_of_a_sync_handler_begins_in_its_own_code(executor: Executor) -> None:
    app, clock = Redrive("memory://"), FakeClock()

    @app.handler("order.*", retry=Retry(max_attempts=1))
    def bill(event: Event[Any]) -> None:
        raise LookupError("no such customer")

    store = MemoryStore(clock)
    with app.rewired(Ports(clock=clock, executor=executor), lambda: store):
        await app.publish("order.paid")
        await app.drain()
        [dead] = (await app.operations.dead_letters()).deliveries

    assert dead.fault is not None
    assert "redrive" not in dead.fault.stack.replace(__file__, "")
    assert 'raise LookupError("no such customer")' in dead.fault.stack


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_what_one_handler_puts_in_its_context_no_other_sees(*, is_async: bool) -> None:
    app, seen = Redrive("memory://", concurrency=1), []

    async def paint(event: Event[Any]) -> None:
        dab(event)

    def dab(event: Event[Any]) -> None:
        seen.append(COLOUR.get())
        COLOUR.set(event.payload)

    app.handler("order.*", name="painter")(paint if is_async else dab)

    async with Kit(app) as kit:
        for colour in ("red", "green", "blue"):
            await app.publish("order.paid", colour)
        await kit.drain()

    assert seen == ["none", "none", "none"]
    assert COLOUR.get() == "none"


async def test_a_handler_may_publish(store: str) -> None:
    app = Redrive("memory://")

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        await app.publish("invoice.sent", event.payload)

    @app.handler("invoice.*")
    async def post(event: Event[Any]) -> None:
        await app.publish("letter.posted", event.payload)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 42})

        tally = await kit.drain()

        assert tally.delivered == 2
        kit.assert_published("letter.posted", payload={"order": 42}, times=1)
