"""What a replay would take, counted in SQL; schedules that start one; edits of single letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change, Edit
from redrive.model.gate import Closed
from redrive.model.replay import AutoReplay
from redrive.model.settlement import FailureReason
from redrive.store import SCHEDULER, Due, NewReplay, Replay, Schedule, Selection, Survey
from redrive.stores.codec import (
    carried,
    destination_from,
    edits_from,
    from_micros,
    json_text,
    micros,
)
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.gating import GateRepository
from redrive.stores.sqlite.intervention import begin_cycles
from redrive.stores.sqlite.replaying import SELECTED, selected, sendable, start

__all__ = ["edit", "has_due", "read_schedules", "start_scheduled", "survey"]

_MOST_NAMED = 10
_COUNTED = {
    "destinations": "SELECT t.name, count(*) {found} GROUP BY 1 ORDER BY 2 DESC, 1",
    "reasons": "SELECT d.reason, count(*) {found} GROUP BY 1 ORDER BY 2 DESC, 1",
    "groups": "SELECT d.group_id, max(d.fault ->> 'title'), count(*) {found} "
    f"AND d.group_id IS NOT NULL GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {_MOST_NAMED}",
    "tenants": "SELECT d.tenant, count(*) {found} "
    f"AND d.tenant IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_NAMED}",
}
_LANED = "SELECT count(*), count(d.lane) {found}"
_IDS = "SELECT d.id {found} ORDER BY d.id"
_SCHEDULES = """
SELECT t.id, t.name, t.document, s.since
FROM redrive_destinations t LEFT JOIN redrive_schedules s ON s.destination = t.id
WHERE t.document ->> 'auto_replay' IS NOT NULL AND t.removed_at IS NULL ORDER BY t.name
"""
_NEGLECTED = """
SELECT id FROM redrive_deliveries
WHERE status = 3 AND resolution IS NULL AND destination = ? AND enqueued_at >= ?
  AND auto_replays < ?
ORDER BY auto_replays, id LIMIT ?
"""
_UNDER_WAY = f"""
SELECT 1 FROM redrive_replays
WHERE state IN ('running', 'paused') AND document ->> 'by' = '{SCHEDULER}'
  AND document -> 'destinations' = json_array(?)
"""
_CARRIED = """
SELECT CAST(e.document AS BLOB), CAST(d.payload AS BLOB), d.edits
FROM redrive_deliveries d JOIN redrive_events e ON e.position = d.position
WHERE d.id = ? AND d.status = 3 AND d.resolution IS NULL
"""


def survey(connection: apsw.Connection, selection: Selection) -> Survey:
    """Carry out `Replays.survey`."""
    condition, values = selected(selection)
    found = SELECTED.format(where=condition)
    counted = {
        name: tuple(rows(connection, statement.format(found=found), values))
        for name, statement in _COUNTED.items()
    }
    count, in_lanes = connection.execute(_LANED.format(found=found), values).get
    ids = [number for (number,) in rows(connection, _IDS.format(found=found), values)]
    return Survey(
        selected=count,
        destinations=counted["destinations"],
        reasons=tuple((FailureReason(name), number) for name, number in counted["reasons"]),
        groups=tuple((group, title or "", number) for group, title, number in counted["groups"]),
        tenants=counted["tenants"],
        in_lanes=in_lanes,
        behind=count - len(sendable(connection, ids)),
    )


def has_due(connection: apsw.Connection, *, due: Due, now: datetime) -> bool:
    """Tell whether a schedule wants attention; takes no write lock, unlike `start_scheduled`."""
    return any(
        since is None
        or (due(schedule, from_micros(since), now) and _is_free(connection, name, now=now))
        for _, name, schedule, since in _schedules(connection)
    )


def start_scheduled(connection: apsw.Connection, *, due: Due, now: datetime) -> Sequence[Replay]:
    """Carry out `Replays.start_scheduled`."""
    started = []
    for number, name, schedule, since in _schedules(connection):
        if since is None:
            _count_from(connection, number, now=now)
        elif due(schedule, from_micros(since), now) and _is_free(connection, name, now=now):
            _count_from(connection, number, now=now)
            oldest = micros(now - schedule.max_age)
            found = rows(connection, _NEGLECTED, (number, oldest, schedule.cycles, schedule.batch))
            new = NewReplay(selection=Selection(ids=tuple(one for (one,) in found)))
            actor = Actor(SCHEDULER, schedule.schedule)
            replay = start(connection, new, actor=actor, now=now) if found else None
            started += [] if replay is None else [replay]
    return started


def read_schedules(connection: apsw.Connection) -> Sequence[Schedule]:
    """Carry out `Replays.schedules`."""
    return [
        Schedule(destination=name, auto_replay=schedule, since=from_micros(since))
        for _, name, schedule, since in _schedules(connection)
        if since is not None
    ]


def edit(
    connection: apsw.Connection,
    delivery_id: DeliveryId,
    *,
    before: msgspec.Raw,
    payload: msgspec.Raw,
    changes: tuple[Change, ...],
    more: int,
    actor: Actor,
    is_replayed: bool,
    now: datetime,
    history: int,
) -> bool:
    """Carry out `Editing.edit`."""
    row = connection.execute(_CARRIED, (delivery_id,)).fetchone()
    if row is None:
        return False
    document, edited, earlier = row
    if carried(document, edited) != bytes(before):
        return False
    text = bytes(payload).decode()
    made = Edit(by=actor.by, at=now, why=actor.why, changes=changes, more=more)
    connection.execute(
        "UPDATE redrive_deliveries SET payload = ?, edits = ? WHERE id = ?",
        (text, json_text((*edits_from(earlier), made)[-history:]), delivery_id),
    )
    record(connection, "edit", [delivery_id], actor, now=now)
    if is_replayed:
        begin_cycles(
            connection, [delivery_id], by=actor.by, generation=None, now=now, history=history
        )
        record(connection, "replay", [delivery_id], actor, now=now)
    return True


def _schedules(connection: apsw.Connection) -> list[tuple[int, str, AutoReplay, int | None]]:
    found = []
    for number, name, document, since in rows(connection, _SCHEDULES):
        schedule = destination_from(document).auto_replay
        if schedule is not None:
            found.append((number, name, schedule, since))
    return found


def _count_from(connection: apsw.Connection, destination: int, *, now: datetime) -> None:
    connection.execute(
        "INSERT INTO redrive_schedules VALUES (?, ?) "
        "ON CONFLICT (destination) DO UPDATE SET since = excluded.since",
        (destination, micros(now)),
    )


def _is_free(connection: apsw.Connection, destination: str, *, now: datetime) -> bool:
    """Tell whether an automatic replay of the destination may begin."""
    gate = GateRepository(connection, now=now).gate(destination)
    if gate.pause is not None or not isinstance(gate.breaker, Closed):
        return False
    return connection.execute(_UNDER_WAY, (destination,)).get is None
