"""Publishing: what a receipt promises, and what is refused with nothing stored."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from redrive import (
    ConfigurationError,
    IdempotencyConflictError,
    NewEvent,
    PayloadError,
    Redrive,
    RedriveError,
    Severity,
    VersionConflictError,
)
from redrive.observer import Published
from redrive.testing import Kit, ScriptedDestination
from tests.app.recorder import Recorder


@dataclass
class Price:
    amount: float
    discount: float | None = None


class StructPrice(msgspec.Struct):
    amount: float
    discount: float | None = None


class ModelPrice(pydantic.BaseModel):
    amount: float
    discount: float | None = None


def shop(**options: Any) -> Redrive:  # noqa: ANN401 - the options of an app
    app = Redrive("memory://", **options)
    app.handler("order.*")(ScriptedDestination("billing"))
    app.handler("order.paid", "mail.*")(ScriptedDestination("mailing"))
    return app


async def test_a_receipt_names_the_event_and_the_destinations_that_get_it(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        receipt = await app.publish("order.paid", {"order": 42})

        assert receipt.destinations == ("billing", "mailing")
        assert [one.id for one in kit.published()] == [receipt.event_id]
        assert (await kit.drain()).delivered == 2


async def test_everything_said_of_an_event_is_kept(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        now = kit.clock.now()
        await app.publish(
            "order.paid",
            {"order": 42},
            key="order-42",
            tenant="acme",
            source="website",
            idempotency_key="42",
            headers={"traceparent": "00-abc"},
            severity=Severity.WARNING,
            priority=7,
            generation="blue",
            occurred_at=now,
            deadline="1h",
            due="1m",
        )

        [event] = kit.published()
        assert event.payload == {"order": 42}
        assert (event.key, event.tenant, event.source) == ("order-42", "acme", "website")
        assert (event.idempotency_key, event.headers) == ("42", {"traceparent": "00-abc"})
        assert (event.severity, event.priority, event.generation) == ("warning", 7, "blue")
        assert (event.published_at, event.occurred_at) == (now, now)
        assert event.deadline is not None
        assert event.due is not None
        assert [(event.deadline - now).seconds, (event.due - now).seconds] == [3600, 60]


async def test_when_publish_returns_another_process_can_see_it(sqlite: str) -> None:
    async with Redrive(sqlite) as app, Redrive(sqlite) as other:
        receipt = await app.publish("order.paid")

        [logged] = await other.operations.events()
        assert logged.event.id == receipt.event_id


async def test_the_same_idempotency_key_stores_once(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        first = await app.publish("order.paid", {"order": 42}, idempotency_key="42")
        second = await app.publish("order.paid", {"order": 42}, idempotency_key="42")

        assert second.event_id == first.event_id
        assert second.destinations == first.destinations
        assert (first.is_duplicate, second.is_duplicate) == (False, True)
        assert len(kit.published()) == 1
        assert (await kit.drain()).delivered == 2


async def test_idempotency_keys_of_different_sources_are_different(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 1}, source="website", idempotency_key="42")
        await app.publish("order.paid", {"order": 2}, source="till", idempotency_key="42")

        assert len(kit.published()) == 2


async def test_a_used_idempotency_key_with_another_body_is_refused(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        first = await app.publish("order.paid", {"order": 42}, idempotency_key="42")

        with pytest.raises(IdempotencyConflictError, match=f"by event {first.event_id}"):
            await app.publish("order.paid", {"order": 43}, idempotency_key="42")

        assert len(kit.published()) == 1


async def test_many_events_are_published_in_order(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        events = [NewEvent(type="order.paid", payload=number) for number in range(2_000)]

        receipts = await app.publish_many(events)

        published = kit.published()
        assert [one.payload for one in published] == list(range(2_000))
        assert [one.id for one in published] == [one.event_id for one in receipts]


async def test_publishing_many_of_nothing_is_nothing(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        assert await app.publish_many([]) == []
        kit.assert_nothing_published()


async def test_one_conflict_keeps_all_of_many_out(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 1}, idempotency_key="1")

        with pytest.raises(IdempotencyConflictError):
            await app.publish_many(
                [
                    NewEvent(type="order.paid", payload={"order": 2}),
                    NewEvent(type="order.paid", payload={"order": 3}, idempotency_key="1"),
                ]
            )

        assert len(kit.published()) == 1


async def test_one_bad_payload_keeps_all_of_many_out(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        with pytest.raises(PayloadError):
            await app.publish_many(
                [
                    NewEvent(type="order.paid", payload={"order": 1}),
                    NewEvent(type="order.paid", payload=object()),
                ]
            )

        kit.assert_nothing_published()


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"payload": object()}, PayloadError, "The payload is not JSON"),
        ({"payload": "x" * 2_000}, PayloadError, "more than the limit of 1,000"),
        ({"payload": 2, "idempotency_key": "1"}, IdempotencyConflictError, "used before, by event"),
        ({"key": "k", "expected_version": 4}, VersionConflictError, "The key 'k' is at version 0"),
    ],
    ids=["not JSON", "too large", "another body", "another version"],
)
async def test_it_is_told_which_of_many_is_wrong(
    store: str, wrong: dict[str, Any], error: type[RedriveError], says: str
) -> None:
    app = Redrive("memory://", payload_limit=1_000)
    async with Kit(app, store=store):
        await app.publish("order.placed", 1, idempotency_key="1")
        events = [NewEvent(type="order.placed", payload=number) for number in range(5)]
        events[3] = NewEvent(type="order.paid", **wrong)

        with pytest.raises(error, match=rf"^events\[3\] \(order\.paid\): .*{says}"):
            await app.publish_many(events)


async def test_of_concurrent_publishes_a_bad_one_fails_alone(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", 0, idempotency_key="0")
        calls = [app.publish("order.paid", number) for number in range(1, 50)]
        calls.insert(10, app.publish("order.paid", "another body", idempotency_key="0"))
        calls.insert(20, app.publish("order.paid", object()))

        results = await asyncio.gather(*calls, return_exceptions=True)

        failed = [type(one) for one in results if isinstance(one, BaseException)]
        assert failed == [IdempotencyConflictError, PayloadError]
        assert sorted(one.payload for one in kit.published()) == list(range(50))


async def test_concurrent_publishes_share_a_commit(store: str) -> None:
    app, recorder = shop(), Recorder()
    app.observe(recorder)
    async with Kit(app, store=store):
        await app.open()

        await asyncio.gather(*(app.publish("order.paid", number) for number in range(100)))

        sizes = [len(fact.events) for fact in recorder.of(Published)]
        assert sum(sizes) == 100
        if store != "memory://":  # which is done before the next call comes
            assert len(sizes) <= 2


async def test_those_who_always_publish_together_share_every_commit(store: str) -> None:
    app, recorder = shop(), Recorder()
    app.observe(recorder)

    async def publish() -> None:
        for number in range(5):
            await app.publish("order.paid", number)

    async with Kit(app, store=store):
        await app.open()

        await asyncio.gather(*(publish() for _ in range(20)))

        sizes = [len(fact.events) for fact in recorder.of(Published)]
        assert sum(sizes) == 100
        if store != "memory://":
            assert len(sizes) <= 10


async def test_a_publisher_that_gives_up_waiting_takes_nobody_with_it(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.open()
        impatient = asyncio.ensure_future(app.publish("order.paid", "impatient"))
        patient = asyncio.ensure_future(app.publish("order.paid", "patient"))
        await kit.clock.sleep(0)

        impatient.cancel()
        await patient

        assert "patient" in [one.payload for one in kit.published()]


async def test_a_payload_above_the_limit_is_refused(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", "x" * (2**20 - 2))

        with pytest.raises(PayloadError, match=r"1,048,577 bytes of JSON, more than the limit"):
            await app.publish("order.paid", "x" * (2**20 - 1))

        assert len(kit.published()) == 1


@pytest.mark.parametrize(
    "payload",
    [object(), {"call": print}, {"half": "\ud800"}, {("a", "b"): object()}, lambda: None],
    ids=["object", "function", "surrogate", "key", "lambda"],
)
async def test_a_payload_that_is_not_json_is_refused(payload: object) -> None:
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(PayloadError, match="The payload is not JSON"):
            await app.publish("order.paid", payload)

        kit.assert_nothing_published()


def endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


async def test_a_payload_that_holds_itself_is_refused() -> None:
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(PayloadError):
            await app.publish("order.paid", endless())

        kit.assert_nothing_published()


@pytest.mark.parametrize(
    "payload",
    [
        math.nan,
        {"price": math.inf},
        [1, [2, (-math.inf,)]],
        {math.nan},
        Price(math.nan),
        [Price(1.0, math.inf)],
        StructPrice(math.nan),
        {"price": ModelPrice(amount=math.inf)},
    ],
    ids=repr,
)
async def test_a_number_that_json_does_not_have_is_refused(payload: object) -> None:
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(PayloadError, match=r"NaN or infinity"):
            await app.publish("order.paid", payload)

        kit.assert_nothing_published()


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        (None, None),
        ({"discount": None}, {"discount": None}),
        (2**100, 2**100),
        (Price(1.5), {"amount": 1.5, "discount": None}),
        (StructPrice(1.5), {"amount": 1.5, "discount": None}),
        (ModelPrice(amount=1.5), {"amount": 1.5, "discount": None}),
        ([Price(1.5)], [{"amount": 1.5, "discount": None}]),
        ("grüße \N{PARTY POPPER}", "grüße \N{PARTY POPPER}"),
    ],
    ids=repr,
)
async def test_any_other_json_value_is_kept(store: str, payload: object, stored: object) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", payload)

        [event] = kit.published()
        assert event.payload == stored


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"tenat": "acme"}, "no event attribute 'tenat'; did you mean 'tenant'"),
        ({"key": 42}, "key is 42; it is text"),
        ({"idempotency_key": ""}, "idempotency_key is blank, so different events would pass for"),
        ({"priority": 101}, "priority is 101; it is a whole number from -100 to 100"),
        ({"severity": "loud"}, "severity is 'loud'; it is one of debug, info"),
        ({"headers": {"n": 1}}, "header 'n' has the value 1; headers map text to text"),
        ({"due": "soon"}, "due is 'soon', which is not a duration"),
        ({"deadline": 5}, "deadline is 5, which is not a duration"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_wrong_attribute_is_refused_in_one_sentence(
    attributes: dict[str, Any], sentence: str
) -> None:
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(ConfigurationError, match=sentence):
            await app.publish("order.paid", **attributes)

        kit.assert_nothing_published()


@pytest.mark.parametrize("event_type", ["", "order paid", "order/paid", "x" * 201, None, 7])
async def test_a_type_that_is_none_is_refused(event_type: Any) -> None:  # noqa: ANN401 - wrong
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(ConfigurationError, match="The event type is"):
            await app.publish(event_type)

        kit.assert_nothing_published()
