"""Routing: events find their destinations by what the store knows, whoever publishes them."""

from __future__ import annotations

from redrive import NewEvent, Redrive
from redrive.testing import Kit, ScriptedDestination


def shop() -> Redrive:
    app = Redrive("memory://")
    app.handler("order.*")(ScriptedDestination("billing"))
    app.handler("order.paid", "mail.*")(ScriptedDestination("mailing"))
    return app


async def test_an_event_nobody_wants_is_kept_and_counted(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        receipt = await app.publish("stock.low")

        status = await kit.operations.status()
        assert not receipt.is_routed
        assert (status.events, status.unrouted) == (1, 1)
        kit.assert_published("stock.low")


async def test_an_app_without_handlers_routes_by_what_the_store_knows(store: str) -> None:
    workers, website = shop(), Redrive("memory://")
    async with Kit(workers, store=store) as kit:
        kit.connect(website)
        await workers.open()

        receipt = await website.publish("order.paid")

        assert receipt.destinations == ("billing", "mailing")
        assert (await kit.drain()).delivered == 2


async def test_a_destination_that_comes_later_gets_what_is_published_from_then_on(
    store: str,
) -> None:
    workers, website, newcomer = shop(), Redrive("memory://"), Redrive("memory://")
    newcomer.handler("order.*")(ScriptedDestination("shipping"))
    async with Kit(workers, store=store) as kit:
        kit.connect(website)
        kit.connect(newcomer)
        await workers.open()
        before = await website.publish("order.sent")

        await newcomer.open()
        after = await website.publish("order.sent")
        [bulk] = await website.publish_many([NewEvent(type="order.sent")])

        assert before.destinations == ("billing",)
        assert after.destinations == bulk.destinations == ("billing", "shipping")


async def test_a_destination_that_wants_something_else_now_gets_that(store: str) -> None:
    app, changed = shop(), Redrive("memory://")
    changed.handler("stock.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        kit.connect(changed)
        await app.publish("order.sent")

        await changed.drain()
        order, stock = await app.publish("order.sent"), await app.publish("stock.low")

        assert order.destinations == ()
        assert stock.destinations == ("billing",)
