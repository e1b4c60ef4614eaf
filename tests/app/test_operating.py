"""Operating: what a person may do to deliveries, and the trace each act leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    NotFoundError,
    Query,
    Redrive,
    Retry,
    Terminal,
    Transient,
    UsageError,
)
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.testing import Kit, ScriptedDestination


class Shop:
    """An app in a kit, with a destination that refuses everything until it is mended."""

    def __init__(self, store: str) -> None:
        self.app = Redrive("memory://", generations=["default", "blue"])
        self.app.handler("order.*", name="billing", retry=Retry(max_attempts=2, base="0s"))(print)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations

    def mend(self) -> ScriptedDestination:
        return self.kit.script("billing")

    def break_down(self) -> ScriptedDestination:
        return self.kit.script("billing", [Transient("busy")], repeats=True)

    async def dead_letter(self, **attributes: str) -> DeliveryId:
        self.break_down()
        receipt = await self.app.publish("order.paid", {"order": 42}, **attributes)  # type: ignore[arg-type]
        await self.kit.drain(until="1m")
        page = await self.operations.dead_letters(Query(event_id=receipt.event_id))
        [dead] = page.deliveries
        return dead.id

    async def pending(self, **attributes: object) -> DeliveryId:
        receipt = await self.app.publish("order.paid", due="1h", **attributes)  # type: ignore[arg-type]
        query = Query(status=Status.PENDING, event_id=receipt.event_id)
        [waiting] = (await self.operations.deliveries(query)).deliveries
        return waiting.id

    async def show(self, delivery_id: DeliveryId) -> Delivery:
        return (await self.operations.show(delivery_id)).delivery


@pytest.fixture
async def shop(store: str) -> AsyncIterator[Shop]:
    shop = Shop(store)
    async with shop.kit:
        yield shop


async def test_a_replay_keeps_the_identity_and_the_history(shop: Shop) -> None:
    dead_id = await shop.dead_letter(key="order-42", tenant="acme", idempotency_key="42")
    before = await shop.show(dead_id)
    billing = shop.mend()

    replayed = await shop.operations.replay([dead_id], by="ada", why="billing is back")
    waiting = await shop.show(dead_id)
    tally = await shop.kit.drain()

    after = await shop.show(dead_id)
    assert list(replayed) == [dead_id]
    assert (waiting.status, waiting.attempts, waiting.kind) == ("pending", 0, "replay")
    assert (waiting.fault, waiting.reason, waiting.log) == (None, None, ())
    assert tally.delivered == 1
    assert (after.status, after.attempts) == ("delivered", 1)
    assert (after.id, after.event_id) == (before.id, before.event_id)
    [event] = billing.received
    assert (event.id, event.idempotency_key, event.payload) == (
        before.event_id,
        "42",
        {"order": 42},
    )
    [cycle] = after.cycles
    assert (cycle.attempts, cycle.reason, cycle.replayed_by) == (2, "exhausted", "ada")
    assert (cycle.fault, cycle.failed_at) == (before.fault, before.settled_at)
    assert cycle.log == before.log


async def test_a_replay_that_fails_again_adds_a_cycle(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    await shop.operations.replay([dead_id], by="ada")
    await shop.kit.drain(until="1m")
    await shop.operations.replay([dead_id], by="bob")

    delivery = await shop.show(dead_id)
    assert [one.replayed_by for one in delivery.cycles] == ["ada", "bob"]


async def test_of_two_replays_at_once_one_wins(shop: Shop) -> None:
    dead_id = await shop.dead_letter()
    billing = shop.mend()

    won = await asyncio.gather(
        shop.operations.replay([dead_id], by="ada"), shop.operations.replay([dead_id], by="bob")
    )
    await shop.kit.drain()

    assert sorted(len(one) for one in won) == [0, 1]
    assert len(billing.received) == 1
    assert len((await shop.show(dead_id)).cycles) == 1


@pytest.mark.parametrize("generation", ["", "  ", "g" * 5000, 5, "a\x00b"])
async def test_a_generation_that_no_worker_could_serve_is_refused(
    shop: Shop,
    generation: Any,  # noqa: ANN401 - what is no name either
) -> None:
    dead_id = await shop.dead_letter()

    for act in (shop.operations.replay, shop.operations.start_replay):
        with pytest.raises(ConfigurationError, match="generation is"):
            await act([dead_id], by="ada", generation=generation)
    with pytest.raises(ConfigurationError, match="generation is"):
        await shop.operations.backfill("billing", by="ada", generation=generation)
    assert (await shop.show(dead_id)).generation == "default"


@pytest.mark.parametrize("given", [{"by": "ada", "why": None}, {"by": None, "why": "x"}])
async def test_an_act_that_needs_a_reason_says_so(shop: Shop, given: dict[str, Any]) -> None:
    dead_id = await shop.dead_letter()

    for act in (shop.operations.delete, shop.operations.resolve):
        with pytest.raises((UsageError, ConfigurationError), match=r"say why|by is None"):
            await act([dead_id], **given)


async def test_the_ids_that_changed_are_in_order(shop: Shop) -> None:
    ids = [await shop.dead_letter() for _ in range(3)]

    assert await shop.operations.replay(ids[::-1], by="ada") == ids
    assert await shop.operations.cancel(ids[::-1], by="ada") == ids
    assert await shop.operations.resolve(ids[::-1], by="ada", why="done") == ids
    assert await shop.operations.delete(ids[::-1], by="ada", why="done") == ids


async def test_a_replay_may_name_another_generation(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    await shop.operations.replay([dead_id], by="ada", generation="blue")

    delivery = await shop.show(dead_id)
    assert delivery.generation == "blue"
    assert delivery.cycles[0].generation == "default"


async def test_only_a_dead_letter_can_be_replayed(shop: Shop) -> None:
    waiting = await shop.pending()

    replayed = await shop.operations.replay([waiting], by="ada")

    assert list(replayed) == []
    assert (await shop.show(waiting)).status == "pending"


async def test_a_replay_past_the_deadline_is_tried_all_the_same(shop: Shop) -> None:
    dead_id = await shop.dead_letter(deadline="1h")
    billing = shop.mend()
    shop.kit.clock.advance("2h")

    await shop.operations.replay([dead_id], by="ada")
    await shop.kit.drain()

    assert len(billing.received) == 1


async def test_a_deleted_dead_letter_is_gone_and_its_reason_kept(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    deleted = await shop.operations.delete([dead_id], by="ada", why="a test order")

    assert list(deleted) == [dead_id]
    assert shop.kit.dead_letters() == []
    with pytest.raises(NotFoundError, match=f"no delivery {dead_id}; it may have been deleted"):
        await shop.operations.show(dead_id)
    [entry] = await shop.operations.audit()
    assert (entry.action, entry.by, entry.why) == ("delete", "ada", "a test order")
    assert (entry.count, entry.deliveries) == (1, (dead_id,))


async def test_a_resolved_dead_letter_stays_out_of_the_way(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    resolved = await shop.operations.resolve([dead_id], by="ada", why="paid in cash")
    replayed = await shop.operations.replay([dead_id], by="bob")

    delivery = await shop.show(dead_id)
    assert list(resolved) == [dead_id]
    assert list(replayed) == []
    assert shop.kit.dead_letters() == []
    assert delivery.resolution is not None
    assert (delivery.resolution.by, delivery.resolution.why) == ("ada", "paid in cash")
    assert delivery.resolution.at == shop.kit.clock.now()


async def test_without_a_reason_nothing_is_deleted_or_resolved(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    with pytest.raises(UsageError, match="A reason is needed to delete dead letters"):
        await shop.operations.delete([dead_id], by="ada", why="")
    with pytest.raises(UsageError, match="A reason is needed to resolve dead letters"):
        await shop.operations.resolve([dead_id], by="ada", why="")

    assert [one.id for one in shop.kit.dead_letters()] == [dead_id]
    assert list(await shop.operations.audit()) == []


async def test_an_act_without_a_name_is_refused(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    with pytest.raises(ConfigurationError, match="say who acts"):
        await shop.operations.replay([dead_id], by="")


async def test_a_cancelled_delivery_is_never_tried(shop: Shop) -> None:
    waiting = await shop.pending()
    billing = shop.mend()

    cancelled = await shop.operations.cancel([waiting], by="ada", why="order withdrawn")
    await shop.kit.drain(until="2h")

    delivery = await shop.show(waiting)
    assert list(cancelled) == [waiting]
    assert billing.attempts == []
    assert (delivery.status, delivery.reason, delivery.attempts) == ("failed", "cancelled", 0)
    assert delivery.fault is not None
    assert "order withdrawn" in delivery.fault.message


async def test_a_rescheduled_delivery_comes_when_it_was_told(shop: Shop) -> None:
    waiting = await shop.pending()
    billing = shop.mend()

    due = shop.kit.clock.now() + timedelta(minutes=5)
    await shop.operations.reschedule([waiting], due=due, by="ada")
    before = await shop.kit.drain()
    shop.kit.clock.advance("5m")
    await shop.kit.drain()

    assert before.attempts == 0
    assert len(billing.received) == 1


async def test_a_time_without_a_zone_is_refused(shop: Shop) -> None:
    waiting = await shop.pending()

    with pytest.raises(ConfigurationError, match="without a time zone"):
        await shop.operations.reschedule([waiting], due=datetime(2026, 1, 1), by="ada")  # noqa: DTZ001 - wrong on purpose


async def test_a_higher_priority_goes_first(shop: Shop) -> None:
    first, second = await shop.pending(key="first"), await shop.pending(key="second")
    billing = shop.mend()

    await shop.operations.prioritise([second], priority=10, by="ada")
    await shop.operations.reschedule([first, second], due=shop.kit.clock.now(), by="ada")
    await shop.kit.drain()

    assert [one.key for one in billing.received] == ["second", "first"]
    with pytest.raises(ConfigurationError, match="priority is 101"):
        await shop.operations.prioritise([second], priority=101, by="ada")


async def test_what_already_ended_is_left_alone(shop: Shop) -> None:
    dead_id = await shop.dead_letter()

    acts = [
        await shop.operations.cancel([dead_id], by="ada"),
        await shop.operations.prioritise([dead_id], priority=1, by="ada"),
        await shop.operations.reschedule([dead_id], due=shop.kit.clock.now(), by="ada"),
        await shop.operations.delete([DeliveryId(10**9)], by="ada", why="there is none"),
    ]

    assert [list(act) for act in acts] == [[], [], [], []]
    assert (await shop.show(dead_id)).reason == "exhausted"


async def test_the_audit_log_tells_every_act_the_latest_first(shop: Shop) -> None:
    dead_id, waiting = await shop.dead_letter(), await shop.pending()

    await shop.operations.prioritise([waiting], priority=1, by="ada", why="a good customer")
    await shop.operations.reschedule([waiting], due=shop.kit.clock.now(), by="ada")
    await shop.operations.cancel([waiting], by="bob")
    await shop.operations.replay([dead_id], by="bob", why="billing is back")

    entries = await shop.operations.audit()
    assert [one.action for one in entries] == ["replay", "cancel", "reschedule", "prioritise"]
    assert [one.by for one in entries] == ["bob", "bob", "ada", "ada"]
    assert entries[0].why == "billing is back"
    assert all(one.at == shop.kit.clock.now() and one.count == 1 for one in entries)
    rest = await shop.operations.audit(before=entries[1].id, limit=1)
    assert [one.action for one in rest] == ["reschedule"]


async def test_dead_letters_are_found_by_what_is_known_of_them(shop: Shop) -> None:
    acme = await shop.dead_letter(tenant="acme", key="order-1")
    other = await shop.dead_letter(tenant="other", key="order-2")
    shop.kit.script("billing", [Terminal("no such customer")])
    await shop.app.publish("order.sent", {"note": "fragile"})
    await shop.kit.drain()

    async def found(**query: str) -> list[DeliveryId]:
        page = await shop.operations.dead_letters(Query(**query))  # type: ignore[arg-type]
        return [one.id for one in page.deliveries]

    assert await found(tenant="acme") == [acme]
    assert await found(key="order-2") == [other]
    assert await found(event_type="order.p*") == [other, acme]
    assert await found(reason="terminal") == await found(text="fragile")
    assert len(await found(destination="billing")) == 3
    assert await found(destination="mailing") == []


async def test_dead_letters_come_page_by_page(shop: Shop) -> None:
    ids = [await shop.dead_letter() for _ in range(5)]

    seen: list[DeliveryId] = []
    cursor = None
    for _ in range(3):
        page = await shop.operations.dead_letters(cursor=cursor, limit=2)
        seen += [one.id for one in page.deliveries]
        cursor = page.next_cursor

    assert seen == ids[::-1]
    assert cursor is None
    with pytest.raises(UsageError, match="limit is 0; it is a whole number from 1 to 1000"):
        await shop.operations.dead_letters(limit=0)


async def test_the_status_counts_everything_once(shop: Shop) -> None:
    await shop.dead_letter()
    await shop.pending()
    shop.mend()
    await shop.app.publish("order.paid")
    await shop.kit.drain()

    status = await shop.operations.status()

    [billing] = status.destinations
    assert status.events == 3
    assert (billing.delivered, billing.pending, billing.waiting, billing.failed) == (1, 1, 1, 1)
    assert status.workers == ()
