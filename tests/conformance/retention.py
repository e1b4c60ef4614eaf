"""What a store promises about what is kept, for how long, and what goes."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.model.delivery import Status
from redrive.model.event import Event, EventId, Receipt
from redrive.model.outcome import Fault
from redrive.model.replay import ReplayState
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Conflict, NewReplay, Pruned, Selection
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    entries,
    only,
)

__all__ = ["RetentionConformance"]

_DAY = timedelta(days=1)
_SHORT = Retention(delivered=_DAY, events=2 * _DAY, idempotency=2 * _DAY)
_LONG_KEYS = Retention(delivered=_DAY, events=2 * _DAY, idempotency=10 * _DAY)


async def _deliver(world: World, event: Event[msgspec.Raw], *to: str) -> None:
    await world.append(entries(event, to=to or ("billing",)))
    for destination in to or ("billing",):
        await world.settle(await world.claim_one(destination), Delivered())


async def _log(world: World) -> list[EventId]:
    return [one.event.id for one in await world.read_events(limit=1000)]


class RetentionConformance:
    """`Housekeeping.prune` and `Housekeeping.prunable`."""

    async def test_delivered_deliveries_go_when_their_time_is_over(self, world: World) -> None:
        await _deliver(world, an_event())
        world.clock.advance("1h")
        await _deliver(world, late := an_event())
        world.clock.advance("23h")

        pruned = await world.store.prune(_SHORT)

        assert pruned == Pruned(delivered=1)
        assert only(await world.found(status=Status.DELIVERED)).event_id == late.id

    async def test_what_is_not_old_enough_stays(self, world: World) -> None:
        await _deliver(world, an_event(idempotency_key="k"))
        world.clock.advance(_DAY - timedelta(microseconds=1))

        assert await world.store.prunable(_SHORT) == Pruned()
        assert await world.store.prune(_SHORT) == Pruned()
        assert len(await world.found(status=Status.DELIVERED)) == 1

    async def test_pruned_deliveries_are_still_counted(self, world: World) -> None:
        await _deliver(world, an_event(), "billing", "mailing")
        await _deliver(world, an_event(), "mailing")
        world.clock.advance(_DAY)

        await world.store.prune(_SHORT)

        figures = await world.store.figures()
        assert figures.pruned == 3
        assert (await world.figures_of("mailing")).pruned == 2
        assert (await world.figures_of("billing")).delivered == 0
        assert (figures.events, figures.pruned_events) == (2, 0)

    async def test_an_event_goes_when_its_last_delivery_was_settled_long_ago(
        self, world: World
    ) -> None:
        event = an_event()
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.settle(await world.claim_one("billing"), Delivered())
        world.clock.advance(_DAY)
        await world.settle(await world.claim_one("mailing"), Delivered())
        pruned = [await world.store.prune(_SHORT)]
        world.clock.advance(_DAY)

        pruned.append(await world.store.prune(_SHORT))
        kept = await _log(world)
        world.clock.advance(_DAY)
        pruned.append(await world.store.prune(_SHORT))

        assert pruned == [Pruned(delivered=1), Pruned(delivered=1), Pruned(events=1)]
        assert kept == [event.id]
        assert await _log(world) == []
        assert await world.store.find_event(event.id) is None
        assert (await world.store.figures()).pruned_events == 1

    async def test_the_last_settlement_counts_whichever_delivery_goes_last(
        self, world: World
    ) -> None:
        [failed] = await world.publish(event := an_event())
        await world.fail(await world.claim_one())
        await world.store.resolve([failed], actor=OPERATOR)
        other = an_event()
        await world.append(entries(other, to=["billing", "mailing"]))
        await world.fail(await world.claim_one("billing"))
        await world.store.resolve([(await world.find_one(other)).id], actor=OPERATOR)
        world.clock.advance(_DAY)
        await world.settle(await world.claim_one("mailing"), Delivered())
        world.clock.advance(_DAY)

        pruned = await world.store.prune(_SHORT)

        assert pruned == Pruned(delivered=1, resolved=2, events=1)
        assert await world.store.find_event(event.id) is None
        assert await _log(world) == [other.id]

    async def test_what_people_did_is_remembered_for_as_long_as_it_says(self, world: World) -> None:
        retention = msgspec.structs.replace(_SHORT, audit=5 * _DAY)
        first, second = await world.dead_letter(), await world.dead_letter()
        await world.store.resolve([first], actor=OPERATOR)
        world.clock.advance(_DAY)
        await world.store.resolve([second], actor=OPERATOR)
        world.clock.advance(4 * _DAY - timedelta(seconds=1))
        before = await world.store.prune(retention)
        world.clock.advance("1s")

        planned = await world.store.prunable(retention)
        pruned = await world.store.prune(retention)

        assert before.audit == 0
        assert (planned.audit, pruned.audit) == (1, 1)
        [entry] = await world.store.audit()
        assert entry.deliveries == (second,)
        third = await world.dead_letter()
        await world.store.resolve([third], actor=OPERATOR)
        assert (await world.store.audit())[0].id == entry.id + 1

    async def test_few_entries_of_the_audit_log_go_at_a_time(self, world: World) -> None:
        retention = msgspec.structs.replace(_SHORT, audit=5 * _DAY)
        for _ in range(5):
            await world.store.resolve([await world.dead_letter()], actor=OPERATOR)
        world.clock.advance(5 * _DAY)

        gone = [(await world.store.prune(retention, limit=2)).audit for _ in range(4)]

        assert gone == [2, 2, 1, 0]
        assert await world.store.audit() == ()

    async def test_replays_that_are_over_are_forgotten_and_no_others(self, world: World) -> None:
        retention = msgspec.structs.replace(_SHORT, audit=5 * _DAY)
        started = []
        for _ in range(3):
            selection = Selection(ids=(await world.dead_letter(),))
            replay = await world.store.start_replay(NewReplay(selection=selection), actor=OPERATOR)
            assert replay is not None
            started.append(replay.id)
        running, cancelled, late = started
        await world.store.steer_replay(cancelled, ReplayState.CANCELLED, actor=OPERATOR)
        world.clock.advance(_DAY)
        await world.store.steer_replay(late, ReplayState.CANCELLED, actor=OPERATOR)
        world.clock.advance(4 * _DAY)

        planned = await world.store.prunable(retention)
        pruned = await world.store.prune(retention)

        assert (planned.replays, pruned.replays) == (1, 1)
        assert {one.id for one in await world.store.replays()} == {running, late}
        assert await world.store.find_replay(cancelled) is None
        selection = Selection(ids=(await world.dead_letter(),))
        again = await world.store.start_replay(NewReplay(selection=selection), actor=OPERATOR)
        assert again is not None
        assert again.id > late

    async def test_the_older_name_of_a_group_is_forgotten_with_the_audit_log(
        self, world: World
    ) -> None:
        retention = msgspec.structs.replace(_SHORT, audit=5 * _DAY)
        letter = await world.dead_letter(fault=a_fault(group="a"))

        def renamed(fault: Fault, _: str) -> Fault:
            return msgspec.structs.replace(fault, group="m")

        await world.store.regroup(renamed, before="m")
        world.clock.advance(5 * _DAY - timedelta(seconds=1))
        await world.store.prune(retention)
        before = await world.found(group="a")
        world.clock.advance("1s")
        await world.store.prune(retention)

        assert only(before).id == letter
        assert await world.found(group="a") == ()
        assert only(await world.found(group="m")).id == letter

    async def test_whatever_may_still_run_keeps_its_event_and_its_key(self, world: World) -> None:
        pending = an_event(idempotency_key="pending", due=world.after("1000d"))
        running, dead = an_event(idempotency_key="running"), an_event(idempotency_key="dead")
        await world.append(entries(pending))
        await world.dead_letter(dead)
        await world.append(entries(running))
        await world.claim(lease="1000d")
        world.clock.advance("900d")

        pruned = await world.store.prune(_SHORT)

        assert pruned == Pruned()
        for event in (pending, running, dead):
            again = msgspec.structs.replace(event, id=an_event().id)
            result = only((await world.append(entries(again))).results)
            assert isinstance(result, Receipt)
            assert result.is_duplicate

    async def test_a_dead_letter_keeps_an_event_that_arrived_elsewhere(self, world: World) -> None:
        event = an_event()
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.settle(await world.claim_one("mailing"), Delivered())
        await world.fail(await world.claim_one("billing"))
        world.clock.advance("100d")

        pruned = [await world.store.prune(_SHORT) for _ in range(3)]
        [letter] = await world.found(status=Status.FAILED)
        await world.store.replay([letter.id], actor=OPERATOR)

        assert pruned == [Pruned(delivered=1), Pruned(), Pruned()]
        assert (await world.claim_one("billing")).event == event

    async def test_an_event_whose_dead_letter_was_replayed_goes_in_the_end(
        self, world: World
    ) -> None:
        event = an_event()
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.settle(await world.claim_one("mailing"), Delivered())
        await world.fail(await world.claim_one("billing"))
        world.clock.advance("100d")
        await world.store.prune(_SHORT)
        await world.store.replay(
            [one.id for one in await world.found(status=Status.FAILED)], actor=OPERATOR
        )
        await world.settle(await world.claim_one("billing"), Delivered())
        world.clock.advance(_DAY)
        await world.store.prune(_SHORT)

        kept = await _log(world)
        world.clock.advance(_DAY)
        await world.store.prune(_SHORT)

        assert kept == [event.id]
        assert await _log(world) == []

    async def test_an_event_nobody_wanted_goes_and_is_no_longer_counted(self, world: World) -> None:
        await world.append(entries(an_event(), an_event(), to=[]))
        world.clock.advance(2 * _DAY)
        await world.append(entries(an_event(), to=[]))

        pruned = await world.store.prune(_SHORT)

        figures = await world.store.figures()
        assert pruned == Pruned(events=2)
        assert (figures.events, figures.unrouted, figures.pruned_events) == (1, 1, 2)

    async def test_resolved_dead_letters_are_kept_as_long_as_the_log(self, world: World) -> None:
        letter = await world.dead_letter()
        world.clock.advance("30d")
        await world.store.resolve([letter], actor=OPERATOR)
        world.clock.advance(2 * _DAY - timedelta(microseconds=1))

        before = await world.store.prune(_SHORT)
        world.clock.advance(timedelta(microseconds=1))
        after = await world.store.prune(_SHORT)

        assert (before, after) == (Pruned(), Pruned(resolved=1, events=1))
        assert await world.store.find_delivery(letter) is None
        assert (await world.store.figures()).pruned_resolved == 1

    async def test_a_deleted_dead_letter_leaves_its_event_for_a_while(self, world: World) -> None:
        letter = await world.dead_letter()
        world.clock.advance("30d")
        await world.store.delete([letter], actor=OPERATOR)

        before = await world.store.prune(_SHORT)
        world.clock.advance(2 * _DAY)

        assert before == Pruned()
        assert await world.store.prune(_SHORT) == Pruned(events=1)

    async def test_a_key_goes_with_its_event(self, world: World) -> None:
        event = an_event({"n": 1}, idempotency_key="k", source="shop")
        await _deliver(world, event)
        world.clock.advance(2 * _DAY)

        pruned = await world.store.prune(_SHORT)

        assert pruned == Pruned(delivered=1, events=1, keys=1)
        fresh = an_event({"n": 2}, idempotency_key="k", source="shop")
        result = only((await world.append(entries(fresh))).results)
        assert result == Receipt(event_id=fresh.id, destinations=("billing",))

    async def test_a_key_may_be_remembered_longer_than_its_event(self, world: World) -> None:
        event = an_event({"n": 1, "m": 2}, idempotency_key="k", key="a", tenant="t")
        await _deliver(world, event)
        world.clock.advance(2 * _DAY)

        pruned = await world.store.prune(_LONG_KEYS)

        same = an_event(b'{"m": 2, "n": 1}', idempotency_key="k", key="a", tenant="t")
        other = an_event({"n": 2}, idempotency_key="k", key="a", tenant="t")
        results = (await world.append(entries(same, other))).results
        assert pruned == Pruned(delivered=1, events=1)
        assert results == (
            Receipt(event_id=event.id, destinations=("billing",), is_duplicate=True, version=1),
            Conflict(event.id),
        )
        assert await _log(world) == []

    async def test_a_key_that_outlived_its_event_goes_too(self, world: World) -> None:
        await _deliver(world, an_event(idempotency_key="k"))
        world.clock.advance(2 * _DAY)
        await world.store.prune(_LONG_KEYS)
        world.clock.advance(8 * _DAY - timedelta(microseconds=1))

        before = await world.store.prune(_LONG_KEYS)
        world.clock.advance(timedelta(microseconds=1))
        could = await world.store.prunable(_LONG_KEYS)
        after = await world.store.prune(_LONG_KEYS)

        assert (before, could, after) == (Pruned(), Pruned(keys=1), Pruned(keys=1))
        await world.append(entries(fresh := an_event({"n": 2}, idempotency_key="k")))
        assert await _log(world) == [fresh.id]

    async def test_a_batch_is_bounded_and_takes_the_oldest(self, world: World) -> None:
        events = [an_event() for _ in range(5)]
        for event in events:
            await _deliver(world, event)
            world.clock.advance("1s")
        world.clock.advance(_DAY)

        pruned = await world.store.prune(_SHORT, limit=2)

        left = await world.found(status=Status.DELIVERED)
        assert pruned == Pruned(delivered=2)
        assert sorted(one.event_id for one in left) == sorted(one.id for one in events[2:])

    async def test_what_could_be_pruned_is_what_is_pruned(self, world: World) -> None:
        await _deliver(world, an_event(idempotency_key="k"), "billing", "mailing")
        await world.append(entries(an_event(), to=[]))
        letter = await world.dead_letter(an_event(idempotency_key="l"))
        await world.store.resolve([letter], actor=OPERATOR)
        await world.dead_letter(an_event(idempotency_key="m"))
        world.clock.advance("1d")
        await _deliver(world, an_event())
        world.clock.advance("1d")

        planned = await world.store.prunable(_SHORT)
        done = await world.store.prune(_SHORT)

        assert planned == done == Pruned(delivered=3, resolved=1, events=3, keys=2)
        assert await world.store.prunable(_SHORT) == Pruned()

    async def test_positions_are_never_given_twice(self, world: World) -> None:
        await _deliver(world, an_event())
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)

        await world.append(entries(an_event()))

        [logged] = await world.logged(1)
        assert logged.position.number == 2
        assert await world.read_events(after=logged.position) == ()

    async def test_the_figures_equal_a_recount_after_a_prune(self, world: World) -> None:
        for number in range(4):
            await _deliver(world, an_event(idempotency_key=str(number)))
        await world.dead_letter()
        await world.publish(an_event())
        world.clock.advance(3 * _DAY)
        await world.store.prune(_SHORT, limit=3)

        figures = await world.store.figures()

        counted = sum(
            one.pending + one.in_flight + one.delivered + one.failed + one.resolved + one.pruned
            for one in figures.destinations
        )
        assert counted == 6
        assert figures.events == len(await world.read_events())
        assert figures.events + figures.pruned_events == 6

    async def test_pruning_leaves_lanes_as_they_are(self, world: World) -> None:
        await world.publish(*[an_event(key="k") for _ in range(3)], to="ledger")
        await world.settle(await world.claim_one("ledger"), Delivered())
        world.clock.advance(_DAY)

        await world.store.prune(_SHORT)

        assert len((await world.claim("ledger")).deliveries) == 1
        assert (await world.figures_of("ledger")).behind == 1
