"""What a store promises about versions of a projection: readers have one, and it is whole."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from redrive.errors import NotFoundError, UsageError
from redrive.model.audit import AuditQuery
from redrive.model.delivery import DeliveryId
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import destination_of, table_of
from redrive.model.retention import Retention
from redrive.store import LoggedEvent, Projecting, ProjectionFigures, Query, Swapping
from tests.conformance.projecting import LEASE, DeadAtOnce, log
from tests.conformance.world import LEDGER, OPERATOR, World

__all__ = ["RebuildConformance", "VersionsConformance"]

_DAY = timedelta(days=1)


class Version(DeadAtOnce):
    """A version of `ledger`, with a table."""

    def __init__(self, world: World, version: int) -> None:
        name = destination_of("ledger", version)
        super().__init__(world, f"reader-{version}", to=name)
        address = getattr(world.store, "address", None)
        self.version = version
        self.seen: list[object] = []
        self.tables = (f"{address.schema}.sums" if address else "sums",)

    async def begin(self, begin: LogPosition = LOG_START) -> bool:
        await self.world.store.register([replace(LEDGER, name=self.name, patterns=(".",))])
        return await super().begin(begin)

    async def write(self, connection: object, logged: LoggedEvent) -> None:
        self.seen.append(logged.payload)

    async def create(self, connection: object) -> None:
        [table] = self.tables
        done = connection.execute(  # type: ignore[attr-defined]  # of a driver
            f"CREATE TABLE {table_of(table, self.version)} (key TEXT, n INTEGER)"
        )
        if hasattr(done, "__await__"):
            await done

    async def swap(
        self, *, through: LogPosition | None = None, accepts_parked: bool = False
    ) -> Swapping:
        end = await self.world.store.end_of_log() if through is None else through
        return await self.world.store.swap_projection(
            self.name, through=end, accepts_parked=accepts_parked, actor=OPERATOR
        )


async def _two(world: World, *keys: str) -> tuple[Version, Version]:
    """Return two versions that begin at the start, the first of which has read everything."""
    first, second = Version(world, 1), Version(world, 2)
    await log(world, *keys)
    await first.begin()
    await second.begin()
    await first.project(len(keys))
    return first, second


async def _serving(world: World) -> list[int]:
    found: list[ProjectionFigures] = list(await world.store.projections())
    return [one.checkpoint.version for one in found if one.is_serving]


class VersionsConformance:
    """The versions of `Projections`."""

    async def test_versions_read_beside_each_other(self, world: World) -> None:
        first, second = await _two(world, "a", "b")
        await second.project(2)

        found = [one.checkpoint for one in await world.store.projections()]

        assert first.applied == second.applied
        assert [(one.projection, one.name, one.version) for one in found] == [
            ("ledger", "ledger", 1),
            ("ledger.v2", "ledger", 2),
        ]
        assert found[1].own_tables == tuple(f"{one}_v2" for one in second.tables)
        assert await _serving(world) == [1]

    async def test_readers_get_a_version_that_has_caught_up(self, world: World) -> None:
        _, second = await _two(world, "a", "b")
        await second.project(2)

        swapping = await second.swap()

        assert (swapping, await _serving(world)) == (Swapping.SWAPPED, [2])
        [entry] = await world.store.audit(AuditQuery(), limit=1)
        assert (entry.action, entry.by) == ("swap_projection", OPERATOR.by)
        assert entry.detail == "ledger from version 1 to 2"

    async def test_readers_never_get_a_version_that_is_behind(self, world: World) -> None:
        _, second = await _two(world, "a", "b")

        assert await second.swap() is Swapping.BEHIND
        assert await second.swap(through=LOG_START) is Swapping.BEHIND
        assert await _serving(world) == [1]
        await second.project(2)
        await log(world, "a")
        await world.logged(3)
        assert await second.swap() is Swapping.BEHIND
        await second.project(1)
        assert await second.swap() is Swapping.SWAPPED

    async def test_what_a_version_does_not_want_does_not_keep_it(self, world: World) -> None:
        _, second = await _two(world, "a")
        second.types = ("mail.*",)
        await second.begin()
        await second.prepare()

        assert await second.swap() is Swapping.SWAPPED

    async def test_a_version_that_is_to_begin_anew_is_behind(self, world: World) -> None:
        _, second = await _two(world, "a")
        await second.project(1)
        end = await world.store.end_of_log()
        await world.store.reset_projection(second.name, to=end, actor=OPERATOR)

        assert await second.swap() is Swapping.BEHIND

    async def test_readers_get_a_version_with_failures_if_somebody_says_so(
        self, world: World
    ) -> None:
        _, second = await _two(world, "a", "b")
        second.poison = {(await world.logged(2))[0].event.id}
        await second.project(2)

        assert await second.swap() is Swapping.PARKED
        assert await second.swap(accepts_parked=True) is Swapping.SWAPPED

    async def test_readers_can_have_the_old_version_back(self, world: World) -> None:
        first, second = await _two(world, "a")
        await second.project(1)
        await second.swap()

        assert await first.swap() is Swapping.SWAPPED
        assert await _serving(world) == [1]

    async def test_a_swap_that_would_change_nothing_is_refused(self, world: World) -> None:
        first, second = await _two(world, "a")
        with pytest.raises(UsageError, match="the one that readers have"):
            await first.swap()
        second.tables = ()
        await second.begin()
        await second.project(1)
        with pytest.raises(UsageError, match="names no tables"):
            await second.swap()
        with pytest.raises(NotFoundError, match="projection"):
            await Version(world, 3).swap()

    async def test_a_version_is_dropped_without_the_others(self, world: World) -> None:
        first, second = await _two(world, "a", "b")
        second.poison = {(await world.logged(2))[0].event.id}
        await second.project(2)
        world.clock.advance(LEASE)
        with pytest.raises(UsageError, match="Readers have version 1"):
            await world.store.drop_projection(first.name, lease=LEASE, actor=OPERATOR)

        gone = await world.store.drop_projection(second.name, lease=LEASE, actor=OPERATOR)

        assert gone == 1
        assert await _letters(world) == []
        assert await _serving(world) == [1]
        await world.store.drop_projection(first.name, lease=LEASE, actor=OPERATOR)


class RebuildConformance:
    """The rebuilds of `Projections`."""

    async def test_a_rebuild_tells_how_far_it_is(self, world: World) -> None:
        first, second = await _two(world, "a", "b", "c")
        assert (await first.checkpoint()).rebuild is None
        before = (await second.checkpoint()).rebuild
        assert before is not None
        assert (before.total, before.is_running, before.is_partial) == (3, True, False)

        await second.project(3)

        after = (await second.checkpoint()).rebuild
        assert after is not None
        assert (after.is_running, after.ended_at) == (False, world.clock.now())
        await world.store.reset_projection(
            second.name, to=LOG_START, actor=OPERATOR, rate=7.5, is_strict=True
        )
        again = (await second.checkpoint()).rebuild
        assert again is not None
        assert (again.total, again.rate, again.is_strict) == (3, 7.5, True)
        found = [one.progress for one in await world.store.projections()]
        assert found == [None, 0.0]

    async def test_a_strict_rebuild_waits_at_each_event_that_fails(self, world: World) -> None:
        _, second = await _two(world, "a", "b", "c")
        ids = [one.event.id for one in await world.logged(3)]
        await world.store.reset_projection(
            second.name, to=LOG_START, actor=OPERATOR, is_strict=True
        )
        await second.begin()
        second.poison = {ids[1]}

        stopped = await second.project(3)
        held = await second.project(1)
        assert (set(second.applied), held.ending) == ({ids[0]}, Projecting.HELD)
        assert stopped.reached == (await second.checkpoint()).position
        await world.store.resolve(await _letters(world), actor=OPERATOR)
        await second.project(1)

        assert set(second.applied) == {ids[0], ids[2]}
        assert (await second.checkpoint()).count == 2

    async def test_a_cancelled_rebuild_applies_nothing_more(self, world: World) -> None:
        _, second = await _two(world, "a")
        turn = second.turn

        assert await world.store.cancel_rebuild(second.name, actor=OPERATOR)

        [entry] = await world.store.audit(AuditQuery(), limit=1)
        assert (entry.action, entry.detail) == ("cancel_rebuild", second.name)
        late = await second.project(1)
        await second.begin()
        assert turn is not second.turn
        held = await second.project(1)
        assert (late.ending, held.ending) == (Projecting.REFUSED, Projecting.HELD)
        assert second.applied == []
        assert not await world.store.cancel_rebuild(second.name, actor=OPERATOR)
        with pytest.raises(NotFoundError, match="projection"):
            await world.store.cancel_rebuild("billing", actor=OPERATOR)

    async def test_what_people_made_of_events_is_used_again(self, world: World) -> None:
        first = Version(world, 1)
        ids = await log(world, "a", "b")
        first.poison = {ids[0]}
        await first.begin()
        await first.project(2)
        [letter] = await _letters(world)
        [delivery] = (await world.store.find(Query())).deliveries
        before = (await world.logged(1))[0].event.payload
        done = await world.store.edit(
            delivery.id,
            before=before,
            payload=msgspec.Raw(b'{"mended": true}'),
            changes=(),
            more=0,
            actor=OPERATOR,
            is_replayed=False,
        )
        assert (letter, done) == (delivery.id, True)

        await world.store.reset_projection(first.name, to=LOG_START, actor=OPERATOR)
        await first.begin()
        first.poison = set()
        first.seen.clear()
        await first.project(2)
        second = Version(world, 2)
        second.poison = {ids[0]}
        await second.begin()
        await second.project(2)

        assert first.seen[0] == second.seen[0] == {"mended": True}
        assert first.seen[1] != {"mended": True}
        rebuild = (await first.checkpoint()).rebuild
        assert rebuild is not None
        assert (rebuild.edits, rebuild.edited) == (1, (ids[0],))
        [parked] = (await world.store.find(Query())).deliveries
        assert [edit.by for edit in parked.edits] == [OPERATOR.by]

    async def test_readers_never_get_a_version_that_lacks_events(self, world: World) -> None:
        keep = Retention(delivered=_DAY / 2, events=_DAY, idempotency=30 * _DAY)
        first = Version(world, 1)
        await log(world, "a")
        await first.begin()
        await first.project(1)
        world.clock.advance(2 * _DAY)
        assert (await world.store.prune(keep)).events == 1
        second = Version(world, 2)
        await second.begin()
        await second.prepare()

        assert await second.swap() is Swapping.PARTIAL

        await world.store.reset_projection(second.name, to=LOG_START, actor=OPERATOR)
        await second.begin()
        await second.prepare()
        assert await second.swap() is Swapping.SWAPPED


async def _letters(world: World) -> list[DeliveryId]:
    return [one.id for one in (await world.store.find(Query())).deliveries]
