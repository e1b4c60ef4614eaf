"""Handlers: sync or async, one event or a batch, typed or not, and everything they may answer."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

from redrive import (
    Cancel,
    ConfigurationError,
    Event,
    NewEvent,
    Query,
    Redrive,
    Retry,
    Snooze,
    Terminal,
    Transient,
)
from redrive.model.delivery import Delivery, Status
from redrive.testing import Kit

if TYPE_CHECKING:
    from decimal import Decimal

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
STEADY = Retry(max_attempts=3, base="10s", cap="10s", jitter="none")


@dataclass
class DataclassOrder:
    order: int


class StructOrder(msgspec.Struct):
    order: int


class ModelOrder(pydantic.BaseModel):
    order: int


async def pending(kit: Kit) -> list[Delivery]:
    page = await kit.operations.deliveries(Query(status=Status.PENDING))
    return sorted(page.deliveries, key=lambda one: one.id)


async def test_an_async_handler_gets_the_event(store: str) -> None:
    app, seen = Redrive("memory://"), []

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        seen.append(event)

    async with Kit(app, store=store) as kit:
        receipt = await app.publish(
            "order.paid", {"order": 42}, key="order-42", headers={"traceparent": "00-abc"}
        )
        await kit.drain()

    [event] = seen
    assert (event.id, event.type, event.key) == (receipt.event_id, "order.paid", "order-42")
    assert event.payload == {"order": 42}
    assert event.headers == {"traceparent": "00-abc"}


async def test_a_sync_handler_gets_the_event(store: str) -> None:
    app, seen = Redrive("memory://"), []

    @app.handler("order.*")
    def bill(event: Event[Any]) -> None:
        seen.append(event.payload)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 42})
        tally = await kit.drain()

    assert seen == [{"order": 42}]
    assert tally.delivered == 1


async def test_a_callable_object_is_a_handler_too() -> None:
    class Billing:
        def __init__(self) -> None:
            self.seen: list[object] = []

        async def __call__(self, event: Event[StructOrder]) -> None:
            self.seen.append(event.payload)

    app, billing = Redrive("memory://"), Billing()
    app.handler("order.*", name="billing")(billing)

    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42})
        await kit.drain()

    assert billing.seen == [StructOrder(42)]


async def test_a_partial_function_is_a_handler_too() -> None:
    app = Redrive("memory://")
    seen: list[object] = []

    def note(book: list[object], event: Event[StructOrder]) -> None:
        book.append(event.payload)

    app.handler("order.*", name="billing")(partial(note, seen))

    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42})
        await kit.drain()

    assert seen == [StructOrder(42)]


async def test_a_handler_that_answers_something_of_its_own_has_succeeded() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(lambda event: {"invoice": 7})

    async with Kit(app) as kit:
        await app.publish("order.paid")

        assert (await kit.drain()).delivered == 1


async def bill_dataclass(event: Event[DataclassOrder]) -> None:
    assert isinstance(event.payload, DataclassOrder)
    assert event.payload.order == 42


async def bill_struct(event: Event[StructOrder]) -> None:
    assert isinstance(event.payload, StructOrder)
    assert event.payload.order == 42


def bill_model(event: Event[ModelOrder]) -> None:
    assert isinstance(event.payload, ModelOrder)
    assert event.payload.order == 42


@pytest.mark.parametrize("handler", [bill_dataclass, bill_struct, bill_model])
async def test_a_payload_comes_as_the_type_the_handler_asks_for(store: str, handler: Any) -> None:  # noqa: ANN401 - a handler
    app = Redrive("memory://")
    app.handler("order.*")(handler)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 42})

        assert (await kit.drain()).delivered == 1


@pytest.mark.parametrize("handler", [bill_dataclass, bill_struct, bill_model])
async def test_a_payload_that_does_not_fit_is_terminal(store: str, handler: Any) -> None:  # noqa: ANN401 - a handler
    app = Redrive("memory://")
    app.handler("order.*")(handler)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": "forty-two"})
        tally = await kit.drain()

        [dead] = kit.dead_letters()
        assert (tally.failed, dead.attempts, dead.reason) == (1, 1, "terminal")
        assert dead.fault is not None
        assert dead.fault.rule == "payload does not fit"


def test_a_payload_type_that_cannot_be_resolved_is_refused() -> None:
    """Otherwise every payload would come unchecked, and nobody would know."""
    app = Redrive("memory://")

    async def bill(event: Event[Decimal]) -> None: ...

    with pytest.raises(ConfigurationError, match="name 'Decimal' is not defined"):
        app.handler("order.*")(bill)


def test_other_annotations_need_not_be_resolved() -> None:
    app = Redrive("memory://")

    async def bill(event: Event[StructOrder], rate: int = 7) -> Decimal: ...  # type: ignore[empty-body]

    app.handler("order.*")(bill)


async def test_a_plain_function_around_an_async_one_is_awaited() -> None:
    """Otherwise its event would count as delivered, and nothing would have run."""
    app = Redrive("memory://")
    seen: list[object] = []

    async def bill(event: Event[Any]) -> None:
        seen.append(event.payload)

    app.handler("order.*", name="billing")(lambda event: bill(event))  # noqa: PLW0108 - on purpose

    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42})
        tally = await kit.drain()

    assert tally.delivered == 1
    assert seen == [{"order": 42}]


async def yield_later(event: Event[Any]) -> AsyncIterator[None]:
    yield


def yield_now(event: Event[Any]) -> Iterator[None]:
    yield


@pytest.mark.parametrize("handler", [yield_later, yield_now])
def test_a_handler_with_a_yield_is_refused(handler: Any) -> None:  # noqa: ANN401 - wrong
    """Calling it would run nothing of it, and its event would count as delivered."""
    with pytest.raises(ConfigurationError, match="has a yield, so calling it would run nothing"):
        Redrive("memory://").handler("order.*")(handler)


@pytest.mark.parametrize(
    "handler", [lambda: None, lambda one, two: None, 42], ids=["none", "two", "no function"]
)
def test_a_handler_that_cannot_take_an_event_is_refused(handler: Any) -> None:  # noqa: ANN401 - wrong
    with pytest.raises(ConfigurationError):
        Redrive("memory://").handler("order.*", name="billing")(handler)


def test_a_payload_type_that_json_cannot_give_is_refused() -> None:
    app = Redrive("memory://")

    async def bill(event: Event[asyncio.Event]) -> None: ...

    with pytest.raises(ConfigurationError, match="use a dataclass, a msgspec Struct or a pydantic"):
        app.handler("order.*")(bill)


def test_two_handlers_of_one_name_are_refused() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)

    with pytest.raises(ConfigurationError, match="two destinations named 'billing'"):
        app.handler("mail.*", name="billing")(print)


async def test_a_batch_handler_gets_several_events_at_once(store: str) -> None:
    app, sizes = Redrive("memory://"), []

    @app.handler("order.*", batch=3)
    async def bill(events: list[Event[Any]]) -> None:
        sizes.append(len(events))

    async with Kit(app, store=store) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(7)])

        tally = await kit.drain()

    assert sizes == [3, 3, 1]
    assert tally.delivered == 7


@pytest.mark.parametrize("hint", [Event[Any], Event, tuple[Event[Any], ...], dict[str, Any]])
def test_a_batch_handler_that_does_not_take_a_list_is_refused(hint: Any) -> None:  # noqa: ANN401
    def bill(events: object) -> None: ...

    bill.__annotations__["events"] = hint

    with pytest.raises(ConfigurationError, match=r"bill gets a list of events.*leave batch out"):
        Redrive("memory://").handler("order.*", batch=10)(bill)


@pytest.mark.parametrize("hint", [list[Event[Any]], list, Sequence[Event[Any]], tuple[Event[Any]]])
def test_a_handler_that_takes_a_list_without_batch_is_refused(hint: Any) -> None:  # noqa: ANN401
    def bill(events: object) -> None: ...

    bill.__annotations__["events"] = hint

    with pytest.raises(ConfigurationError, match=r"bill asks for several events.*batch=100"):
        Redrive("memory://").handler("order.*")(bill)


async def test_a_batch_handler_answers_for_each_event(store: str) -> None:
    app = Redrive("memory://")

    @app.handler("order.*", batch=10, retry=STEADY)
    def bill(events: list[Event[Any]]) -> Sequence[object]:
        answers = {
            "done": None,
            "later": Snooze("5s"),
            "obsolete": Cancel("obsolete"),
            "broken": Terminal("no such customer"),
            "busy": Transient("busy"),
        }
        return [answers[event.payload] for event in events]

    async with Kit(app, store=store) as kit:
        for payload in ("done", "later", "obsolete", "broken", "busy"):
            await app.publish("order.paid", payload)

        tally = await kit.drain()

        assert (tally.delivered, tally.snoozed, tally.retried, tally.failed) == (1, 1, 1, 2)
        assert sorted(str(one.reason) for one in kit.dead_letters()) == ["cancelled", "terminal"]


async def test_a_batch_handler_that_raises_fails_for_all(store: str) -> None:
    app = Redrive("memory://")

    @app.handler("order.*", batch=10, retry=STEADY)
    async def bill(events: list[Event[Any]]) -> None:
        raise ConnectionError("refused")

    async with Kit(app, store=store) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(3)])

        assert (await kit.drain()).retried == 3


async def test_a_batch_handler_that_answers_too_few_fails_for_all() -> None:
    app = Redrive("memory://")

    @app.handler("order.*", batch=10, retry=STEADY)
    async def bill(events: list[Event[Any]]) -> list[None]:
        return [None]

    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(3)])

        assert (await kit.drain()).retried == 3
        fault = (await pending(kit))[0].fault
        assert fault is not None
        assert "answered 1 items for 3 events" in fault.message


async def test_in_a_batch_a_payload_that_does_not_fit_fails_alone(store: str) -> None:
    app = Redrive("memory://")
    seen: list[int] = []

    @app.handler("order.*", batch=10)
    async def bill(events: list[Event[StructOrder]]) -> None:
        seen.extend(event.payload.order for event in events)

    async with Kit(app, store=store) as kit:
        for payload in ({"order": 1}, {"order": "two"}, {"order": 3}):
            await app.publish("order.paid", payload)

        tally = await kit.drain()

    assert seen == [1, 3]
    assert (tally.delivered, tally.failed) == (2, 1)
