"""What a store promises about dead letters that are too many, and duties that one worker does."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.audit import Actor
from redrive.model.destination import Destination
from redrive.model.retention import Keep, Retention
from redrive.model.settlement import FailureReason
from redrive.store import MOST_COUNTED, Pruned
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

__all__ = ["LimitConformance", "WatchConformance", "WorkloadConformance"]

_DAY = timedelta(days=1)
_SHORT = Retention(delivered=_DAY, events=2 * _DAY, idempotency=2 * _DAY)


class LimitConformance:
    """`Housekeeping.hoards`, `Housekeeping.oldest_letters` and `Housekeeping.discard`."""

    async def test_only_destinations_with_a_limit_have_a_hoard(self, world: World) -> None:
        await world.dead_letter()
        keep = Keep(age="90d", count=2)
        await world.store.register(
            [Destination(name="gateway", patterns=("order.*",), dead_letters=keep)]
        )
        oldest = world.now
        for _ in range(2):
            await world.dead_letter(to="gateway")
            world.clock.advance("1h")
        resolved = await world.dead_letter(to="gateway")
        await world.store.resolve([resolved], actor=OPERATOR)

        hoard = only(await world.store.letter_quotas())

        assert (hoard.destination, hoard.keep) == ("gateway", keep)
        assert (hoard.count, hoard.oldest, hoard.now) == (2, oldest, world.now)
        assert (await world.figures_of("gateway")).keep == keep

    async def test_the_oldest_letters_come_first_and_whole(self, world: World) -> None:
        events = [an_event({"n": number}, tenant="t") for number in range(3)]
        for event in events:
            await world.dead_letter(event, fault=a_fault("no such account"))
            world.clock.advance("1s")
        await world.dead_letter(to="mailing")

        letters = await world.store.oldest_letters("billing", limit=2)

        assert [one.event for one in letters] == events[:2]
        assert letters[0].delivery == await world.find_one(events[0])
        assert letters[0].delivery.fault == a_fault("no such account")
        assert letters[0].delivery.log

    async def test_discarded_letters_are_gone_counted_and_on_record(self, world: World) -> None:
        for _ in range(3):
            await world.dead_letter()
        letters = await world.store.oldest_letters("billing", limit=2)

        gone = await world.store.discard(letters, actor=Actor("redrive", "limit"), detail="a.jsonl")

        assert list(gone) == [one.delivery.id for one in letters]
        assert len(await world.found()) == 1
        figures = await world.store.figures()
        assert (figures.exported, figures.deleted, figures.events) == (2, 0, 3)
        entry = only(await world.store.audit())
        assert (entry.action, entry.by, entry.why) == ("export", "redrive", "limit")
        assert (entry.count, entry.deliveries, entry.detail) == (2, tuple(gone), "a.jsonl")

    async def test_letters_that_changed_since_are_not_discarded(self, world: World) -> None:
        replayed, again, resolved = [await world.dead_letter() for _ in range(3)]
        letters = await world.store.oldest_letters("billing")
        await world.store.replay([again], actor=OPERATOR)
        world.clock.advance("1s")
        await world.fail(await world.claim_one())
        await world.store.replay([replayed], actor=OPERATOR)
        await world.store.resolve([resolved], actor=OPERATOR)

        gone = await world.store.discard(letters, actor=OPERATOR, detail="")

        assert list(gone) == []
        assert (await world.show(again)).is_dead_letter
        assert (await world.store.figures()).exported == 0
        assert [one.action for one in await world.store.audit()].count("export") == 0

    async def test_a_letter_that_was_edited_since_is_not_discarded(self, world: World) -> None:
        edited = await world.dead_letter(an_event({}))
        letters = await world.store.oldest_letters("billing")
        await edit(world, edited, b'{"total":1}', before=b"{}")

        gone = await world.store.discard(letters, actor=OPERATOR, detail="")

        assert list(gone) == []
        current = await world.store.oldest_letters("billing")
        assert list(await world.store.discard(current, actor=OPERATOR, detail="")) == [edited]

    async def test_a_discarded_letter_frees_its_lane(self, world: World) -> None:
        first, second = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
        await world.fail(await world.claim_one("ledger"))
        [letter] = await world.store.oldest_letters("ledger")

        await world.store.discard([letter], actor=OPERATOR, detail="")

        assert letter.delivery.id == first
        assert ids_of(await world.claim("ledger")) == [second]

    async def test_the_event_of_a_discarded_letter_is_kept_for_a_while(self, world: World) -> None:
        await world.dead_letter()
        world.clock.advance("30d")
        letters = await world.store.oldest_letters("billing")
        await world.store.discard(letters, actor=OPERATOR, detail="")

        before = await world.store.prune(_SHORT)
        world.clock.advance(2 * _DAY)

        assert before == Pruned()
        assert await world.store.prune(_SHORT) == Pruned(events=1)


class WatchConformance:
    """`Housekeeping.take_watch`."""

    async def test_a_watch_is_one_workers_until_it_ends(self, world: World) -> None:
        span = timedelta(seconds=30)
        assert await world.store.take_watch("keeping", "a", span=span)
        assert not await world.store.take_watch("keeping", "b", span=span)
        assert await world.store.take_watch("other", "b", span=span)

        world.clock.advance("30s")

        assert await world.store.take_watch("keeping", "b", span=span)
        assert not await world.store.take_watch("keeping", "a", span=span)

    async def test_a_turn_that_is_taken_again_goes_on(self, world: World) -> None:
        span = timedelta(seconds=30)
        await world.store.take_watch("keeping", "a", span=span)
        for _ in range(3):
            world.clock.advance("20s")
            assert await world.store.take_watch("keeping", "a", span=span)
            assert not await world.store.take_watch("keeping", "b", span=span)

    async def test_a_worker_that_retires_gives_its_turn_back(self, world: World) -> None:
        await world.store.take_watch("keeping", "a", span=timedelta(hours=1))

        await world.store.retire("a")

        assert await world.store.take_watch("keeping", "b", span=timedelta(hours=1))


class WorkloadConformance:
    """`Inspection.workload`, and what `Inspection.figures` tells those who alert."""

    async def test_due_work_is_counted_by_destination_and_generation(self, world: World) -> None:
        await world.publish(an_event(), an_event(), an_event(generation="green"))
        await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
        await world.publish(an_event(due=world.after("1h")), to="mailing")
        await world.publish(an_event(due=world.after("1m"), generation="green"), to="mailing")
        world.clock.advance("2m")

        workload = await world.store.workload()

        counted = [(one.destination, one.generation, one.count) for one in workload.due]
        assert counted == [
            ("billing", "default", 2),
            ("billing", "green", 1),
            ("ledger", "default", 1),
            ("mailing", "green", 1),
        ]
        assert workload.now == world.now
        assert (await world.store.figures()).due == workload.due

    async def test_of_a_long_backlog_only_so_many_are_counted(self, world: World) -> None:
        await world.append(entries(*[an_event() for _ in range(MOST_COUNTED + 5)]))
        await world.publish(an_event(generation="green"))

        workload = await world.store.workload()

        counted = [(one.generation, one.count) for one in workload.due]
        assert counted == [("default", MOST_COUNTED), ("green", 1)]
        assert [one.count for one in (await world.store.figures()).due] == [MOST_COUNTED + 5, 1]

    async def test_a_suspect_is_due_work_like_any_other(self, world: World) -> None:
        await world.suspect()

        due = only((await world.store.workload()).due)

        assert (due.destination, due.count) == ("billing", 1)

    async def test_dead_letters_are_counted_for_those_who_alert(self, world: World) -> None:
        oldest = world.now
        await world.dead_letter(an_event(tenant="acme"), reason=FailureReason.EXHAUSTED)
        world.clock.advance("10m")
        await world.dead_letter(an_event(tenant="acme"), to="mailing")
        await world.dead_letter(an_event(tenant="zeta"))
        resolved = await world.dead_letter(an_event(tenant="zeta"))
        await world.store.resolve([resolved], actor=OPERATOR)
        world.clock.advance("1m")

        letters = (await world.store.figures()).letters

        assert (letters.count, letters.oldest, letters.lately) == (3, oldest, 2)
        assert letters.per_minute == 2 * 60 / letters.span.total_seconds()
        assert letters.by_reason == ((FailureReason.TERMINAL, 2), (FailureReason.EXHAUSTED, 1))
        assert letters.by_tenant == (("acme", 2), ("zeta", 1))

    async def test_only_the_tenants_with_the_most_dead_letters_are_named(
        self, world: World
    ) -> None:
        for number in range(12):
            await world.dead_letter(an_event(tenant=f"t{number:02}"))
        await world.dead_letter(an_event(tenant="t11"))

        letters = (await world.store.figures()).letters

        assert letters.by_tenant[0] == ("t11", 2)
        assert [name for name, _ in letters.by_tenant[1:]] == [f"t{one:02}" for one in range(9)]
