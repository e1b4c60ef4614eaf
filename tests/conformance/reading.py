"""What a store promises to readers of the log, and to publishers who count the events of a key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.model.event import Event, Receipt
from redrive.model.position import LOG_START, LogPosition
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Conflict, Entry, LoggedEvent, Query, VersionConflict
from tests.conformance.world import OPERATOR, World, an_event, an_id, entries, only

__all__ = ["LogConformance", "LogReaderConformance", "VersionConformance"]

_DAY = timedelta(days=1)
_SHORT = Retention(delivered=_DAY / 2, events=_DAY, idempotency=30 * _DAY)


def expecting(
    version: int, *events: Event[msgspec.Raw], to: Sequence[str] = ("billing",)
) -> list[Entry]:
    """Return the events as entries that each expect the version."""
    return [Entry(event, tuple(to), version) for event in events]


class LogConformance:
    """`EventLog.read_events`."""

    async def test_the_log_is_in_commit_order_whatever_the_ids(self, world: World) -> None:
        for number in (3, 1, 2):
            await world.publish(an_event(id=an_id(number)))

        logged = await world.logged(3)
        assert [one.event.id for one in logged] == [an_id(3), an_id(1), an_id(2)]
        assert [one.position for one in logged] == sorted({one.position for one in logged})

    async def test_the_log_is_read_on_from_a_position(self, world: World) -> None:
        events = [an_event() for _ in range(5)]
        await world.publish(*events)
        await world.logged(5)

        first = await world.read_events(limit=2)
        rest = await world.read_events(after=first[-1].position)
        end = await world.read_events(after=rest[-1].position)

        assert [one.event.id for one in (*first, *rest)] == [event.id for event in events]
        assert len(first) == 2
        assert len(end) == 0

    async def test_one_event_at_a_time_reads_the_whole_log(self, world: World) -> None:
        events = [an_event(key=key) for key in ("a", "b", "a", None)]
        await world.publish(*events)
        await world.logged(4)

        read: list[LoggedEvent] = []
        while len(read) <= len(events) and (
            page := await world.read_events(after=read[-1].position if read else LOG_START, limit=1)
        ):
            read += page

        assert [one.event for one in read] == events

    async def test_a_position_survives_being_written_down(self, world: World) -> None:
        await world.publish(an_event(), an_event())

        first, second = await world.logged(2)
        kept = LogPosition.parse(str(first.position))

        assert kept == first.position
        assert await world.read_events(after=kept) == (second,)

    async def test_the_log_is_read_on_from_an_event_that_has_gone(self, world: World) -> None:
        for destination in ("mailing", "billing", "ledger"):
            await world.publish(an_event(), to=destination)
        first, gone, last = [one.position for one in await world.logged(3)]
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)

        after = [await world.read_events(after=one) for one in (LOG_START, first, gone, last)]

        found = [[one.position for one in some] for some in after]
        assert found == [[first, last], [last], [last], []]

    async def test_what_comes_after_a_log_that_is_empty_again_is_read(self, world: World) -> None:
        await world.publish(an_event())
        seen = only(await world.logged(1)).position
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)
        new = an_event()
        await world.publish(new)

        logged = only(await world.logged(1, after=seen))

        assert logged.event == new
        assert logged.position > seen

    async def test_what_was_read_keeps_its_place(self, world: World) -> None:
        """Whatever becomes of its deliveries, and of the events around it."""
        await world.publish(an_event(), an_event(key="k"))
        dead = await world.dead_letter(an_event(key="k"), to="mailing")
        before = await world.logged(3)

        await world.store.backfill("ledger", [1], actor=OPERATOR)
        await world.store.replay([dead], actor=OPERATOR)
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)
        await world.publish(an_event(key="k"))

        after = await world.logged(4)
        assert tuple(after[:3]) == tuple(before)

    async def test_no_event_is_skipped_or_repeated_while_many_publish(self, world: World) -> None:
        await world.version()
        batches = [[an_event(key=f"k{each % 3}") for each in range(4)] for _ in range(6)]
        publishing = [
            asyncio.ensure_future(world.append(entries(*batch, to=["billing", "ledger"])))
            for batch in batches
        ]

        read: list[LoggedEvent] = []
        for publish in asyncio.as_completed(publishing):
            await publish
            read += await world.read_events(after=read[-1].position if read else LOG_START, limit=5)
        read += await world.logged(24 - len(read), after=read[-1].position if read else LOG_START)

        published = {event.id for batch in batches for event in batch}
        assert {one.event.id for one in read} == published
        assert len(read) == 24
        for key in ("k0", "k1", "k2"):
            versions = [one.version for one in read if one.event.key == key]
            assert versions == list(range(1, len(versions) + 1))

    async def test_an_event_that_was_refused_is_not_in_the_log(self, world: World) -> None:
        await world.append(entries(an_event({"n": 1}, idempotency_key="k")))

        await world.append(entries(an_event({"n": 2}, idempotency_key="k")))
        await world.append(expecting(7, an_event(key="k")))
        last = an_event()
        await world.publish(last)

        assert [one.event for one in await world.logged(2)][1:] == [last]


class LogReaderConformance:
    """`EventLog` by type and by key, its end, and `DeliveryQueue.wait` since a mark."""

    async def test_only_events_that_fit_are_returned_and_all_are_passed(self, world: World) -> None:
        types = ("order.paid", "mail.sent", "order_paid", "order.sent", "mail.sent")
        await world.publish(*[an_event(type=one) for one in types])
        logged = await world.logged(5)

        fitting = ["order.*", "mail.bounced"]
        first = await world.store.read_events(types=fitting, limit=3)
        second = await world.store.read_events(after=first.reached, types=fitting, limit=3)
        third = await world.store.read_events(after=second.reached, types=fitting, limit=3)

        assert [one.event.type for one in (*first.events, *second.events)] == [
            "order.paid",
            "order.sent",
        ]
        assert (first.reached, second.reached) == (logged[2].position, logged[4].position)
        assert (first.is_end, second.is_end) == (False, True)
        assert (third.events, third.reached, third.is_end) == ((), second.reached, True)

    async def test_a_stretch_without_a_fitting_event_is_not_the_end(self, world: World) -> None:
        await world.publish(*[an_event(type="mail.sent") for _ in range(2)])
        await world.publish(an_event(type="order.paid"))
        logged = await world.logged(3)

        page = await world.store.read_events(types=["order.paid"], limit=2)

        assert (page.events, page.reached, page.is_end) == ((), logged[1].position, False)

    async def test_the_history_of_a_key_is_read_by_its_versions(self, world: World) -> None:
        for key in ("a", "b", "a", None, "a", "a"):
            await world.publish(an_event(key=key))
        logged = [one for one in await world.logged(6) if one.event.key == "a"]

        first = await world.store.read_key("a", limit=3)
        rest = await world.store.read_key("a", after=3)

        assert [*first, *rest] == logged
        assert [one.version for one in first] == [1, 2, 3]
        assert await world.store.read_key("nobody") == ()

    async def test_an_empty_key_has_a_history_too(self, world: World) -> None:
        event = an_event(key="")
        await world.publish(event, an_event())

        assert [one.event for one in await world.store.read_key("")] == [event]

    async def test_what_has_gone_is_missing_in_the_history_of_its_key(self, world: World) -> None:
        await world.publish(an_event(key="a"), to="billing")
        await world.publish(an_event(key="a"), to="ledger")
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)

        assert [one.version for one in await world.store.read_key("a")] == [2]

    async def test_the_end_of_the_log_parts_what_was_from_what_comes(self, world: World) -> None:
        before = await world.store.end_of_log()
        await world.publish(an_event(), an_event())
        await world.logged(2)
        end = await world.store.end_of_log()
        new = an_event()
        await world.publish(new)

        assert len(await world.logged(3, after=before)) == 3
        assert [one.event for one in await world.logged(1, after=end)] == [new]

    async def test_a_reader_hears_what_a_claim_has_already_looked_for(self, world: World) -> None:
        mark = world.store.mark()
        await world.publish(an_event())
        await world.claim()

        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1), since=mark))
        assert await world.settles(waiting, within="1m", give_up=True)

    async def test_a_reader_that_saw_it_all_waits_whatever_nobody_has_claimed(
        self, world: World
    ) -> None:
        await world.publish(an_event())
        mark = world.store.mark()

        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1), since=mark))
        assert not await world.settles(waiting, within="0s")
        await world.publish(an_event())
        assert await world.settles(waiting, within="1m", give_up=True)


class VersionConformance:
    """Versions of keys, in `EventLog.append`."""

    async def test_each_key_counts_its_events_from_one(self, world: World) -> None:
        keys = ("a", "b", "a", None, "a")

        receipts = await world.receipts(entries(*[an_event(key=key) for key in keys]))
        [later] = await world.receipts(entries(an_event(key="b")))

        assert [one.version for one in receipts] == [1, 1, 2, None, 3]
        assert later.version == 2
        logged = await world.logged(6)
        assert [one.version for one in logged] == [1, 1, 2, None, 3, 2]

    async def test_an_empty_key_is_a_key_and_none_is_not(self, world: World) -> None:
        batch = [*entries(an_event(), an_event()), *expecting(0, an_event(key=""))]

        receipts = await world.receipts(batch)
        [later] = await world.receipts(expecting(1, an_event(key="")))

        assert [one.version for one in (*receipts, later)] == [None, None, 1, 2]

    async def test_the_version_that_was_expected_is_stored(self, world: World) -> None:
        first = await world.receipts(expecting(0, an_event(key="a")))
        second = await world.receipts(expecting(1, an_event(key="a")))
        other = await world.receipts(expecting(0, an_event(key="b")))

        assert [one.version for one in (*first, *second, *other)] == [1, 2, 1]

    async def test_another_version_than_expected_stores_nothing(self, world: World) -> None:
        await world.append(entries(an_event(key="a"), an_event(key="a")))

        appended = await world.append(
            [
                *expecting(0, an_event(key="a")),
                *expecting(1, an_event(key="a", idempotency_key="once")),
                *expecting(3, an_event(key="a")),
                *expecting(1, an_event(key="b"), to=[]),
            ]
        )

        assert appended.results == (*[VersionConflict(2)] * 3, VersionConflict(0))
        assert len(await world.logged(2)) == 2
        assert len(await world.found()) == 0
        figures = await world.store.figures()
        assert (figures.events, figures.unrouted) == (2, 0)

    async def test_what_was_refused_leaves_no_trace(self, world: World) -> None:
        """Neither its idempotency key is taken, nor a version of its key."""
        await world.append(entries(an_event(key="a")))
        await world.append(expecting(5, an_event({"n": 1}, key="a", idempotency_key="once")))
        await world.append(expecting(5, an_event(key="new")))

        receipts = await world.receipts(
            [
                *expecting(1, an_event({"n": 2}, key="a", idempotency_key="once")),
                *expecting(0, an_event(key="new")),
            ]
        )

        assert [(one.version, one.is_duplicate) for one in receipts] == [(2, False), (1, False)]

    async def test_versions_are_expected_of_the_batch_so_far(self, world: World) -> None:
        await world.append(entries(an_event(key="a")))

        receipts = await world.receipts(
            [
                *expecting(1, an_event(key="a")),
                *entries(an_event(key="a")),
                *expecting(3, an_event(key="a")),
                *expecting(0, an_event(key="b")),
            ],
            all_or_nothing=True,
        )

        assert [one.version for one in receipts] == [2, 3, 4, 1]

    async def test_in_a_shared_commit_only_the_wrong_one_is_refused(self, world: World) -> None:
        await world.append(entries(an_event(key="a")))
        batch = [
            *expecting(1, an_event(key="a")),
            *expecting(1, an_event(key="a", idempotency_key="once")),
            *entries(an_event(key="a"), an_event()),
            *expecting(3, an_event(key="a")),
        ]

        results = (await world.append(batch)).results

        versions = [one.version if isinstance(one, Receipt) else one for one in results]
        assert versions == [2, VersionConflict(2), 3, None, 4]
        assert [one.version for one in await world.logged(5)] == [1, 2, 3, None, 4]

    async def test_what_repeats_a_refused_one_is_judged_by_itself(self, world: World) -> None:
        refused = an_event({"n": 1}, key="a", idempotency_key="once")
        again = an_event({"n": 1}, key="a", idempotency_key="once")

        results = (await world.append([*expecting(3, refused), *entries(again)])).results

        receipt = Receipt(event_id=again.id, destinations=("billing",), version=1)
        assert results == (VersionConflict(0), receipt)

    async def test_all_or_nothing_keeps_the_batch_out_for_one_version(self, world: World) -> None:
        await world.append(entries(an_event(key="a")))

        results = (
            await world.append(
                [
                    *entries(an_event(key="b", idempotency_key="once")),
                    *expecting(7, an_event(key="a")),
                ],
                all_or_nothing=True,
            )
        ).results

        assert results[1] == VersionConflict(1)
        assert len(await world.logged(1)) == 1
        [kept] = await world.receipts(expecting(0, an_event(key="b", idempotency_key="once")))
        assert (kept.version, kept.is_duplicate) == (1, False)

    async def test_an_idempotency_key_answers_before_the_version_is_asked(
        self, world: World
    ) -> None:
        first = an_event({"n": 1}, key="a", idempotency_key="once")
        await world.append(expecting(0, first))
        await world.append(entries(an_event(key="a")))

        again = an_event({"n": 1}, key="a", idempotency_key="once")
        other = an_event({"n": 2}, key="a", idempotency_key="once")
        same, conflict = (await world.append(expecting(0, again, other))).results

        assert same == Receipt(
            event_id=first.id, destinations=("billing",), is_duplicate=True, version=1
        )
        assert conflict == Conflict(first.id)

    async def test_a_publisher_that_never_heard_may_expect_the_same_again(
        self, world: World
    ) -> None:
        event = an_event(key="a")
        answer = await world.append(expecting(0, event), all_or_nothing=True)

        again = await world.append(expecting(0, event), all_or_nothing=True)

        assert again == answer
        assert len(await world.logged(1)) == 1

    async def test_of_many_that_expect_the_same_version_one_is_stored(self, world: World) -> None:
        await world.version()

        results = await asyncio.gather(
            *[world.append(expecting(0, an_event(key="a"))) for _ in range(8)]
        )

        stored = [one for [one] in (each.results for each in results) if isinstance(one, Receipt)]
        refused = [one for [one] in (each.results for each in results) if one not in stored]
        assert [one.version for one in stored] == [1]
        assert refused == [VersionConflict(1)] * 7
        assert len(await world.logged(1)) == 1

    async def test_a_key_goes_on_counting_when_its_events_have_gone(self, world: World) -> None:
        first = an_event(key="a", idempotency_key="once")
        await world.publish(first, an_event(key="a"))
        for _ in range(2):
            await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)
        assert (await world.store.prune(_SHORT)).events == 2

        refused = only((await world.append(expecting(0, an_event(key="a")))).results)
        known = msgspec.structs.replace(first, id=an_event().id)
        receipts = await world.receipts([*entries(known), *expecting(2, an_event(key="a"))])

        assert refused == VersionConflict(2)
        assert [(one.version, one.is_duplicate) for one in receipts] == [(1, True), (3, False)]

    async def test_a_letter_that_comes_back_is_one_more_event_of_its_key(
        self, world: World
    ) -> None:
        await world.dead_letter(an_event(key="a"))
        letter = only((await world.store.letters(Query())).letters)
        await world.store.discard([letter], actor=OPERATOR, detail="a file")
        world.clock.advance(2 * _DAY)
        await world.store.prune(_SHORT)

        await world.store.restore([letter], actor=OPERATOR)
        [receipt] = await world.receipts(entries(an_event(key="a")))

        assert [one.version for one in await world.logged(2)] == [2, 3]
        assert receipt.version == 3

    async def test_lanes_and_versions_go_together(self, world: World) -> None:
        """Expecting a version of a key neither holds its lane up nor changes its order."""
        await world.append(expecting(0, an_event(key="a"), to=["ledger"]))
        await world.append(expecting(0, an_event(key="a"), to=["ledger"]))
        await world.append(expecting(1, an_event(key="a"), to=["ledger"]))

        order = await world.run_all("ledger")

        assert len(order) == 2
        assert order == sorted(order)
