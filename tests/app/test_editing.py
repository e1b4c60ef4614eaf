"""Editing: a dead letter gets another payload, and everything else stays as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    Event,
    NotFoundError,
    Operations,
    PayloadError,
    Query,
    Redrive,
    Retry,
    Terminal,
    Transient,
    UsageError,
)
from redrive.model.delivery import DeliveryId, Leased, Status
from redrive.model.outcome import Outcome, Succeeded
from redrive.testing import Kit

WRONG = {"order": 42, "lines": [{"sku": "a"}, {"sku": "b"}]}
RIGHT = {"order": 42, "total": 9, "lines": [{"sku": "a"}, {"sku": "c"}]}


class Gateway:
    """A transport of one's own that remembers the bytes it was handed."""

    batch = 1

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.bodies += [bytes(one.event.payload) for one in deliveries]
        return [Succeeded() for _ in deliveries]


class Shop:
    """Billing needs a total; the archive and the gateway take everything."""

    def __init__(self, store: str) -> None:
        self.app = Redrive("memory://", payload_limit="1KB", history=3)
        self.billed: list[Event[Any]] = []
        self.archived: list[Event[Any]] = []
        self.fails_once = False
        self.gateway = Gateway()
        self.app.handler("order.*", name="billing", retry=Retry(max_attempts=2, base="0s"))(
            self.bill
        )
        self.app.handler("order.*", name="archive")(self.archive)
        self.app.destination("gateway", "order.*", transport=self.gateway)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations

    async def bill(self, event: Event[Any]) -> None:
        if "total" not in event.payload:
            raise Terminal("no total")
        self.billed.append(event)
        if self.fails_once:
            self.fails_once = False
            raise Transient("busy")

    async def archive(self, event: Event[Any]) -> None:
        self.archived.append(event)

    async def fail(self) -> DeliveryId:
        await self.app.publish("order.paid", WRONG, key="order-42", idempotency_key="42")
        await self.kit.drain()
        [dead] = (await self.operations.dead_letters()).deliveries
        return dead.id


@pytest.fixture
async def shop(store: str) -> AsyncIterator[Shop]:
    shop = Shop(store)
    async with shop.kit:
        yield shop


async def test_an_edited_letter_is_sent_again_under_its_own_name(shop: Shop) -> None:
    dead = await shop.fail()

    told = await shop.operations.edit(dead, RIGHT, by="ada", why="the total was lost")
    tally = await shop.kit.drain()

    [event] = shop.billed
    assert (told.delivery.status, told.payload) == ("pending", RIGHT)
    assert tally.delivered == 1
    assert event.payload == RIGHT
    assert (event.id, event.idempotency_key, event.key) == (told.event.id, "42", "order-42")


async def test_the_event_and_other_destinations_keep_the_original(shop: Shop) -> None:
    dead = await shop.fail()

    await shop.operations.edit(dead, RIGHT, by="ada", why="the total was lost")
    await shop.kit.drain()

    [event] = shop.kit.published()
    told = await shop.operations.show(dead)
    assert event.payload == WRONG
    assert [one.payload for one in shop.archived] == [WRONG]
    assert len(shop.gateway.bodies) == 1
    assert b"total" not in shop.gateway.bodies[0]
    assert b"total" not in bytes(told.event.payload)
    assert b"total" in bytes(told.carried)


async def test_every_later_try_and_replay_carries_the_edit(shop: Shop) -> None:
    dead = await shop.fail()
    shop.fails_once = True

    await shop.operations.edit(dead, RIGHT, by="ada", why="the total was lost")
    await shop.kit.drain(until="1m")

    assert [one.payload for one in shop.billed] == [RIGHT, RIGHT]


async def test_what_was_changed_by_whom_and_why_is_told(shop: Shop) -> None:
    dead = await shop.fail()

    await shop.operations.edit(dead, RIGHT, by="ada", why="the total was lost", replay=False)

    told = await shop.operations.show(dead)
    [edit] = told.delivery.edits
    assert told.delivery.status == "failed"
    assert (edit.by, edit.why, edit.at) == ("ada", "the total was lost", shop.kit.clock.now())
    assert [(one.path, one.kind, one.before, one.after) for one in edit.changes] == [
        ("lines[1].sku", "changed", '"b"', '"c"'),
        ("total", "added", "", "9"),
    ]
    [entry] = await shop.operations.audit()
    assert (entry.action, entry.by, entry.why) == ("edit", "ada", "the total was lost")


async def test_only_so_many_edits_are_kept(shop: Shop) -> None:
    dead = await shop.fail()
    for number in range(5):
        await shop.operations.edit(dead, number, by="ada", why=str(number), replay=False)

    told = await shop.operations.show(dead)

    assert [one.why for one in told.delivery.edits] == ["2", "3", "4"]
    assert (told.payload, shop.kit.published()[0].payload) == (4, WRONG)


async def test_a_preview_changes_nothing(shop: Shop) -> None:
    dead = await shop.fail()

    changes = await shop.operations.preview_edit(dead, RIGHT)

    told = await shop.operations.show(dead)
    assert [one.path for one in changes] == ["lines[1].sku", "total"]
    assert (told.payload, told.delivery.edits) == (WRONG, ())


async def test_what_publish_refuses_is_refused_here(shop: Shop) -> None:
    dead = await shop.fail()
    edit = shop.operations.edit

    with pytest.raises(PayloadError, match="1,002 bytes of JSON, more than the limit of 1,000"):
        await edit(dead, "x" * 1000, by="ada", why="why")
    with pytest.raises(PayloadError, match="not JSON"):
        await edit(dead, object(), by="ada", why="why")
    with pytest.raises(PayloadError, match="NaN or infinity"):
        await edit(dead, {"total": float("nan")}, by="ada", why="why")
    with pytest.raises(UsageError, match="A reason is needed to edit"):
        await edit(dead, RIGHT, by="ada", why=" ")
    with pytest.raises(ConfigurationError, match="say who acts"):
        await edit(dead, RIGHT, by="", why="why")
    with pytest.raises(NotFoundError, match="no delivery 99"):
        await edit(99, RIGHT, by="ada", why="why")
    assert (await shop.operations.show(dead)).delivery.edits == ()


async def test_only_an_unresolved_dead_letter_can_be_edited(shop: Shop) -> None:
    dead = await shop.fail()
    delivered = (await shop.operations.deliveries(Query(status=Status.DELIVERED))).deliveries
    await shop.operations.resolve([dead], by="ada", why="phoned")

    with pytest.raises(UsageError, match=f"Delivery {dead} is resolved; only a dead letter"):
        await shop.operations.edit(dead, RIGHT, by="ada", why="why")
    with pytest.raises(UsageError, match="is delivered; only a dead letter"):
        await shop.operations.edit(delivered[0].id, RIGHT, by="ada", why="why")


async def test_a_payload_too_deep_for_the_store_harms_no_other(store: str) -> None:
    """A claim that cannot read one delivery would get none of them."""
    app = Redrive("memory://")
    app.handler("order.*", name="billing", retry=Retry(max_attempts=1))(print)
    async with Kit(app, store=store) as kit:
        kit.script("billing", [Terminal("no")])
        await app.publish("order.paid")
        await kit.drain()
        deep: object = 1
        for _ in range(900):
            deep = [deep]

        try:
            await kit.operations.edit(1, [[deep]], by="ada", why="deep")
        except PayloadError:
            await kit.operations.replay([1], by="ada")
        await app.publish("order.paid")

        assert (await kit.drain()).delivered == 2


async def test_an_edit_survives_the_synchronous_door_and_json_null(shop: Shop) -> None:
    dead = await shop.fail()

    def act() -> object:
        told = shop.app.sync.operate(
            Operations.edit, dead, None, by="ada", why="nothing", replay=False
        )
        shop.app.sync.close()
        return told.payload

    assert await asyncio.to_thread(act) is None
    assert (await shop.operations.show(dead)).payload is None
    assert (await shop.operations.show(dead)).delivery.payload is not None
