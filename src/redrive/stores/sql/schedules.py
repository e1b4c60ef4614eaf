"""Schedules: each is a row with a document, and its ticks are published while that is locked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from redrive.model.audit import REDRIVE, Actor
from redrive.model.schedule import Overlap, Schedule, ScheduleStanding
from redrive.policies.declaring import brought_schedule, schedule_changed
from redrive.store import (
    Append,
    Appended,
    Declarer,
    Entry,
    KnownSchedule,
    RoutesChanged,
    Ticked,
    Timetable,
)
from redrive.stores.codec import json_text
from redrive.stores.scheduling import (
    attended,
    is_still,
    paused,
    put_schedule_in_force,
    refuse_stored,
    resumed,
    run,
    ticked_on,
)
from redrive.stores.sql.audit import record
from redrive.stores.sql.leases import see_worker
from redrive.stores.sql.log import read_routes
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore

__all__ = ["SchedulesRole", "change_schedules"]

_LOOK = f"""
SELECT present.now, s.document FROM {PRESENT} LEFT JOIN redrive.publishing_schedules s
    ON $2 OR s.name = ANY ($3::text[])
ORDER BY s.name COLLATE "C"
"""
_UNDER_WAY = f"""
SELECT e.id::text FROM {PRESENT} CROSS JOIN redrive.events e
WHERE e.id = ANY ($2::uuid[]) AND EXISTS (
    SELECT FROM redrive.deliveries d WHERE d.position = e.position AND d.status IN (0, 1)
)
"""
_LOCK = "SELECT document FROM redrive.publishing_schedules WHERE name = $1 FOR UPDATE"
_ADD = """
INSERT INTO redrive.publishing_schedules (name, document) VALUES ($1, $2)
ON CONFLICT DO NOTHING RETURNING name
"""
_KEEP = "UPDATE redrive.publishing_schedules SET document = $2 WHERE name = $1"
_FORGET = "DELETE FROM redrive.publishing_schedules WHERE name = $1"
_LIVE = "SELECT id FROM redrive.workers WHERE id <> $1 AND seen_at > $2"

_Act = Callable[[ScheduleStanding, Actor, datetime], ScheduleStanding | None]


class SchedulesRole(SqlStore):
    """`Schedules`."""

    async def declare_schedules(self, schedules: Sequence[Schedule], *, by: Declarer) -> None:
        await self._write(lambda session, _: _declare(session, schedules, by))

    async def attend_schedules(self, names: Sequence[str], *, by: Declarer) -> None:
        await self._write(lambda session, _: _attend(session, names, by))

    async def forget_schedule(self, name: str, *, actor: Actor) -> bool:
        return await self._write(lambda session, _: _forget(session, name, actor))

    async def timetable(self, names: Sequence[str] | None = None) -> Timetable:
        rows = await self._query(_LOOK, names is None, list(names or ()), is_prompt=True)
        standings = [self.codec.schedule(document) for _, document in rows if document is not None]
        watched = [
            one.last_event
            for one in standings
            if one.in_force.overlap is Overlap.SKIP and one.last_event is not None
        ]
        found = await self._query(_UNDER_WAY, watched, is_prompt=True) if watched else []
        under_way = {event_id for (event_id,) in found}
        return Timetable(
            now=instant(rows[0][0]),
            schedules=tuple(
                KnownSchedule(standing=one, is_under_way=one.last_event in under_way)
                for one in standings
            ),
        )

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        done = await self._write(
            lambda session, _: _publish(session, ticked, entries, routes_version=routes_version),
            is_prompt=True,
        )
        if isinstance(done, Appended) and entries:
            self._notify()
        return done

    async def pause_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return await self._write(lambda one, _: _act(one, name, actor, "pause_schedule", paused))

    async def resume_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return await self._write(lambda one, _: _act(one, name, actor, "resume_schedule", resumed))

    async def run_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return await self._write(lambda one, _: _act(one, name, actor, "run_schedule", run))


async def _declare(session: Session, schedules: Sequence[Schedule], by: Declarer) -> None:
    await session.look_at_encryption()
    others = await _others(session, by)
    for declared in sorted(schedules, key=lambda one: one.name):
        new = _brought(session, None, declared, others, by)
        is_new = (
            await session.value(_ADD, new.name, json_text(session.codec.closed(new))) is not None
        )
        before = None if is_new else await _locked(session, declared.name)
        refuse_stored(before)
        after = _brought(session, before, declared, others, by)
        if not is_new and after != before:
            await _keep(session, after)
        if detail := schedule_changed(before, after):
            await record(session, "declare", (), Actor(REDRIVE, by.why), count=1, detail=detail)


async def _attend(session: Session, names: Sequence[str], by: Declarer) -> None:
    others = await _others(session, by)
    for name in sorted(names):
        standing = await _locked(session, name)
        after = standing and attended(standing, by.worker, others)
        if after:
            await _keep(session, after)


async def _forget(session: Session, name: str, actor: Actor) -> bool:
    standing = await _locked(session, name)
    if standing is None or standing.in_force.stored:
        return False
    await session.fetch(_FORGET, name)
    await record(session, "forget_schedule", (), actor, count=1, detail=name)
    return True


async def change_schedules(
    session: Session, wanted: Sequence[Schedule], gone: Collection[str]
) -> None:
    """Put stored schedules in force, and take out those that are gone."""
    by_name = {one.name: one for one in wanted}
    for name in sorted({*by_name, *gone}):
        if name in gone:
            await session.fetch(_FORGET, name)
            continue
        new = put_schedule_in_force(by_name[name], None, session.now)
        if await session.value(_ADD, name, json_text(session.codec.closed(new))) is None:
            before = await _locked(session, name)
            await _keep(session, put_schedule_in_force(by_name[name], before, session.now))


async def _others(session: Session, by: Declarer) -> set[str]:
    """See a worker, and return the live ones beside it."""
    await see_worker(session, by.worker)
    return {name for (name,) in await session.fetch(_LIVE, by.worker, session.now - by.lease)}


def _brought(
    session: Session,
    before: ScheduleStanding | None,
    declared: Schedule,
    others: Collection[str],
    by: Declarer,
) -> ScheduleStanding:
    return brought_schedule(
        before, declared, worker=by.worker, others=others, now=session.now, lease=by.lease
    )


async def _publish(
    session: Session, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
) -> Append | None:
    standing = await _locked(session, ticked.schedule)
    if standing is None or not is_still(standing, ticked):
        return None
    appended = (
        await session.append(entries, routes_version=routes_version) if entries else Appended(())
    )
    if appended is None:
        return RoutesChanged(await read_routes(session))
    await _keep(session, ticked_on(standing, ticked, appended.results))
    return appended


async def _act(session: Session, name: str, actor: Actor, action: str, act: _Act) -> bool | None:
    standing = await _locked(session, name)
    if standing is None:
        return None
    after = act(standing, actor, session.now)
    if after is None:
        return False
    await _keep(session, after)
    await record(session, action, (), actor, count=1, detail=name)
    return True


async def _locked(session: Session, name: str) -> ScheduleStanding | None:
    document = await session.value(_LOCK, name)
    return None if document is None else session.codec.schedule(document)


async def _keep(session: Session, standing: ScheduleStanding) -> None:
    await session.fetch(_KEEP, standing.name, json_text(session.codec.closed(standing)))
