"""Deliveries that expire: a destination's life time, and the deadline of an event."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive import ConfigurationError, NewEvent, Query, Redrive, Retry
from redrive.model.delivery import Status
from redrive.testing import Kit, ScriptedDestination


def shop(expire_after: Any) -> Redrive:  # noqa: ANN401 - a wrong one, too
    app = Redrive("memory://")
    app.handler("order.*", expire_after=expire_after)(ScriptedDestination("push"))
    app.handler("order.*")(ScriptedDestination("mail"))
    return app


async def deadlines(kit: Kit, destination: str) -> list[timedelta | None]:
    """Return how long from now each delivery may take, in the order of their ids."""
    query = Query(destination=destination, status=Status.PENDING)
    page = await kit.operations.deliveries(query)
    now = kit.clock.now()

    def left(deadline: datetime | None) -> timedelta | None:
        return None if deadline is None else deadline - now

    return [left(one.deadline) for one in sorted(page.deliveries, key=lambda one: one.id)]


@pytest.mark.parametrize("key", [None, "order-42"])
async def test_the_earlier_of_life_time_and_deadline_counts(store: str, key: str | None) -> None:
    app = shop(expire_after="3h")
    async with Kit(app, store=store) as kit:
        now = kit.clock.now()
        await app.publish("order.paid", key=key)
        await app.publish("order.paid", key=key, deadline="1h")
        await app.publish_many(
            [
                NewEvent(type="order.paid", key=key, deadline=now + timedelta(hours=5)),
                NewEvent(type="order.paid", key=key, due=now + timedelta(hours=2)),
                NewEvent(type="order.paid", key=key, due=now - timedelta(hours=9)),
            ]
        )

        hours = [timedelta(hours=one) for one in (3, 1, 3, 5, 3)]
        assert await deadlines(kit, "push") == hours
        others = [None, timedelta(hours=1), timedelta(hours=5), None, None]
        assert await deadlines(kit, "mail") == others


async def test_what_outlives_its_time_fails_as_expired_and_may_be_replayed(store: str) -> None:
    app = shop(expire_after="3h")
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", to="push")
        await kit.operations.pause("push", by="ada")
        kit.clock.advance("3h")
        await kit.drain()
        letter = (await kit.operations.show(1)).delivery
        await kit.operations.resume("push", by="ada")
        await kit.operations.replay([1], by="ada")

        assert (letter.status, letter.reason) == ("failed", "expired")
        assert (await kit.drain()).delivered == 1


async def test_a_retry_that_would_come_too_late_is_not_waited_for() -> None:
    app, push = Redrive("memory://"), ScriptedDestination("push", [ConnectionError("away")])
    app.handler("order.*", expire_after="1m", retry=Retry(base="2m", jitter="none"))(push)
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        letter = (await kit.operations.show(1)).delivery
        assert (letter.attempts, letter.reason) == (1, "expired")


async def test_a_backfill_gives_a_whole_life_time(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*")(ScriptedDestination("mail"))
    later = shop(expire_after="3h")
    async with Kit(app, store=store) as kit:
        kit.connect(later)
        await app.publish("order.paid")
        kit.clock.advance("9h")
        await later.open()
        await kit.operations.backfill("push", by="ada")

        assert await deadlines(kit, "push") == [timedelta(hours=3)]


@pytest.mark.parametrize("written", ["0s", "soon", 7])
def test_a_life_time_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(ConfigurationError, match="expire_after is"):
        shop(expire_after=written)
