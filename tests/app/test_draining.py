"""Drain: it ends when nothing more is due, not a moment earlier, and it always ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Breaker, Event, NewEvent, Query, Redrive, Retry, Terminal
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Status
from redrive.store import Advance
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing import Kit
from tests.app.test_limits import DOWN, Gateway

LONGEST_SECONDS = 20


class Shop:
    """An app whose billing refuses everything until it is mended."""

    def __init__(self, store: str) -> None:
        self.app = Redrive("memory://")
        self.is_mended = False
        self.received: list[Any] = []
        options: Any = {"retry": Retry(max_attempts=1), "replay_rate": None}
        declare: Any = self.app.handler
        declare("order.*", name="billing", **options)(self.bill)
        self.kit = Kit(self.app, store=store)

    async def bill(self, event: Event[Any]) -> None:
        if not self.is_mended:
            raise Terminal("unknown account")
        self.received.append(event.payload)

    async def fail(self, count: int) -> None:
        await self.app.publish_many([NewEvent(type="order.paid", payload=n) for n in range(count)])
        await self.drain()

    async def drain(self) -> None:
        async with asyncio.timeout(LONGEST_SECONDS):
            await self.kit.drain()


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
async def test_what_another_worker_has_just_sent_of_a_replay_is_delivered_too(
    kind: type[MemoryStore | SqliteStore], sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds nothing to do for the replay, because the other has done it since the claim."""
    shop = Shop("memory://" if kind is MemoryStore else sqlite)
    take_step: Callable[[Any], Any] = kind.advance_replays

    async def come_second(store: MemoryStore | SqliteStore) -> Advance:
        await take_step(store)
        advance: Advance = await take_step(store)
        return advance

    async with shop.kit:
        await shop.fail(20)
        shop.is_mended = True
        monkeypatch.setattr(kind, "advance_replays", come_second)
        replay = await shop.app.operations.start_replay(None, by="ada", why="fixed")

        await shop.drain()

        assert sorted(shop.received) == list(range(20))
        assert (await shop.app.operations.show_replay(replay.id)).delivered == 20


@pytest.mark.parametrize("duty", ["start_auto_replays", "advance_replays", "catch_up"])
async def test_a_store_that_fails_for_a_moment_ends_no_drain(
    duty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop("memory://")
    do_duty: Callable[..., Any] = getattr(MemoryStore, duty)
    failures = iter(range(6))

    async def fail_at_first(store: MemoryStore, **given: object) -> object:
        if next(failures, None) is not None:
            raise StoreUnavailableError("The store is gone for a moment.")
        return await do_duty(store, **given)

    async with shop.kit:
        await shop.fail(20)
        shop.is_mended = True
        await shop.app.operations.start_replay(None, by="ada", why="fixed")
        monkeypatch.setattr(MemoryStore, duty, fail_at_first)

        await shop.drain()

        assert sorted(shop.received) == list(range(20))


async def test_a_duty_that_always_fails_keeps_no_drain_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop("memory://")

    async def fail(_: MemoryStore) -> object:
        raise StoreUnavailableError("This user may not read the replays.")

    monkeypatch.setattr(MemoryStore, "advance_replays", fail)
    async with shop.kit:
        shop.is_mended = True
        await shop.fail(20)

        assert sorted(shop.received) == list(range(20))


async def test_what_is_past_its_deadline_when_it_ends_has_been_given_up(store: str) -> None:
    """The caretaker looked for such before: a claim held it then, or it was not yet time."""
    app = Redrive("memory://")
    async with Kit(app, store=store) as kit:

        @app.handler("order.paid")
        async def bill(_: Event[None]) -> None:
            kit.clock.advance("300ms")

        @app.handler("order.shipped")
        async def ship(_: Event[None]) -> None: ...

        await app.publish("order.shipped", due="1h", deadline="200ms")
        await app.publish("order.paid")

        await kit.drain()

        [letter] = kit.dead_letters()
        assert (letter.destination, letter.reason) == ("ship", "expired")


async def test_what_it_gives_up_untried_counts_as_failed(store: str) -> None:
    app = Redrive("memory://")
    async with Kit(app, store=store) as kit:

        @app.handler("order.paid")
        async def bill(_: Event[None]) -> None: ...

        await app.publish("order.paid", deadline="0s")

        tally = await app.drain()

        assert [one.reason for one in kit.dead_letters()] == ["expired"]
        assert (tally.delivered, tally.failed) == (0, 1)


async def test_it_ends_while_a_destination_is_paused(store: str) -> None:
    gateway = Gateway(store)
    async with asyncio.timeout(LONGEST_SECONDS), gateway.kit:
        await gateway.publish(3)
        await gateway.operations.pause("gateway", by="ada", why="they asked for it")

        await gateway.kit.drain()

        assert len(await gateway.pending()) == 3
        assert not gateway.calls


async def test_it_ends_while_a_delivery_is_due_later(store: str) -> None:
    gateway = Gateway(store)
    async with asyncio.timeout(LONGEST_SECONDS), gateway.kit:
        await gateway.app.publish("order.paid", due="1h", deadline="2h")

        await gateway.kit.drain()

        assert len(await gateway.pending()) == 1


async def test_it_ends_while_a_breaker_is_open(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=2, open_for="1m"))
    gateway.answer = DOWN
    async with asyncio.timeout(LONGEST_SECONDS), gateway.kit:
        await gateway.publish(5)

        await gateway.kit.drain()

        assert len(await gateway.pending()) == 5


async def test_it_ends_while_a_replay_is_paused_in_the_middle(store: str) -> None:
    shop = Shop(store)
    async with asyncio.timeout(LONGEST_SECONDS), shop.kit:
        await shop.fail(5)
        operations = shop.app.operations
        replay = await operations.start_replay(None, by="ada", why="fixed")
        await operations.pause_replay(replay.id, by="ada", why="lunch")

        await shop.kit.drain()

        left = await operations.deliveries(Query(status=Status.FAILED))
        assert len(left.deliveries) == 5
