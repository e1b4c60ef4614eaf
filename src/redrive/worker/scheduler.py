"""The scheduler: publishes ticks of code and of the store, each once over all workers."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.clock import Clock, wait_at_most
from redrive.errors import StoreError, UsageError
from redrive.executor import Executor
from redrive.model.event import NewEvent
from redrive.model.schedule import Schedule
from redrive.observer import Observer, ScheduleFailed, TicksLeftOut, TicksPublished
from redrive.pipeline.publish import Publisher
from redrive.policies.capture import capture
from redrive.policies.declaring import LOOKS_AGAIN_AFTER, schedule_digest
from redrive.policies.schedule import DueTicks, due_ticks, next_tick
from redrive.store import (
    Append,
    Declarer,
    Entry,
    KnownSchedule,
    Schedules,
    Ticked,
    Timetable,
)

__all__ = ["PlannedSchedule", "Scheduler"]

SOURCE = "redrive-schedule"
HEADER = "redrive-schedule"
"""The header that names the schedule an event came from."""

_LOOK_SECONDS = 5.0
"""How soon a worker sees what a person has asked for, however far the next tick is."""
_AGAIN_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_OVERLAPS = "the last event is still under way"
_MISSED = "missed"
_TAKEN = "the name belongs to a schedule that is stored; give that of the code another name"


class PlannedSchedule(msgspec.Struct, frozen=True):
    """A schedule as the worker's code declares it, and what gives the payload of a tick."""

    schedule: Schedule
    compute: Callable[[datetime], Any] | None = None


class Scheduler:
    """Publishes ticks when they come, by the store's clock and the declarations in force.

    Each worker that declares a schedule looks after it, and the store lets one of them publish. A
    schedule that nobody declares any more ticks no more. Schedules that the store describes are
    looked after by workers that serve what is stored.
    """

    def __init__(
        self,
        *,
        store: Schedules,
        publisher: Publisher,
        by: Declarer,
        planned: Sequence[PlannedSchedule],
        serves_stored: bool,
        clock: Clock,
        executor: Executor,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._by = by
        self._planned = {one.schedule.name: one for one in planned}
        self._serves_stored = serves_stored
        self._clock = clock
        self._executor = executor
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._news = asyncio.Event()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}
        self._declared_at = -math.inf
        self._taken: set[str] = set()

    async def begin(self) -> None:
        """Bring what the worker declares; a name that a stored schedule has is refused."""
        timetable = await self._look() if self._planned else None
        if timetable is not None and (taken := self._taken_of(timetable)):
            planned = [self._planned[name].schedule for name in sorted(taken)]
            await self._store.declare_schedules(planned, by=self._by)

    async def run(self) -> None:
        """Publish ticks until cancelled; a payload that takes its time keeps no other waiting."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                timetable = await self._look()
                rest = _AGAIN_SECONDS
                if timetable is not None:
                    for known in self._due(timetable):
                        self._busy.add(known.standing.name)
                        group.create_task(self._attend(known, now=timetable.now))
                    rest = self._rest(timetable)
                await wait_at_most(self._news, rest, self._clock)

    async def publish_due(self) -> bool:
        """Publish every tick that is due; tells whether there was any."""
        has_published = False
        while (timetable := await self._look()) is not None:
            due = self._due(timetable)
            done = await asyncio.gather(*(self._attend(one, now=timetable.now) for one in due))
            if not any(done):
                break
            has_published = True
        return has_published

    async def _look(self) -> Timetable | None:
        """Read how the schedules stand, and declare those of which another was found."""
        names = None if self._serves_stored else list(self._planned)
        try:
            timetable = await self._store.timetable(names)
            if new := self._unattended(timetable):
                await self._store.attend_schedules(new, by=self._by)
            others = self._others(timetable)
            now = self._clock.monotonic()
            if others and now - self._declared_at >= LOOKS_AGAIN_AFTER.total_seconds():
                self._declared_at = now
                await self._store.declare_schedules(others, by=self._by)
                timetable = await self._store.timetable(names)
        except StoreError as error:
            self._on_store_lost(error)
            return None
        self._tell_taken(timetable)
        return timetable

    def _unattended(self, timetable: Timetable) -> list[str]:
        """Return the stored schedules that the store does not know to be published here."""
        if not self._serves_stored:
            return []
        return [
            one.standing.name
            for one in timetable.schedules
            if (in_force := one.standing.in_force).stored
            and one.standing.declared.get(self._by.worker) != schedule_digest(in_force)
        ]

    def _taken_of(self, timetable: Timetable) -> set[str]:
        """Return the names of what the worker declares that belong to stored schedules."""
        stored = {one.standing.name for one in timetable.schedules if one.standing.in_force.stored}
        return stored & self._planned.keys()

    def _tell_taken(self, timetable: Timetable) -> None:
        """Say once of a schedule that its name was taken while nobody had heard of the worker."""
        taken = self._taken_of(timetable)
        for name in sorted(taken - self._taken):
            self._observer.notice(ScheduleFailed(schedule=name, error=_TAKEN))
        self._taken = taken

    def _others(self, timetable: Timetable) -> list[Schedule]:
        """Return what the store does not know to be declared here, or has otherwise in force."""
        known = [one for one in timetable.schedules if one.standing.name in self._planned]
        agreed = self._taken_of(timetable) | {
            one.standing.name
            for one in known
            if (mark := schedule_digest(self._planned[one.standing.name].schedule))
            == one.standing.declared.get(self._by.worker)
            and mark == schedule_digest(one.standing.in_force)
        }
        return [one.schedule for name, one in self._planned.items() if name not in agreed]

    def _due(self, timetable: Timetable) -> list[KnownSchedule]:
        return [
            one
            for one in timetable.schedules
            if self._is_free(one.standing.name)
            and self._is_ours(one)
            and (one.standing.run is not None or _next(one) <= timetable.now)
        ]

    def _rest(self, timetable: Timetable) -> float:
        """Return for how many seconds nothing comes due."""
        waits = [
            max(
                (_next(one) - timetable.now).total_seconds(),
                self._rests_until.get(one.standing.name, 0.0) - self._clock.monotonic(),
            )
            for one in timetable.schedules
            if one.standing.name not in self._busy
            and one.standing.pause is None
            and self._is_ours(one)
        ]
        return max(0.0, min([_LOOK_SECONDS, *waits]))

    def _is_free(self, name: str) -> bool:
        is_rested = self._clock.monotonic() >= self._rests_until.get(name, -math.inf)
        return is_rested and name not in self._busy

    def _is_ours(self, known: KnownSchedule) -> bool:
        """Tell whether it is published here, and its payload can be given."""
        in_force = known.standing.in_force
        if in_force.stored:
            return self._serves_stored
        planned = self._planned.get(in_force.name)
        return planned is not None and not (in_force.is_computed and planned.compute is None)

    async def _attend(self, known: KnownSchedule, *, now: datetime) -> bool:
        """Publish what is due of one schedule; tells whether something was."""
        name = known.standing.name
        self._busy.add(name)
        try:
            return await self._publish(known, now=now)
        except StoreError as error:
            self._on_store_lost(error)
            self._rest_of(name)
            return False
        finally:
            self._busy.discard(name)
            self._news.set()

    async def _publish(self, known: KnownSchedule, *, now: datetime) -> bool:
        standing = known.standing
        if standing.run is not None:
            ticked = Ticked(
                schedule=standing.name,
                since=standing.since,
                until=standing.since,
                stored=standing.in_force.stored,
                run=standing.run,
                last_tick=now,
            )
            events = await self._events(known, [now], is_tick=False)
            return events is not None and await self._store_events(ticked, events) is not None
        due = due_ticks(standing.in_force, standing.since, now, is_under_way=known.is_under_way)
        if due is None:
            return False
        events = await self._events(known, due.ticks)
        if events is None:
            return False
        ticked = Ticked(
            schedule=standing.name,
            since=standing.since,
            until=due.until,
            stored=standing.in_force.stored,
            last_tick=due.ticks[-1] if due.ticks else None,
        )
        if await self._store_events(ticked, events) is None:
            return False
        self._tell(standing.name, due)
        return bool(due.ticks)

    async def _events(
        self, known: KnownSchedule, ticks: Sequence[datetime], *, is_tick: bool = True
    ) -> list[NewEvent] | None:
        """Return the events of ticks; `None` if they cannot be made now, which is told."""
        schedule = known.standing.in_force
        try:
            return [
                NewEvent(
                    type=schedule.type,
                    payload=await self._payload(schedule, tick),
                    key=schedule.key,
                    tenant=schedule.tenant,
                    priority=schedule.priority,
                    source=SOURCE,
                    idempotency_key=f"{schedule.name} {tick.isoformat()}" if is_tick else None,
                    headers={HEADER: schedule.name},
                    occurred_at=tick,
                )
                for tick in ticks
            ]
        except Exception as error:  # noqa: BLE001 - whatever the function raises is told
            self._fail(schedule.name, error)
            return None

    async def _payload(self, schedule: Schedule, tick: datetime) -> object:
        planned = self._planned.get(schedule.name)
        compute = None if planned is None else planned.compute
        if not schedule.is_computed or compute is None:
            return msgspec.Raw(schedule.payload.encode())
        at = tick.astimezone(schedule.zone)
        if inspect.iscoroutinefunction(compute):
            return await compute(at)
        answer = await self._executor.submit(lambda: compute(at))
        return await answer if inspect.isawaitable(answer) else answer

    async def _store_events(self, ticked: Ticked, events: Sequence[NewEvent]) -> object | None:
        """Publish the events with the advance of the schedule; `None` if somebody else has."""

        async def write(entries: Sequence[Entry], routes_version: int) -> Append | None:
            return await self._store.publish_ticks(ticked, entries, routes_version=routes_version)

        try:
            done = await self._publisher.publish_by(events, write)
        except UsageError as error:
            self._fail(ticked.schedule, error)
            return None
        self._failures.pop(ticked.schedule, None)
        return done

    def _fail(self, name: str, error: Exception) -> None:
        self._rest_of(name)
        fault = capture(error, rule="schedule")
        said = f"{fault.error_class}: {fault.message}"
        self._observer.notice(ScheduleFailed(schedule=name, error=said))

    def _rest_of(self, name: str) -> None:
        """Leave a schedule alone for a while that could not be published, ever longer."""
        self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(_AGAIN_SECONDS * 2 ** (self._failures[name] - 1), _LONGEST_PAUSE_SECONDS)
        self._rests_until[name] = self._clock.monotonic() + pause

    def _tell(self, name: str, due: DueTicks) -> None:
        if due.ticks:
            self._observer.notice(TicksPublished(schedule=name, ticks=due.ticks, missed=due.missed))
        if due.left_out or due.has_more:
            self._observer.notice(
                TicksLeftOut(schedule=name, count=due.left_out, why=_MISSED, has_more=due.has_more)
            )
        if due.overlapping:
            self._observer.notice(TicksLeftOut(schedule=name, count=due.overlapping, why=_OVERLAPS))


def _next(known: KnownSchedule) -> datetime:
    """Return when the schedule comes due, or has; never while it is paused."""
    standing = known.standing
    if standing.pause is not None:
        return datetime.max.replace(tzinfo=standing.since.tzinfo)
    return next_tick(standing.in_force, standing.since)
