"""What a replay would take, counted in SQL; schedules that start one; edits of single letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change, Edit
from redrive.model.gate import Closed
from redrive.model.replay import AutoReplay
from redrive.model.settlement import FailureReason
from redrive.store import SCHEDULER, Due, NewReplay, Replay, Schedule, Selection, Survey
from redrive.stores.codec import carried, destination_from, edits_from
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.gating import GateRepository
from redrive.stores.postgres.intervention import replay as send_again
from redrive.stores.postgres.replaying import SELECTED, not_over, selected, sendable, start

__all__ = ["edit", "has_due", "read_schedules", "start_scheduled", "survey"]

_MOST_NAMED = 10
_COUNTED = {
    "destinations": """
        SELECT t.name, count(*) {found}
        GROUP BY t.name ORDER BY count(*) DESC, t.name COLLATE "C"
    """,
    "reasons": """
        SELECT d.reason, count(*) {found}
        GROUP BY d.reason ORDER BY count(*) DESC, d.reason COLLATE "C"
    """,
    "groups": f"""
        SELECT d.group_id, max(d.fault ->> 'title'), count(*) {{found}} AND d.group_id IS NOT NULL
        GROUP BY d.group_id ORDER BY count(*) DESC, d.group_id COLLATE "C" LIMIT {_MOST_NAMED}
    """,
    "tenants": f"""
        SELECT d.tenant, count(*) {{found}} AND d.tenant IS NOT NULL
        GROUP BY d.tenant ORDER BY count(*) DESC, d.tenant COLLATE "C" LIMIT {_MOST_NAMED}
    """,
}
_LETTERS = "SELECT d.id, d.lane IS NOT NULL {found} ORDER BY d.id"
_SCHEDULES = """
SELECT t.id, t.name, t.document, s.since
FROM redrive.destinations t LEFT JOIN redrive.schedules s ON s.destination = t.id
WHERE t.document::json ->> 'auto_replay' IS NOT NULL AND t.removed_at IS NULL
ORDER BY t.name COLLATE "C"
"""
_FIRST_SEEN = "INSERT INTO redrive.schedules VALUES ($1, $2) ON CONFLICT DO NOTHING"
# Of those who find the same due time, one still finds the instant it counted from.
_TAKE = """
UPDATE redrive.schedules SET since = $3 WHERE destination = $1 AND since = $2
RETURNING destination
"""
_NEGLECTED = """
SELECT id FROM redrive.deliveries
WHERE status = 3 AND resolution IS NULL AND destination = $1 AND enqueued_at >= $2
  AND auto_replays < $3
ORDER BY auto_replays, id LIMIT $4
"""
_CARRIED = """
SELECT e.document, d.payload, d.edits
FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
WHERE d.id = $1 AND d.status = 3 AND d.resolution IS NULL
FOR NO KEY UPDATE OF d
"""
_EDIT = "UPDATE redrive.deliveries SET payload = $2, edits = $3::jsonb WHERE id = $1"


async def survey(link: Link, selection: Selection) -> Survey:
    """Carry out `Replays.survey`."""
    condition, values = selected(selection)
    found = SELECTED.format(where=condition)
    counted = {
        name: [tuple(row) for row in await link.fetch(statement.format(found=found), *values)]
        for name, statement in _COUNTED.items()
    }
    letters = await link.fetch(_LETTERS.format(found=found), *values)
    ids = [DeliveryId(number) for number, _ in letters]
    return Survey(
        selected=len(letters),
        destinations=tuple(counted["destinations"]),
        reasons=tuple((FailureReason(name), number) for name, number in counted["reasons"]),
        groups=tuple((group, title or "", number) for group, title, number in counted["groups"]),
        tenants=tuple(counted["tenants"]),
        in_lanes=sum(in_lane for _, in_lane in letters),
        behind=len(letters) - len(await sendable(link, ids)),
    )


async def has_due(link: Link, *, due: Due, now: datetime) -> bool:
    """Tell whether a schedule wants attention; writes nothing, unlike `start_scheduled`."""
    for _, name, schedule, since in await _schedules(link):
        if since is None:
            return True
        if due(schedule, since, now) and await _is_free(link, name, now=now):
            return True
    return False


async def start_scheduled(link: Link, *, due: Due, now: datetime) -> Sequence[Replay]:
    """Carry out `Replays.start_scheduled`."""
    started = []
    for number, name, schedule, since in await _schedules(link):
        if since is None:
            await link.fetch(_FIRST_SEEN, number, now)
        elif due(schedule, since, now) and await _is_free(link, name, now=now):
            if await link.value(_TAKE, number, since, now) is None:
                continue
            replay = await _start(link, number, schedule, now=now)
            started += [] if replay is None else [replay]
    return started


async def read_schedules(link: Link) -> Sequence[Schedule]:
    """Carry out `Replays.schedules`."""
    return [
        Schedule(destination=name, auto_replay=schedule, since=since)
        for _, name, schedule, since in await _schedules(link)
        if since is not None
    ]


async def edit(
    link: Link,
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
    found = await link.fetch(_CARRIED, delivery_id)
    if not found:
        return False
    [(document, edited, earlier)] = found
    if carried(document, edited) != bytes(before):
        return False
    made = Edit(by=actor.by, at=now, why=actor.why, changes=changes, more=more)
    edits = (*edits_from(earlier), made)[-history:]
    await link.fetch(_EDIT, delivery_id, bytes(payload).decode(), jsonb(edits))
    await record(link, "edit", [delivery_id], actor, now=now)
    if is_replayed:
        await send_again(
            link, [delivery_id], actor=actor, generation=None, now=now, history=history
        )
    return True


async def _start(
    link: Link, destination: int, schedule: AutoReplay, *, now: datetime
) -> Replay | None:
    found = await link.fetch(
        _NEGLECTED, destination, now - schedule.max_age, schedule.cycles, schedule.batch
    )
    if not found:
        return None
    new = NewReplay(selection=Selection(ids=tuple(row[0] for row in found)))
    return await start(link, new, actor=Actor(SCHEDULER, schedule.schedule), now=now)


async def _schedules(link: Link) -> list[tuple[int, str, AutoReplay, datetime | None]]:
    found = []
    for number, name, document, since in await link.fetch(_SCHEDULES):
        schedule = destination_from(document).auto_replay
        if schedule is not None:
            found.append((number, name, schedule, since))
    return found


async def _is_free(link: Link, destination: str, *, now: datetime) -> bool:
    """Tell whether an automatic replay of the destination may begin."""
    keeper = await GateRepository.read(link, now=now, only=[destination], locks=False)
    gate = keeper.gate(destination)
    if gate.pause is not None or not isinstance(gate.breaker, Closed):
        return False
    return not any(
        one.is_automatic and one.destinations == (destination,) for one in await not_over(link)
    )
