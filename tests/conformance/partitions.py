"""What a store promises about partitions of a projection: each goes on by itself, all are one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import UsageError
from redrive.model.event import EventId
from redrive.model.position import LOG_START
from redrive.model.projection import partition_of
from redrive.model.retention import Retention
from redrive.store import LogPage, Projected, Projecting, ProjectionFigures, Swapping
from tests.conformance.projecting import LEASE, DeadAtOnce, Reader, log
from tests.conformance.versions import Version
from tests.conformance.world import OPERATOR, World, only

__all__ = ["PartitionConformance"]

_DAY = timedelta(days=1)
_KEYS = ("a", "b", "c", "d", "ключ", "k'\\%_", "", "order-1", "order-2", None, None, None)
"""Some for each of two partitions, and some that are no plain words."""
ONE, OTHER = ("order-1", "order-2")


class _Partition(Reader):
    """One of several partitions, whichever it gets."""

    @property
    def number(self) -> int:
        assert self.turn is not None
        return self.turn.checkpoint.partition

    async def read_on(self) -> Projected:
        """Apply what is left of it, all of which can be read by now."""
        found = await self.world.store.projections()
        whole = only([one for one in found if one.checkpoint.projection == self.name])
        after = whole.parts[self.number].checkpoint.position
        page = await self.world.store.read_events(
            after=after, types=self.types, partition=self.number, partitions=self.partitions
        )
        return await self.apply(page, after=after)


class Part(_Partition, DeadAtOnce):
    """A partition of `ledger`."""

    def __init__(self, world: World, worker: str = "reader", *, of: int = 2) -> None:
        super().__init__(world, worker)
        self.partitions = of


class _PartOfVersion(_Partition, Version):
    """One of two partitions of a version of `ledger`."""

    partitions = 2


async def _readers(world: World, count: int = 2, worker: str = "reader") -> list[Part]:
    """Return readers of one worker that have all partitions, in their order."""
    readers: list[Part] = []
    for _ in range(count):
        reader = Part(world, worker, of=count)
        reader.held = [one.number for one in readers]
        assert await reader.begin()
        readers.append(reader)
    return sorted(readers, key=lambda one: one.number)


async def _whole(world: World) -> ProjectionFigures:
    return only(await world.store.projections())


def _where(ids: list[EventId], keys: tuple[str | None, ...], partition: int) -> list[EventId]:
    return [
        one for one, key in zip(ids, keys, strict=True) if partition_of(key, one, 2) == partition
    ]


class PartitionConformance:
    """Partitions of `Projections`."""

    async def test_each_event_is_read_for_the_partition_of_its_key(self, world: World) -> None:
        ids = await log(world, *_KEYS)
        await world.logged(len(ids))

        pages = [
            await world.store.read_events(partition=one, partitions=2, types=types)
            for types in ((), ("order.*", "mail.*"))
            for one in (0, 1)
        ]
        unwanted = await world.store.read_events(partition=0, partitions=2, types=("mail.*",))

        expected = [_where(ids, _KEYS, 0), _where(ids, _KEYS, 1)]
        assert [[one.event.id for one in page.events] for page in pages] == expected * 2
        assert {(page.reached, page.is_end) for page in pages} == {(unwanted.reached, True)}
        assert unwanted.events == ()

    async def test_a_partition_is_read_page_by_page(self, world: World) -> None:
        ids = await log(world, *_KEYS)
        await world.logged(len(ids))
        found: list[EventId] = []
        place, pages = LOG_START, 0
        while True:
            page = await world.store.read_events(after=place, partition=1, partitions=2, limit=3)
            found += [one.event.id for one in page.events]
            place, pages = page.reached, pages + 1
            if page.is_end:
                break

        assert found == _where(ids, _KEYS, 1)
        assert pages == len(ids) // 3 + 1

    async def test_partitions_go_on_each_by_itself(self, world: World) -> None:
        keys = (ONE, OTHER, ONE)
        ids = await log(world, *keys)
        await world.logged(3)
        readers = await _readers(world)
        await readers[0].read_on()
        before = await _whole(world)
        await readers[1].read_on()
        after = await _whole(world)

        assert [one.applied for one in readers] == [_where(ids, keys, 0), _where(ids, keys, 1)]
        assert [one.checkpoint.count for one in before.parts] == [
            len(readers[0].applied),
            0,
        ]
        assert before.parts[1].checkpoint.position == LOG_START
        assert [one.is_caught_up for one in before.parts] == [True, False]
        assert (before.is_caught_up, after.is_caught_up) == (False, True)
        assert before.checkpoint.position == LOG_START
        assert before.events_behind == len(readers[1].applied)
        assert before.oldest_at == before.parts[1].oldest_at
        assert (after.checkpoint.count, after.checkpoint.partitions) == (3, 2)
        assert after.checkpoint.event_id in ids

    async def test_a_partition_has_one_owner_at_a_time(self, world: World) -> None:
        await log(world, ONE, OTHER)
        await world.logged(2)
        mine = await _readers(world)
        other = Part(world, "other")
        other.world.clock.advance(LEASE + timedelta(seconds=1))
        assert await other.begin()

        ending = [(await one.read_on()).ending for one in mine]
        theirs = await other.read_on()

        expected = [Projecting.KEPT, Projecting.KEPT]
        expected[other.number] = Projecting.REFUSED
        assert (ending, theirs.ending) == (expected, Projecting.KEPT)
        assert mine[other.number].applied == []
        tokens = (await world.store.log_news(LOG_START)).tokens
        assert other.turn is not None
        assert tokens["ledger", other.number] == other.turn.token

    async def test_workers_share_partitions_evenly_and_leave_them_be(self, world: World) -> None:
        first = await _readers(world, 4, "first")
        second: list[Part] = []
        for _ in range(3):
            reader = Part(world, "second", of=4)
            reader.held = [one.number for one in second]
            if await reader.begin():
                second.append(reader)
        mine = {one.number for one in second}
        left = [one.number for one in first if one.number not in mine]
        back = Part(world, "first", of=4)
        back.held = left

        assert (len(mine), len(left)) == (2, 2)
        assert not await back.begin()
        world.clock.advance(LEASE + timedelta(seconds=1))
        assert await back.begin()
        assert back.number in mine

    async def test_a_key_that_is_parked_holds_up_no_other_partition(self, world: World) -> None:
        keys = (ONE, OTHER, ONE)
        ids = await log(world, *keys)
        await world.logged(3)
        readers = await _readers(world)
        for one in readers:
            one.poison = {ids[0]}
            await one.read_on()

        whole = await _whole(world)
        home = partition_of(ONE, "", 2)
        assert (whole.handed_over, whole.parked_keys) == (2, 1)
        assert [one.handed_over for one in whole.parts] == [2 * (home == 0), 2 * (home == 1)]
        assert ids[1] in readers[1 - home].applied
        assert [one.event_id for one in await readers[0].deliveries()] == [ids[0], ids[2]]

    async def test_after_a_reset_one_partition_empties_for_all(self, world: World) -> None:
        ids = await log(world, ONE, OTHER)
        await world.logged(2)
        before = await _readers(world)
        for one in before:
            await one.read_on()
        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        reset = await _whole(world)
        late = [(await one.read_on()).ending for one in before]
        emptied: list[object] = []
        anew = await _readers(world)
        for one in anew:
            one.truncate = emptied.append
            await one.read_on()

        assert (reset.checkpoint.count, reset.checkpoint.is_reset) == (0, True)
        assert [one.checkpoint.position for one in reset.parts] == [LOG_START, LOG_START]
        assert late == [Projecting.REFUSED, Projecting.REFUSED]
        assert len(emptied) == 1
        assert sorted(one for reader in anew for one in reader.applied) == sorted(ids)
        whole = await _whole(world)
        assert (whole.is_caught_up, whole.checkpoint.is_reset) == (True, False)
        assert whole.checkpoint.rebuild is not None
        assert (whole.checkpoint.rebuild.total, whole.progress) == (2, 1.0)
        assert whole.checkpoint.rebuild.ended_at is not None

    async def test_a_rebuild_goes_on_until_all_partitions_are_through(self, world: World) -> None:
        await log(world, ONE, OTHER)
        await world.logged(2)
        await _readers(world)
        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        first, _ = await _readers(world)
        await first.read_on()

        whole = await _whole(world)
        assert whole.checkpoint.rebuild is not None
        assert whole.checkpoint.rebuild.is_running
        assert await world.store.cancel_rebuild("ledger", actor=OPERATOR)
        assert (await first.read_on()).ending is Projecting.REFUSED
        held = await _readers(world)
        assert {(await one.read_on()).ending for one in held} == {Projecting.HELD}

    async def test_what_one_partition_has_not_read_is_kept(self, world: World) -> None:
        keep = Retention(delivered=_DAY / 2, events=_DAY, idempotency=30 * _DAY)
        await log(world, ONE, OTHER)
        await world.logged(2)
        first, second = await _readers(world)
        await first.read_on()
        world.clock.advance(2 * _DAY)

        kept = (await world.store.prune(keep)).events
        await second.begin()
        await second.read_on()

        assert kept == 0
        assert (await world.store.prune(keep)).events == 2

    async def test_an_event_is_reached_when_its_own_partition_is_past_it(
        self, world: World
    ) -> None:
        keys = (ONE, OTHER, None, None, None, None)
        ids = await log(world, *keys)
        await world.logged(len(ids))
        readers = await _readers(world)
        await readers[1].read_on()

        reached = [one for one in ids if await world.store.has_applied("ledger", one)]

        assert reached == _where(ids, keys, 1)

    async def test_readers_get_a_version_once_all_its_partitions_have_caught_up(
        self, world: World
    ) -> None:
        await log(world, ONE, OTHER)
        await world.logged(2)
        first = Version(world, 1)
        await first.begin()
        await first.project(2)
        parts = [_PartOfVersion(world, 2), _PartOfVersion(world, 2)]
        await parts[0].begin()
        parts[1].held = [parts[0].number]
        await parts[1].begin()
        await parts[0].read_on()

        assert await parts[0].swap() is Swapping.BEHIND
        await parts[1].read_on()

        assert await parts[0].swap() is Swapping.SWAPPED
        serving = [one for one in await world.store.projections() if one.is_serving]
        assert [one.checkpoint.projection for one in serving] == ["ledger.v2"]
        assert await first.swap() is Swapping.SWAPPED

    async def test_all_partitions_are_dropped_and_none_that_is_read(self, world: World) -> None:
        await _readers(world)
        world.clock.advance(LEASE)
        other = Part(world, "other")
        await other.begin()
        with pytest.raises(UsageError, match="read by the worker other"):
            await world.store.drop_projection("ledger", lease=LEASE, actor=OPERATOR)
        world.clock.advance(LEASE)

        await world.store.drop_projection("ledger", lease=LEASE, actor=OPERATOR)

        assert list(await world.store.projections()) == []

    async def test_one_partition_becomes_several_where_it_stands(self, world: World) -> None:
        ids = await log(world, ONE, OTHER)
        alone = Reader(world, "alone")
        await alone.begin()
        await alone.project(2)
        many = Part(world, "other")
        early = await many.begin()
        world.clock.advance(LEASE + timedelta(seconds=1))
        more = await log(world, ONE, OTHER)
        await world.logged(4)
        readers = await _readers(world, worker="other")
        for one in readers:
            await one.read_on()

        assert not early
        assert alone.applied == ids
        assert sorted(one for reader in readers for one in reader.applied) == sorted(more)
        whole = await _whole(world)
        assert (whole.checkpoint.count, whole.is_caught_up) == (4, True)
        late = await alone.apply(
            LogPage(events=(), reached=LOG_START, is_end=True), after=LOG_START
        )
        assert late.ending is Projecting.REFUSED

    async def test_partitions_that_are_not_equally_far_stay_as_many(self, world: World) -> None:
        await log(world, ONE, OTHER)
        await world.logged(2)
        first, second = await _readers(world)
        await first.read_on()
        world.clock.advance(LEASE + timedelta(seconds=1))
        three = Part(world, "other", of=3)
        with pytest.raises(UsageError, match=r"has 2 partitions.*redrive projection reset ledger"):
            await three.begin()
        assert len((await _whole(world)).parts) == 2

        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        emptied: list[object] = []
        readers = await _readers(world, 3, "other")
        for one in readers:
            one.truncate = emptied.append
            await one.read_on()

        assert sum(len(one.applied) for one in readers) == 2
        assert len(emptied) == 1
        assert (await second.read_on()).ending is Projecting.REFUSED

    async def test_a_projection_that_halts_does_so_in_all_partitions(self, world: World) -> None:
        await log(world, ONE, OTHER)
        await world.logged(2)
        readers = await _readers(world)
        await world.store.pause("ledger", actor=OPERATOR)

        assert {(await one.read_on()).ending for one in readers} == {Projecting.HELD}
