"""What a store promises about dead letters on their way out, and back."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.model.delivery import Delivery, Status
from redrive.model.destination import Destination, Order
from redrive.model.event import Receipt
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Query
from redrive.testing.conformance.letters import edit
from redrive.testing.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["LetterConformance"]

_REMEMBERING = Retention(
    delivered=timedelta(days=1), events=timedelta(days=1), idempotency=timedelta(days=50)
)


async def _letters(world: World, **query: object) -> list[Letter]:
    page = await world.store.letters(Query(**query))  # type: ignore[arg-type]
    return list(page.letters)


def _but_for_id(delivery: Delivery) -> Delivery:
    return msgspec.structs.replace(delivery, id=0)


async def _a_storied_letter(world: World) -> Letter:
    """Return a dead letter with a past: retried, failed, replayed, failed again."""
    event = an_event(
        b'{ "n": 1.0 }', tenant="acme", source="shop", idempotency_key="k", headers={"a": "b"}
    )
    letter = await world.dead_letter(event, fault=a_fault("first"))
    world.clock.advance("1h")
    await world.store.replay([letter], actor=OPERATOR, generation="green")
    leased = only((await world.claim(generations=["green"])).deliveries)
    await world.retry(leased, "1s")
    world.clock.advance("1s")
    leased = only((await world.claim(generations=["green"])).deliveries)
    await world.fail(leased, fault=a_fault("second"))
    return only(await _letters(world))


class LetterConformance:
    """`Letters`."""

    async def test_a_letter_holds_the_whole_event_and_its_story(self, world: World) -> None:
        letter = await _a_storied_letter(world)

        assert letter.delivery == await world.find_one(letter.event)
        assert bytes(letter.event.payload) == b'{ "n": 1.0 }'
        assert len(letter.delivery.log) == 2
        assert only(letter.delivery.cycles).fault.message == "first"

    async def test_letters_are_dead_letters_that_match(self, world: World) -> None:
        await world.dead_letter(wanted := an_event(tenant="acme"))
        await world.dead_letter(an_event(tenant="zeta"))
        await world.publish(an_event(tenant="acme"))
        resolved = await world.dead_letter(an_event(tenant="acme"), to="mailing")
        await world.store.resolve([resolved], actor=OPERATOR)

        found = await _letters(world, tenant="acme", status=Status.PENDING)

        assert [one.event for one in found] == [wanted]
        assert len(await _letters(world, tenant="acme", with_resolved=True)) == 2

    async def test_pages_of_letters_neither_repeat_nor_skip(self, world: World) -> None:
        ids = []
        for _ in range(5):
            ids.append(await world.dead_letter())
            world.clock.advance("1s")

        seen, cursor = [], None
        while True:
            page = await world.store.letters(Query(), cursor=cursor, limit=2)
            seen += [one.delivery.id for one in page.letters]
            cursor = page.next_cursor
            if cursor is None:
                break

        assert seen == ids

    async def test_letters_come_in_publish_order_however_they_failed(self, world: World) -> None:
        ids = await world.publish(*[an_event(key="k") for _ in range(4)], to="ledger")
        for number in reversed(ids):
            await world.cancel([number])
            world.clock.advance("1s")

        assert [one.delivery.id for one in await _letters(world)] == list(ids)

    async def test_restored_letters_of_a_key_keep_the_order_they_are_given_in(
        self, world: World
    ) -> None:
        events = [an_event(n, key="k") for n in range(4)]
        ids = await world.publish(*events, to="ledger")
        await world.cancel(ids)
        letters = await _letters(world)
        await world.store.delete(ids, actor=OPERATOR)

        restored = await world.store.restore(letters, actor=OPERATOR)
        await world.store.replay(restored.deliveries, actor=OPERATOR)

        order = []
        for _ in events:
            leased = await world.claim_one("ledger")
            order.append(leased.event)
            await world.settle(leased, Delivered())
        assert order == events

    async def test_a_letter_comes_back_as_it_was(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)

        restored = await world.store.restore([letter], actor=OPERATOR)

        [back] = await _letters(world)
        assert (restored.deliveries, restored.known) == ((back.delivery.id,), 0)
        assert back.event == letter.event
        assert _but_for_id(back.delivery) == _but_for_id(letter.delivery)
        assert len(await world.logged(1)) == 1

    async def test_a_letter_comes_back_to_a_store_that_never_saw_its_event(
        self, world: World
    ) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        world.clock.advance("100d")
        await world.store.prune(Retention())
        assert await world.store.read_events() == ()

        await world.store.restore([letter], actor=OPERATOR)

        [back] = await _letters(world)
        assert back.event == letter.event
        assert _but_for_id(back.delivery) == _but_for_id(letter.delivery)
        assert (await world.store.figures()).unrouted == 0
        again = msgspec.structs.replace(letter.event, id=an_event().id)
        result = only((await world.append(entries(again))).results)
        assert isinstance(result, Receipt)
        assert (result.event_id, result.is_duplicate) == (letter.event.id, True)

    async def test_an_edited_letter_comes_back_with_what_it_carries(self, world: World) -> None:
        edited = await world.dead_letter(an_event({}))
        await edit(world, edited, b'{"total":1.50}', before=b"{}")
        [letter] = await _letters(world)
        await world.store.delete([edited], actor=OPERATOR)

        restored = await world.store.restore([letter], actor=OPERATOR)

        [back] = await _letters(world)
        assert bytes(back.event.payload) == b"{}"
        assert _but_for_id(back.delivery) == _but_for_id(letter.delivery)
        assert len(back.delivery.edits) == 1
        await world.store.replay(restored.deliveries, actor=OPERATOR)
        assert bytes((await world.claim_one()).event.payload) == b'{"total":1.50}'

    async def test_a_letter_keeps_how_often_it_was_replayed_but_not_by_which(
        self, world: World
    ) -> None:
        """The replay is another store's, and so is the number."""
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        told = msgspec.structs.replace(letter.delivery, replay=7, auto_replays=2)

        await world.store.restore([Letter(event=letter.event, delivery=told)], actor=OPERATOR)

        [back] = await _letters(world)
        assert (back.delivery.replay, back.delivery.auto_replays) == (None, 2)

    async def test_restoring_twice_changes_nothing(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        await world.store.restore([letter, letter], actor=OPERATOR)
        audit, before = await world.store.audit(), await _letters(world)

        again = await world.store.restore([letter], actor=OPERATOR)

        assert (again.deliveries, again.known) == ((), 1)
        assert await _letters(world) == before
        assert await world.store.audit() == audit

    async def test_a_delivery_that_is_there_is_left_alone(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.replay([letter.delivery.id], actor=OPERATOR)
        pending = await world.show(letter.delivery.id)

        restored = await world.store.restore([letter], actor=OPERATOR)

        assert restored.known == 1
        assert await world.show(letter.delivery.id) == pending

    async def test_restored_letters_are_on_record(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)

        restored = await world.store.restore([letter], actor=OPERATOR)

        entry = (await world.store.audit())[0]
        assert (entry.action, entry.by, entry.why) == ("import", OPERATOR.by, OPERATOR.why)
        assert (entry.count, entry.deliveries) == (1, restored.deliveries)

    async def test_a_restored_letter_can_be_replayed(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        restored = await world.store.restore([letter], actor=OPERATOR)

        await world.store.replay(restored.deliveries, actor=OPERATOR, generation="default")

        leased = await world.claim_one()
        assert leased.event == letter.event
        assert len((await world.show(leased.lease.delivery_id)).cycles) == 2
        assert not await world.settle(leased, Delivered())

    async def test_a_key_that_was_used_since_stays_with_whoever_uses_it(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        world.clock.advance("100d")
        await world.store.prune(Retention())
        new = an_event({"n": 2}, source="shop", idempotency_key="k")
        await world.append(entries(new))

        await world.store.restore([letter], actor=OPERATOR)

        again = msgspec.structs.replace(new, id=an_event().id)
        result = only((await world.append(entries(again))).results)
        assert isinstance(result, Receipt)
        assert result.event_id == new.id
        assert only(await _letters(world)).event == letter.event

    async def test_a_key_that_outlived_its_event_finds_it_again(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        world.clock.advance("2d")
        await world.store.prune(_REMEMBERING)

        await world.store.restore([letter], actor=OPERATOR)
        world.clock.advance("100d")
        await world.store.prune(_REMEMBERING)

        again = msgspec.structs.replace(letter.event, id=an_event().id)
        result = only((await world.append(entries(again))).results)
        assert isinstance(result, Receipt)
        assert (result.event_id, result.is_duplicate) == (letter.event.id, True)

    async def test_an_unknown_destination_is_added_as_removed(self, world: World) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        stray = msgspec.structs.replace(
            letter, delivery=msgspec.structs.replace(letter.delivery, destination="elsewhere")
        )
        version = (await world.store.routes()).version

        await world.store.restore([stray], actor=OPERATOR)

        figures = await world.figures_of("elsewhere")
        assert (figures.failed, figures.is_removed) == (1, True)
        routes = await world.store.routes()
        assert routes.version == version
        assert "elsewhere" not in routes.destinations_for("order.paid")

    async def test_a_restored_letter_of_an_ordered_destination_comes_last_in_its_lane(
        self, world: World
    ) -> None:
        old = await world.dead_letter(an_event(key="k"), to="ledger")
        [letter] = await _letters(world)
        await world.store.delete([old], actor=OPERATOR)
        [first] = await world.publish(an_event(key="k"), to="ledger")
        restored = await world.store.restore([letter], actor=OPERATOR)
        await world.store.replay(restored.deliveries, actor=OPERATOR)
        [last] = await world.publish(an_event(key="k"), to="ledger")

        order = []
        for _ in range(3):
            leased = await world.claim_one("ledger")
            order.append(leased.lease.delivery_id)
            assert (await world.claim("ledger")).deliveries == ()
            await world.settle(leased, Delivered())

        assert order == [first, *restored.deliveries, last]

    async def test_a_restored_letter_is_passed_by_where_order_skips(self, world: World) -> None:
        skipping = Destination(name="skipper", patterns=("order.*",), order=Order.SKIP)
        await world.store.register([skipping])
        old = await world.dead_letter(an_event(key="k"), to="skipper")
        [letter] = await _letters(world)
        await world.store.delete([old], actor=OPERATOR)
        await world.store.restore([letter], actor=OPERATOR)

        [after] = await world.publish(an_event(key="k"), to="skipper")

        assert ids_of(await world.claim("skipper")) == [after]
