"""What a store promises to projections: one reader at a time, each event once, order kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

import pytest

from redrive.errors import NotFoundError, UsageError
from redrive.model.audit import AuditQuery
from redrive.model.delivery import Delivery, DeliveryId, Lease, Status
from redrive.model.event import EventId
from redrive.model.outcome import Fault
from redrive.model.position import LOG_START, LogPosition
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt
from redrive.store import (
    Checkpoint,
    LoggedEvent,
    LogPage,
    Projected,
    Projecting,
    Query,
    ReaderTurn,
    Settled,
)
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["LEASE", "DeadAtOnce", "ProjectionConformance", "ProjectionEffectConformance", "log"]

LEASE = timedelta(seconds=15)
_DAY = timedelta(days=1)
_FAULT = Fault(error_class="Poison", message="bad", rule="test")


class Reader:
    """A projection into `ledger`, which keeps order, that fails for the keys in `poison`."""

    version = 1
    tables: tuple[str, ...] = ()
    partitions = 1
    held: Collection[int] = ()

    def __init__(self, world: World, worker: str = "reader", *, to: str = "ledger") -> None:
        self.world = world
        self.worker = worker
        self.name = to
        self.poison: set[EventId] = set()
        self.applied: list[EventId] = []
        self.is_fatal = self.is_not_emptied = False
        self.types: tuple[str, ...] = ()
        self.truncate: Callable[[object], None] = lambda _: None
        self.turn: ReaderTurn | None = None

    async def begin(self, begin: LogPosition = LOG_START) -> bool:
        """Tell that its worker lives, and take the turn."""
        await self.world.store.heartbeat(self.worker, [], lease=LEASE)
        self.turn = await self.world.store.take_turn(
            self.name,
            worker=self.worker,
            lease=LEASE,
            begin=begin,
            types=self.types,
            version=self.version,
            tables=self.tables,
            partitions=self.partitions,
            held=self.held,
        )
        return self.turn is not None

    async def checkpoint(self) -> Checkpoint:
        found = [one.checkpoint for one in await self.world.store.projections()]
        return only([one for one in found if one.projection == self.name])

    async def read(self, count: int, *, after: LogPosition | None = None) -> LogPage:
        """Return a page behind the checkpoint, once so many events can be read."""
        place = (await self.checkpoint()).position if after is None else after
        await self.world.logged(count, after=place)
        return await self.world.store.read_events(after=place)

    async def project(self, count: int) -> Projected:
        """Apply the next events."""
        place = (await self.checkpoint()).position
        return await self.apply(await self.read(count), after=place)

    async def apply(self, page: LogPage, *, after: LogPosition) -> Projected:
        assert self.turn is not None
        return await self.world.store.project(
            self.turn,
            page,
            self._apply,
            after=after,
            generation="default",
            at_most=timedelta(seconds=5),
            truncate=self._truncate,
            create=self.create,
        )

    async def prepare(self) -> Projected:
        """Have its tables made, though there is nothing to apply."""
        place = (await self.checkpoint()).position
        return await self.apply(LogPage(events=(), reached=place, is_end=True), after=place)

    async def create(self, connection: object) -> None:
        """Make its tables."""

    async def _truncate(self, connection: object) -> None:
        if self.is_not_emptied:
            raise RuntimeError("the table is locked")
        self.truncate(connection)

    async def _apply(
        self,
        connection: object,
        events: Sequence[LoggedEvent],
        now: datetime,
    ) -> Sequence[Settled | None]:
        answers: list[Settled | None] = []
        if self.is_fatal:
            raise RuntimeError("the worker has died")
        for one in events:
            await self.write(connection, one)
            if one.event.id in self.poison:
                return [*answers, self.decided(now)]
            self.applied.append(one.event.id)
            answers.append(None)
        return answers

    async def write(self, connection: object, logged: LoggedEvent) -> None:
        """Do what can be seen, or undone."""

    def decided(self, now: datetime) -> Settled:
        return Settled(
            lease=Lease(DeliveryId(0), 0),
            settlement=RetryAt(when=now + timedelta(seconds=1), fault=_FAULT),
        )

    async def deliveries(self) -> list[Delivery]:
        """Return what was handed over, in order, but for what was delivered."""
        found = [
            one
            for status in (Status.PENDING, Status.IN_FLIGHT, Status.FAILED)
            for one in (await self.world.store.find(Query(status=status))).deliveries
        ]
        return sorted(found, key=lambda one: one.id)


class DeadAtOnce(Reader):
    """A projection whose failures are final."""

    def decided(self, now: datetime) -> Settled:
        return Settled(
            lease=Lease(DeliveryId(0), 0),
            settlement=Failed(reason=FailureReason.TERMINAL, fault=_FAULT),
        )


async def log(world: World, *keys: str | None) -> list[EventId]:
    """Publish an event for each key, to nobody."""
    events = [an_event(key=key) for key in keys]
    await world.append(entries(*events, to=[]))
    return [one.id for one in events]


class ProjectionConformance:
    """`Projections`."""

    async def test_a_checkpoint_tells_how_far_a_projection_is(self, world: World) -> None:
        ids = await log(world, "a", "b")
        reader = Reader(world)
        assert await reader.begin()
        before = await reader.checkpoint()

        projected = await reader.project(2)

        after = await reader.checkpoint()
        logged = await world.logged(2)
        assert (before.position, before.count, before.event_id) == (LOG_START, 0, None)
        assert projected == Projected(ending=Projecting.KEPT)
        assert reader.applied == ids
        assert (after.position, after.count, after.began) == (logged[1].position, 2, LOG_START)
        assert (after.event_id, after.event_type) == (ids[1], "order.paid")
        assert after.applied_at is not None
        assert after.worker == "reader"

    async def test_who_waits_is_told_of_what_can_be_read_and_whose_turn_it_is(
        self, world: World
    ) -> None:
        reader = Reader(world)
        await reader.begin()
        nothing = await world.store.log_news(LOG_START)
        await log(world, "a")
        page = await reader.read(1)

        something = await world.store.log_news(LOG_START)
        behind = await world.store.log_news(page.reached)
        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        lost = await world.store.log_news(LOG_START)

        assert reader.turn is not None
        assert [one.has_more for one in (nothing, something, behind)] == [False, True, False]
        assert something.tokens == {("ledger", 0): reader.turn.token}
        assert lost.tokens["ledger", 0] != reader.turn.token

    async def test_a_new_projection_begins_where_it_says(self, world: World) -> None:
        await log(world, "a")
        await world.logged(1)
        end = await world.store.end_of_log()
        new = await log(world, "a")
        reader = Reader(world)

        await reader.begin(end)
        await reader.project(1)

        assert reader.applied == new
        assert (await reader.checkpoint()).began == end

    async def test_one_worker_at_a_time_has_the_turn(self, world: World) -> None:
        first, second = Reader(world, "first"), Reader(world, "second")
        assert await first.begin()
        assert not await second.begin()

        world.clock.advance(LEASE + timedelta(seconds=1))

        assert await second.begin()
        assert not await first.begin()

    async def test_a_worker_that_has_retired_leaves_its_turn(self, world: World) -> None:
        first, second = Reader(world, "first"), Reader(world, "second")
        await first.begin()

        await world.store.retire("first")

        assert await second.begin()

    async def test_who_has_lost_the_turn_applies_nothing(self, world: World) -> None:
        await log(world, "a")
        first, second = Reader(world, "first"), Reader(world, "second")
        await first.begin()
        world.clock.advance(LEASE + timedelta(seconds=1))
        await second.begin()

        late = await first.project(1)
        projected = await second.project(1)

        assert (late.ending, first.applied) == (Projecting.REFUSED, [])
        assert (projected.ending, len(second.applied)) == (Projecting.KEPT, 1)

    async def test_a_page_is_applied_once_though_no_answer_came(self, world: World) -> None:
        await log(world, "a", "b")
        reader = Reader(world)
        await reader.begin()
        page = await reader.read(2)
        await reader.apply(page, after=LOG_START)

        again = await reader.apply(page, after=LOG_START)

        assert again.ending is Projecting.REFUSED
        assert (await reader.checkpoint()).count == 2

    async def test_a_reader_that_breaks_off_has_applied_nothing(self, world: World) -> None:
        await log(world, "a")
        reader = Reader(world)
        await reader.begin()
        reader.is_fatal = True

        with pytest.raises(RuntimeError, match="has died"):
            await reader.project(1)

        assert (await reader.checkpoint()).position == LOG_START
        reader.is_fatal = False
        assert (await reader.project(1)).ending is Projecting.KEPT

    async def test_what_fails_is_handed_over_with_what_follows_it(self, world: World) -> None:
        ids = await log(world, "a", "b", "a", "b", None)
        reader = Reader(world)
        reader.poison = {ids[0]}
        await reader.begin()

        projected = await reader.project(5)

        assert reader.applied[-3:] == [ids[1], ids[3], ids[4]]
        assert [(one.event.id, settled is None) for one, settled in projected.handed_over] == [
            (ids[0], False),
            (ids[2], True),
        ]
        head, behind = await reader.deliveries()
        assert (head.event_id, head.attempts, head.due) == (ids[0], 1, world.after("1s"))
        assert (behind.event_id, behind.attempts, behind.behind) == (ids[2], 0, head.id)
        assert (await reader.checkpoint()).count == 3
        assert (await world.claim("ledger")).deliveries == ()

    async def test_the_lane_of_a_key_goes_in_order_and_ends(self, world: World) -> None:
        ids = await log(world, "a", "a")
        reader = Reader(world)
        reader.poison = {ids[0]}
        await reader.begin()
        await reader.project(2)
        ids += await log(world, "a")
        await reader.project(1)
        world.clock.advance("1s")

        order = await world.run_all("ledger")
        ids += await log(world, "a")
        await reader.project(1)

        assert len(order) == 3
        assert order == sorted(order)
        assert reader.applied == [ids[3]]

    async def test_a_dead_letter_holds_its_key_until_somebody_deals_with_it(
        self, world: World
    ) -> None:
        ids = await log(world, "a")
        reader = DeadAtOnce(world)
        reader.poison = {ids[0]}
        await reader.begin()
        [(_, settled)] = (await reader.project(1)).handed_over
        assert settled is not None
        ids += await log(world, "a")
        await reader.project(1)
        parked = list(reader.applied)

        await world.store.resolve([settled.lease.delivery_id], actor=OPERATOR)
        await world.run_all("ledger")
        ids += await log(world, "a")
        await reader.project(1)

        assert (parked, reader.applied) == ([], [ids[2]])

    async def test_a_key_that_is_parked_holds_up_nobody_else(self, world: World) -> None:
        ids = await log(world, "a", None)
        reader = DeadAtOnce(world)
        reader.poison = set(ids)
        await reader.begin()
        await reader.project(2)
        more = await log(world, "b", None)

        await reader.project(2)

        assert reader.applied == more
        dead = await reader.deliveries()
        assert {one.status for one in dead} == {Status.FAILED}

    async def test_a_paused_projection_applies_nothing(self, world: World) -> None:
        await log(world, "a")
        reader = Reader(world)
        await reader.begin()
        await world.store.pause("ledger", actor=OPERATOR)

        held = await reader.project(1)
        await world.store.resume("ledger", actor=OPERATOR)
        kept = await reader.project(1)

        assert (held.ending, kept.ending) == (Projecting.HELD, Projecting.KEPT)
        assert len(reader.applied) == 1

    async def test_the_lag_counts_what_is_wanted_and_not_read(self, world: World) -> None:
        reader = Reader(world)
        reader.types = ("order.*",)
        await reader.begin()
        early = an_event(type="order.paid", published_at=world.now)
        others = [an_event(type=kind) for kind in ("order.paid", "mail.sent", "order.sent")]
        await world.append(entries(early, *others, to=[]))
        await world.logged(4)
        world.clock.advance("5s")
        await world.store.heartbeat("reader", [], lease=LEASE)

        behind = only(await world.store.projections())
        await reader.project(4)
        after = only(await world.store.projections())

        assert (behind.lag, behind.is_caught_up) == ({"order.paid": 2, "order.sent": 1}, False)
        assert (behind.events_behind, behind.oldest_at) == (3, early.published_at)
        assert behind.behind_for == timedelta(seconds=5)
        assert (after.lag, after.is_caught_up, after.oldest_at) == ({}, True, None)
        assert after.behind_for == timedelta(0)
        assert (after.seen_at, after.is_at_least) == (world.now, False)
        assert after.checkpoint.types == ("order.*",)

    async def test_what_is_parked_is_counted(self, world: World) -> None:
        ids = await log(world, "a", "a", "b", None)
        reader = DeadAtOnce(world)
        reader.poison = {ids[0], ids[3]}
        await reader.begin()

        await reader.project(4)

        figures = only(await world.store.projections())
        assert (figures.handed_over, figures.parked_keys) == (3, 1)
        ledger = await world.figures_of("ledger")
        assert (ledger.pending, ledger.in_flight, ledger.failed) == (1, 0, 2)
        assert (await world.store.figures()).unrouted == 1
        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        ledger = await world.figures_of("ledger")
        assert (ledger.pending, ledger.in_flight, ledger.failed) == (0, 0, 0)

    async def test_an_event_is_reached_when_it_is_applied_or_its_delivery_is(
        self, world: World
    ) -> None:
        ids = await log(world, "a", "b")
        reader = Reader(world)
        reader.poison = {ids[0]}
        await reader.begin()
        before = [await world.store.has_applied("ledger", one) for one in ids]
        await reader.project(2)
        after = [await world.store.has_applied("ledger", one) for one in ids]
        world.clock.advance("1s")
        await world.run_all("ledger")

        assert (before, after) == ([False, False], [False, True])
        assert await world.store.has_applied("ledger", ids[0])

    async def test_after_a_reset_everything_is_applied_anew(self, world: World) -> None:
        ids = await log(world, "a", "b", "a")
        reader = DeadAtOnce(world)
        reader.poison = {ids[0]}
        await reader.begin()
        await reader.project(3)
        emptied: list[object] = []
        reader.truncate = emptied.append

        removed = await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)

        checkpoint = await reader.checkpoint()
        assert (checkpoint.position, checkpoint.count, checkpoint.is_reset) == (LOG_START, 0, True)
        assert (removed, emptied, await reader.deliveries()) == (2, [], [])
        [entry] = await world.store.audit(AuditQuery(), limit=1)
        assert (entry.action, entry.by, entry.count) == ("reset_projection", OPERATOR.by, 2)
        late = await reader.project(3)
        await reader.begin()
        reader.poison, reader.applied = set(), []
        again = await reader.project(3)
        await log(world, "a")
        await reader.project(1)
        assert (late.ending, again.ending) == (Projecting.REFUSED, Projecting.KEPT)
        assert (reader.applied[:3], len(emptied)) == (ids, 1)
        assert not (await reader.checkpoint()).is_reset

    async def test_nothing_begins_anew_unless_it_is_emptied(self, world: World) -> None:
        await log(world, "a")
        reader = Reader(world)
        await reader.begin()
        await world.store.reset_projection("ledger", to=LOG_START, actor=OPERATOR)
        await reader.begin()
        reader.is_not_emptied = True

        with pytest.raises(RuntimeError, match="locked"):
            await reader.project(1)

        assert reader.applied == []
        assert (await reader.checkpoint()).is_reset

    async def test_only_a_projection_can_be_reset(self, world: World) -> None:
        with pytest.raises(NotFoundError, match="projection"):
            await world.store.reset_projection("billing", to=LOG_START, actor=OPERATOR)

    async def test_a_projection_that_is_dropped_is_forgotten(self, world: World) -> None:
        ids = await log(world, "a", "a")
        reader = DeadAtOnce(world)
        reader.poison = {ids[0]}
        await reader.begin()
        await reader.project(2)
        with pytest.raises(UsageError, match="read by the worker reader"):
            await world.store.drop_projection("ledger", lease=LEASE, actor=OPERATOR)
        world.clock.advance(LEASE)

        removed = await world.store.drop_projection("ledger", lease=LEASE, actor=OPERATOR)

        assert removed == 2
        assert (await reader.deliveries(), len(await world.store.projections())) == ([], 0)
        [entry] = await world.store.audit(AuditQuery(), limit=1)
        assert (entry.action, entry.count, entry.detail) == ("drop_projection", 2, "ledger")
        assert (await reader.apply(await reader.read(2, after=LOG_START), after=LOG_START)) == (
            Projected(ending=Projecting.REFUSED)
        )
        with pytest.raises(NotFoundError, match="projection"):
            await world.store.drop_projection("ledger", lease=LEASE, actor=OPERATOR)

    async def test_what_a_projection_has_not_read_is_kept(self, world: World) -> None:
        keep = Retention(delivered=_DAY / 2, events=_DAY, idempotency=30 * _DAY)
        await log(world, "a", "b")
        reader = Reader(world)
        await reader.begin()
        page = await reader.read(2)
        first = page.events[0]
        world.clock.advance(2 * _DAY)
        await reader.begin()
        kept = [(await world.store.prunable(keep)).events, (await world.store.prune(keep)).events]

        part = LogPage(events=(first,), reached=first.position, is_end=False)
        await reader.apply(part, after=LOG_START)

        assert kept == [0, 0]
        assert (await world.store.prunable(keep)).events == 1
        assert (await world.store.prune(keep)).events == 1
        assert [one.event.key for one in await world.read_events()] == ["b"]

    async def test_what_is_kept_keeps_nothing_else_from_going(self, world: World) -> None:
        """However much a projection has still to read: what it has read goes when it is time."""
        keep = Retention(delivered=_DAY / 2, events=_DAY, idempotency=30 * _DAY)
        reader = Reader(world)
        await reader.begin()
        await world.publish(an_event(key="read"))
        await reader.project(1)
        await log(world, *"abcdefg")
        world.clock.advance(_DAY)
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance(2 * _DAY)

        for _ in range(3):
            await world.store.prune(keep, limit=2)

        assert [one.event.key for one in await world.read_events()] == [*"abcdefg"]


class Writing(Reader):
    """A projection that publishes an event for each that it applies, in the same transaction."""

    async def write(self, connection: object, logged: LoggedEvent) -> None:
        trace = an_event({"of": logged.event.id}, type="trace.left")
        await self.world.store.append(
            entries(trace, to=[]),
            routes_version=(await self.world.store.routes()).version,
            all_or_nothing=True,
            within=connection,
        )


class ProjectionEffectConformance:
    """What is written by projections in the store's own database."""

    async def test_of_a_batch_with_a_failure_the_rest_counts_once(self, world: World) -> None:
        ids = await log(world, "a", "b", "a", "c")
        reader = Writing(world)
        reader.poison = {ids[2]}
        await reader.begin()

        await reader.project(4)

        assert await _traces(world, 7) == [ids[0], ids[1], ids[3]]

    async def test_who_is_cut_off_leaves_nothing_behind(self, world: World) -> None:
        ids = await log(world, "a")
        reader = Hanging(world)
        await reader.begin()
        page = await reader.read(1)
        running = asyncio.ensure_future(reader.apply(page, after=LOG_START))
        await reader.has_written.wait()
        running.cancel()
        await asyncio.wait([running])

        after = Writing(world)
        after.turn = reader.turn
        await after.apply(page, after=LOG_START)

        assert await _traces(world, 2) == ids


class Hanging(Writing):
    """A projection that never comes to an end."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.has_written = asyncio.Event()

    async def write(self, connection: object, logged: LoggedEvent) -> None:
        await super().write(connection, logged)
        self.has_written.set()
        await asyncio.Event().wait()


async def _traces(world: World, count: int) -> list[EventId]:
    """Return of which events traces were left."""
    await world.logged(count)
    page = await world.store.read_events(types=["trace.left"])
    return [one.payload["of"] for one in page.events]
