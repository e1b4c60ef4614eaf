"""What a store promises about what cannot be read: it stands in nobody's way."""

from __future__ import annotations

import msgspec
import pytest

from redrive.model.delivery import Status
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Query
from tests.conformance.world import OPERATOR, World, an_event, entries

__all__ = ["UnreadableConformance"]

BROKEN = [
    b"{",
    b"",
    b'1},"type":"order.forged","x":{"y":1',
    b"[" * 50_000 + b"]" * 50_000,  # deeper than any interpreter decodes
    b"nul",
    b'"\\ud800"',
]
"""Payloads that no publisher of this release lets through; one of another may have."""

broken = pytest.mark.parametrize("payload", BROKEN, ids=lambda raw: repr(raw[:12]))


class UnreadableConformance:
    """Events whose documents are no JSON, among others."""

    @broken
    async def test_it_is_claimed_with_the_reason_beside_others(
        self, world: World, payload: bytes
    ) -> None:
        events = [an_event(1), an_event(payload), an_event(3)]
        await world.append(entries(*events))

        claim = await world.claim()

        assert [one.event.id for one in claim.deliveries] == [one.id for one in events]
        assert [bool(one.unreadable) for one in claim.deliveries] == [False, True, False]
        sound = [one for one in claim.deliveries if not one.unreadable]
        assert [msgspec.json.decode(one.event.payload) for one in sound] == [1, 3]

    @broken
    async def test_it_is_claimed_in_its_lane(self, world: World, payload: bytes) -> None:
        events = [an_event(payload, key="k"), an_event(2, key="k")]
        await world.append(entries(*events, to=["ledger"]))

        first = await world.claim_one("ledger")
        await world.fail(first)
        await world.store.resolve([first.lease.delivery_id], actor=OPERATOR)

        assert first.unreadable
        assert (await world.claim_one("ledger")).event == events[1]

    @broken
    async def test_it_can_be_found_looked_at_and_exported(
        self, world: World, payload: bytes
    ) -> None:
        event = an_event(payload)
        await world.append(entries(event, an_event(2)))
        leased, other = (await world.claim()).deliveries
        await world.fail(leased)
        await world.fail(other)

        for query in (Query(), Query(text="order"), Query(status=Status.FAILED, event_id=event.id)):
            page = await world.store.find(query, limit=10)
            assert event.id in [one.event_id for one in page.deliveries] or query.text
        assert (await world.show(leased.lease.delivery_id)).event_id == event.id
        assert sum(one.count for one in await world.groups()) == 2
        letters = (await world.store.letters(Query(), limit=10)).letters
        assert [one.event.id for one in letters] == [event.id, other.event.id]
        assert [one.event.type for one in letters] == ["order.paid"] * 2
        for letter in letters:
            assert msgspec.json.decode(letter.event.payload) is not None
        assert len(await world.logged(2)) == 2
        found = await world.store.find_event(event.id)
        assert found is not None
        assert found.id == event.id

    @broken
    async def test_a_person_makes_it_good_with_a_payload(
        self, world: World, payload: bytes
    ) -> None:
        await world.append(entries(an_event(payload)))
        leased = await world.claim_one()
        await world.fail(leased)
        number = leased.lease.delivery_id
        found = await world.store.find_event(leased.event.id)
        assert found is not None

        is_done = await world.store.edit(
            number,
            before=found.payload,
            payload=msgspec.Raw(b'{"order":1}'),
            changes=(),
            more=0,
            actor=OPERATOR,
            is_replayed=True,
        )

        again = await world.claim_one()
        assert is_done
        assert again.unreadable == ""
        assert bytes(again.event.payload) == b'{"order":1}'
        await world.settle(again, Delivered())

    @broken
    async def test_it_is_pruned_like_any_other(self, world: World, payload: bytes) -> None:
        await world.append(entries(an_event(payload), an_event(2)))
        for one in (await world.claim()).deliveries:
            await world.settle(one, Delivered())
        world.clock.advance("100d")
        retention = Retention()

        planned = await world.store.prunable(retention)
        pruned = await world.store.prune(retention, limit=100)

        assert (planned.delivered, pruned.delivered) == (2, 2)

    @broken
    async def test_it_is_in_the_log_that_a_backfill_reads(
        self, world: World, payload: bytes
    ) -> None:
        await world.append(entries(an_event(payload), an_event(2), to=["mailing"]))

        log = await world.store.read_log("billing", after=0, limit=10)

        assert len(log.missing) == 2
        backfilled = await world.store.backfill(
            "billing", [position for position, _ in log.missing], generation=None, actor=OPERATOR
        )
        assert backfilled.added == 2
        claimed = (await world.claim()).deliveries
        assert [bool(one.unreadable) for one in claimed] == [True, False]
