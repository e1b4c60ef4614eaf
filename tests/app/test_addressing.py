"""Events published to destinations by name: nobody else gets them, and no name is guessed."""

from __future__ import annotations

import asyncio

import pytest

from redrive import (
    ConfigurationError,
    IdempotencyConflictError,
    NewEvent,
    NotFoundError,
    Redrive,
    UsageError,
)
from redrive.testing import Kit, ScriptedDestination


def shop() -> Redrive:
    app = Redrive("memory://")
    app.handler("order.*")(ScriptedDestination("billing"))
    app.handler("order.*", "mail.*")(ScriptedDestination("mailing"))
    app.handler("order.*", tenant="gold-*")(ScriptedDestination("concierge"))
    return app


async def test_an_event_goes_to_those_it_names_whatever_their_patterns_say(store: str) -> None:
    workers, website = shop(), Redrive("memory://")
    async with Kit(workers, store=store) as kit:
        kit.connect(website)
        await workers.open()

        one = await website.publish("invoice.again", to="billing", key="a")
        two = await website.publish("order.paid", to=["mailing", "billing", "mailing"])
        many = await website.publish_many([NewEvent(type="order.paid", to="mailing")])

        assert one.destinations == ("billing",)
        assert two.destinations == ("billing", "mailing")
        assert many[0].destinations == ("mailing",)
        assert (await kit.drain()).delivered == 4


async def test_a_name_that_nobody_has_is_refused_with_the_nearest(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        with pytest.raises(NotFoundError, match="no destination 'biling'; did you mean 'billing'"):
            await app.publish("order.paid", to=["biling", "mailing"])
        with pytest.raises(NotFoundError, match=r"events\[1\] \(order.paid\): .*'mail'; did you"):
            await app.publish_many(
                [NewEvent(type="order.paid"), NewEvent(type="order.paid", to="mail")]
            )

        assert kit.published() == []


async def test_one_that_is_misaddressed_fails_alone_among_those_under_way() -> None:
    app = shop()
    async with Kit(app) as kit:
        results = await asyncio.gather(
            *[app.publish("order.paid", to=one) for one in ("billing", "nobody", "mailing")],
            return_exceptions=True,
        )

        assert isinstance(results[1], NotFoundError)
        assert len(kit.published()) == 2


async def test_a_destination_that_comes_later_can_be_named_from_then_on() -> None:
    workers, website, newcomer = shop(), Redrive("memory://"), Redrive("memory://")
    newcomer.handler("stock.*")(ScriptedDestination("shipping"))
    async with Kit(workers) as kit:
        kit.connect(website)
        kit.connect(newcomer)
        with pytest.raises(NotFoundError):
            await website.publish("order.paid", to="shipping")
        await newcomer.open()

        receipt = await website.publish("order.paid", to="shipping")

        assert receipt.destinations == ("shipping",)


async def test_a_destination_of_a_tenant_is_refused_the_events_of_others() -> None:
    app = shop()
    async with Kit(app):
        receipt = await app.publish("order.paid", to="concierge", tenant="gold-7")
        with pytest.raises(UsageError, match=r"belongs to the tenant 'gold-\*'.* is one of 'acme'"):
            await app.publish("order.paid", to="concierge", tenant="acme")
        with pytest.raises(UsageError, match="the event is nobody's"):
            await app.publish("order.paid", to="concierge")

        assert receipt.destinations == ("concierge",)


async def test_a_backfill_leaves_alone_what_was_meant_for_somebody_else(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", {"order": 1}, to="billing")
        await app.publish("order.paid", {"order": 2})

        told = await kit.operations.plan_backfill("mailing")

        assert told.positions == ()


@pytest.mark.parametrize("kept", ["with its event", "alone"])
async def test_whom_it_is_for_is_part_of_what_an_idempotency_key_stands_for(kept: str) -> None:
    app = Redrive("memory://", keep_delivered="1h", keep_events="1h", keep_idempotency="30d")
    app.handler("order.*")(ScriptedDestination("billing"))
    app.handler("order.*")(ScriptedDestination("mailing"))
    async with Kit(app) as kit:
        first = await app.publish("order.paid", idempotency_key="42", to="billing")
        if kept == "alone":
            await kit.drain()
            kit.clock.advance("2h")
            await kit.operations.prune(by="ada")

        again = await app.publish("order.paid", idempotency_key="42", to=["billing"])
        for other in ("mailing", None):
            with pytest.raises(IdempotencyConflictError):
                await app.publish("order.paid", idempotency_key="42", to=other)

        assert (again.event_id, again.is_duplicate) == (first.event_id, True)


@pytest.mark.parametrize(
    ("to", "words"),
    [([], "names no destination"), (7, "to is 7"), ([7], r"to is \[7\]"), (b"x", "to is b'x'")],
)
async def test_what_names_nobody_is_refused(to: object, words: str) -> None:
    app = shop()
    async with Kit(app):
        with pytest.raises(ConfigurationError, match=words):
            await app.publish("order.paid", to=to)  # type: ignore[arg-type]  # wrong on purpose


async def test_an_event_within_a_transaction_names_whom_it_is_for(sqlite: str) -> None:
    app = Redrive(sqlite)
    app.handler("order.*", name="billing")(print)
    async with app:
        async with app.transaction() as transaction:
            receipt = await app.publish("mail.sent", to="billing", within=transaction)
            with pytest.raises(NotFoundError, match="did you mean 'billing'"):
                await app.publish("mail.sent", to="billin", within=transaction)

        assert receipt.destinations == ("billing",)
        assert len(await app.operations.events()) == 1
