"""What a store promises about dead letters on their way out, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec

from redrive.archive import read_line, write_line
from redrive.clock import Rng
from redrive.model.delivery import Attempt, Cycle, Delivery, Resolution, Status
from redrive.model.destination import Destination, Order
from redrive.model.edit import Change, ChangeKind, Edit
from redrive.model.event import Event, Receipt
from redrive.model.letter import Letter
from redrive.model.outcome import Exchange, Fault
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, Failed, FailureReason
from redrive.store import Query, Settled
from redrive.testing.fakes import SeededRng
from tests.conformance.letters import edit
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["LetterConformance"]

T = TypeVar("T")

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


def _exchange(number: int) -> Exchange:
    return Exchange(
        method="POST",
        url="https://api.example.com/hooks",
        headers={"content-type": "application/json", "webhook-id": str(number)},
        size=70_000,
        sent=f'{{"order":{number},"pad":"{"x" * 2**15}"',
        is_sent_cut=True,
        status=500,
        reason="Internal Server Error",
        answer_headers={"x-request": f"r-{number}"},
        body=f"no such order: {number} \x00 \N{SNOWMAN}",
    )


async def _an_exchanged_letter(world: World, number: int) -> Letter:
    await world.publish(an_event({"order": number}))
    leased = await world.claim_one()
    failed = Failed(reason=FailureReason.TERMINAL, fault=a_fault())
    settled = Settled(lease=leased.lease, settlement=failed, exchange=_exchange(number))
    await world.store.settle([settled])
    return next(one for one in await _letters(world) if one.delivery.id == leased.lease.delivery_id)


_PIECES = (
    "",
    "a",
    "\n",
    '"',
    "\\",
    "\N{SNOWMAN}",
    "\U0001f600",
    "\x9b",
    "[redacted]",
    "%2F",
)


class _Dice:
    """The same letters each time."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def below(self, limit: int) -> int:
        return min(limit - 1, int(self._rng.uniform(0, limit)))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]


def _any_text(dice: _Dice) -> str:
    return "".join(dice.pick(_PIECES) for _ in range(dice.below(6)))


def _any_json(dice: _Dice, depth: int = 3) -> object:
    inner = dice.below(4) if depth else 0
    names = [f"{number}{_any_text(dice)}" for number in range(inner)]
    return dice.pick(
        [
            dice.pick([None, True, False, _any_text(dice), "\x00"]),
            dice.below(2 * 10**25) - 10**25,
            dice.below(2**40) / 7,
            [_any_json(dice, depth - 1) for _ in range(inner)],
            {name: _any_json(dice, depth - 1) for name in names},
        ]
    )


def _any_event(dice: _Dice) -> Event[msgspec.Raw]:
    return an_event(
        msgspec.json.encode(_any_json(dice)),
        tenant=dice.pick([None, "acme", "a\nb"]),
        key=dice.pick([None, "", "k"]),
        source=dice.pick(["", "shop"]),
        headers={"authorization": "Bearer x", "n": "\N{SNOWMAN}"} if dice.below(2) else {},
    )


def _any_fault(dice: _Dice) -> Fault:
    return msgspec.structs.replace(
        a_fault(_any_text(dice)), stack=_any_text(dice), code=dice.pick(["", "E1"])
    )


def _any_story(dice: _Dice, told: Delivery) -> Delivery:
    """Return the delivery with what may or may not be part of its story."""
    change = Change(path="a[0]", kind=ChangeKind.CHANGED, before=_any_text(dice), after="1")
    at = told.enqueued_at
    edits = tuple(
        Edit(by="ann", at=at, why=_any_text(dice), changes=(change,), more=dice.below(3))
        for _ in range(dice.below(3))
    )
    tried = Attempt(
        number=1, started_at=at, ended_at=at, worker="w", result="retry", fault=_any_fault(dice)
    )
    cycle = Cycle(
        attempts=3,
        reason=FailureReason.EXHAUSTED,
        fault=_any_fault(dice),
        failed_at=at,
        generation="default",
        replayed_at=at,
        replayed_by="ann",
        first_failed_at=dice.pick([None, at]),
        log=(tried,),
    )
    resolution = Resolution(by="bob", at=at, why=_any_text(dice))
    return msgspec.structs.replace(
        told,
        attempts=dice.below(2**31),
        auto_replays=dice.below(5),
        log=(tried,) * dice.below(3),
        cycles=(cycle,) * dice.below(3),
        exchange=dice.pick([None, _exchange(dice.below(9))]),
        edits=edits,
        payload=msgspec.Raw(msgspec.json.encode(_any_json(dice))) if edits else None,
        resolution=resolution if dice.below(3) == 0 else None,
    )


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

    async def test_a_letter_keeps_what_was_sent_and_answered(self, world: World) -> None:
        letters = [await _an_exchanged_letter(world, number) for number in range(3)]
        silent = await world.dead_letter()
        letters += [one for one in await _letters(world) if one.delivery.id == silent]
        await world.store.delete([one.delivery.id for one in letters], actor=OPERATOR)

        restored = await world.store.restore(letters, actor=OPERATOR)

        assert [one.delivery.exchange for one in letters] == [*map(_exchange, range(3)), None]
        for number, letter in zip(restored.deliveries, letters, strict=True):
            assert (await world.show(number)).exchange == letter.delivery.exchange
        assert [_but_for_id(one.delivery) for one in await _letters(world)] == [
            _but_for_id(one.delivery) for one in letters
        ]

    async def test_the_oldest_letters_are_whole_too(self, world: World) -> None:
        letter = await _an_exchanged_letter(world, 7)

        found = await world.store.oldest_letters(letter.delivery.destination)

        assert list(found) == [letter]

    async def test_whatever_a_letter_holds_comes_back(self, world: World) -> None:
        """Letters of every shape, each through a line of a file."""
        dice = _Dice(SeededRng(31))
        for _ in range(12):
            dead = await world.dead_letter(_any_event(dice), fault=_any_fault(dice))
            [letter] = await _letters(world)
            told = _any_story(dice, letter.delivery)
            given = read_line(write_line(Letter(event=letter.event, delivery=told)))
            await world.store.delete([dead], actor=OPERATOR)

            restored = await world.store.restore([given], actor=OPERATOR)

            [back] = await _letters(world, with_resolved=True)
            assert (back.event, bytes(back.event.payload)) == (
                letter.event,
                bytes(letter.event.payload),
            )
            assert _but_for_id(back.delivery) == _but_for_id(told)
            await world.store.delete(restored.deliveries, actor=OPERATOR)

    async def test_a_letter_comes_back_to_a_store_that_never_saw_its_event(
        self, world: World
    ) -> None:
        letter = await _a_storied_letter(world)
        await world.store.delete([letter.delivery.id], actor=OPERATOR)
        world.clock.advance("100d")
        await world.store.prune(Retention())
        assert await world.read_events() == ()

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
        assert "elsewhere" not in routes.destinations_for("order.paid", None)

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
