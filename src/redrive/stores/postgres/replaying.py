"""Replays of many dead letters in SQL: what is selected, and each step of sending it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.replay import ReplayState
from redrive.policies import replay as policy
from redrive.store import NewReplay, Replay, ReplayStep, Selection
from redrive.stores import steering
from redrive.stores.codec import json_text
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.inspection import conditions_of
from redrive.stores.postgres.intervention import replay as send_again

__all__ = [
    "SELECTED",
    "find",
    "not_over",
    "read",
    "running",
    "selected",
    "sendable",
    "start",
    "step",
    "turn",
]

SELECTED = """
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE {where}
"""
"""The letters of a selection; `selected` gives the condition and its values."""

_OUTCOMES = """
    (SELECT count(*) FROM redrive.replay_outcomes o WHERE o.replay = r.id AND {condition})
"""
_READ = f"""
SELECT r.id, r.state, r.selected, r.sent,
       r.delivered + {_OUTCOMES.format(condition="o.is_delivered")},
       r.failed + {_OUTCOMES.format(condition="NOT o.is_delivered")},
       r.skipped, r.document
FROM redrive.replays r
"""
_LOCK = "SELECT id FROM redrive.replays WHERE id = $1 FOR NO KEY UPDATE"
_COUNT_OUTCOMES = """
WITH counted AS (
    DELETE FROM redrive.replay_outcomes WHERE replay = $1 RETURNING is_delivered
)
UPDATE redrive.replays SET
    delivered = delivered + (SELECT count(*) FROM counted WHERE is_delivered),
    failed = failed + (SELECT count(*) FROM counted WHERE NOT is_delivered)
WHERE id = $1 AND EXISTS (SELECT FROM counted)
"""
_BEGIN = "INSERT INTO redrive.replays (state, document) VALUES ($1, $2) RETURNING id"
_SELECT_ITEMS = """
WITH chosen AS (
    INSERT INTO redrive.replay_items (replay, delivery, token)
    SELECT {number}, d.id, d.token {found}
    RETURNING delivery
)
SELECT t.name, count(*) FROM chosen
JOIN redrive.deliveries d ON d.id = chosen.delivery
JOIN redrive.destinations t ON t.id = d.destination
GROUP BY t.name ORDER BY t.name COLLATE "C"
"""
_KEEP = """
UPDATE redrive.replays SET state = $2, selected = $3, sent = $4, skipped = $5, document = $6
WHERE id = $1
"""
# OFFSET 0 keeps the plan to a walk along the items that ends with the last letter wanted.
_NEXT = """
SELECT i.delivery, i.token, d.destination FROM (
    SELECT delivery, token FROM redrive.replay_items WHERE replay = $1 ORDER BY delivery
) AS i CROSS JOIN LATERAL (
    SELECT destination FROM redrive.deliveries
    WHERE id = i.delivery AND status = 3 AND resolution IS NULL AND token = i.token
    OFFSET 0
) AS d
ORDER BY i.delivery LIMIT $2
"""
_REST_OF = """
SELECT i.delivery, i.token
FROM redrive.replay_items i JOIN redrive.deliveries d ON d.id = i.delivery
WHERE i.replay = $1 AND d.status = 3 AND d.resolution IS NULL AND d.token = i.token
  AND d.destination = ANY ($2::integer[]) AND i.delivery > $3
"""
_LOCK_LETTERS = """
SELECT d.id FROM unnest($1::bigint[], $2::bigint[]) AS given (id, token)
JOIN redrive.deliveries d ON d.id = given.id
WHERE d.status = 3 AND d.resolution IS NULL AND d.token = given.token
ORDER BY d.id FOR NO KEY UPDATE OF d
"""
_TAKE_OFF = """
WITH passed AS (
    DELETE FROM redrive.replay_items
    WHERE (replay = $1 AND delivery <= $2) OR (replay = $1 AND delivery = ANY ($3::bigint[]))
    RETURNING 1
)
SELECT count(*) FROM passed
"""
_BLOCKING = "SELECT id FROM redrive.destinations WHERE document::json ->> 'order' = 'block'"
# A partial index is used only by a query that repeats its condition, hence `status <> 2`.
_STOPPED_BLOCKS = f"""
SELECT DISTINCT d.destination FROM redrive.deliveries d
WHERE d.destination IN ({_BLOCKING})
  AND d.lane IS NOT NULL AND d.status = 3 AND d.status <> 2 AND d.resolution IS NULL
  AND d.id NOT IN (SELECT unnest($1::bigint[]))
"""
_HEAD = """
    FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane
      AND head.status <> 2 AND head.resolution IS NULL
    ORDER BY head.id LIMIT 1
"""
_SENDABLE = f"""
SELECT d.id FROM redrive.deliveries d
WHERE d.id = ANY ($1::bigint[]) AND d.destination <> ALL ($2::integer[]) AND (
    d.lane IS NULL OR NOT (
        SELECT head.status = 3 AND head.id NOT IN (SELECT unnest($1::bigint[])) {_HEAD}
    )
)
ORDER BY d.id
"""
_HELD = f"""
SELECT count(*) FROM redrive.deliveries d
WHERE d.replay = $1 AND d.status = 0 AND (
    d.destination = ANY ($2::integer[]) OR (d.is_behind AND (SELECT head.status = 3 {_HEAD}))
)
"""
_NO_LAST = 2**63 - 1


def selected(selection: Selection) -> tuple[str, list[object]]:
    """Return the condition of a selection, and its values."""
    letters = "d.status = 3 AND d.resolution IS NULL"
    if selection.ids is not None:
        return f"{letters} AND d.id = ANY ($1::bigint[])", [list(selection.ids)]
    if selection.query is None:
        return letters, []
    conditions, values = conditions_of(selection.query, "d.settled_at")
    return " AND ".join([*conditions, letters]), values


async def start(link: Link, new: NewReplay, *, actor: Actor, now: datetime) -> Replay | None:
    """Carry out `Replays.start_replay`."""
    replay = steering.begun(new, actor=actor, now=now)
    condition, values = selected(new.selection)
    if await link.value(f"SELECT 1 {SELECTED.format(where=condition)} LIMIT 1", *values) is None:
        return None
    number = await link.value(_BEGIN, str(replay.state), json_text(replay))
    counted = await link.fetch(
        _SELECT_ITEMS.format(
            number=f"${len(values) + 1}::bigint", found=SELECTED.format(where=condition)
        ),
        *values,
        number,
    )
    if not counted:
        await link.fetch("DELETE FROM redrive.replays WHERE id = $1", number)
        return None
    count = sum(letters for _, letters in counted)
    names = tuple(name for name, _ in counted)
    replay = msgspec.structs.replace(replay, id=number, selected=count, destinations=names)
    await _keep(link, replay)
    await record(link, "start_replay", (), actor, now=now, count=count, detail=str(number))
    return replay


async def running(link: Link) -> list[int]:
    """Return which replays are to be driven."""
    return [one.id for one in await not_over(link) if one.state is ReplayState.RUNNING]


async def not_over(link: Link) -> list[Replay]:
    """Return the replays that are running or paused, the first to begin first."""
    return await _some(link, "WHERE r.state IN ('running', 'paused') ORDER BY r.id")


async def step(
    link: Link, replay_id: int, *, now: datetime, history: int
) -> tuple[ReplayStep | None, Replay] | None:
    """Take the next step of a replay, decided and carried out as one.

    Returns no step if nothing has changed, and nothing at all if it is not running any more.
    """
    replay = await _locked(link, replay_id)
    if replay is None or replay.state is not ReplayState.RUNNING:
        return None
    sent: Sequence[DeliveryId] = ()
    match policy.decide(replay, held=await _held(link, replay), now=now):
        case policy.Send(count=count, wave=wave):
            sent, skipped, behind = await _send(link, replay, count, now=now, history=history)
            after = policy.moved(
                replay, wave, sent=len(sent), skipped=skipped, behind=behind, now=now
            )
        case policy.Wait(until=until):
            after = msgspec.structs.replace(replay, next_at=until)
            if after != replay:
                await _keep(link, after)
            return None, after
        case policy.Stop(why=why):
            after = steering.in_state(replay, ReplayState.STOPPED, why, now=now)
        case policy.Done(why=why):
            after = steering.in_state(replay, ReplayState.DONE, why, now=now)
        case never:
            assert_never(never)
    await _keep(link, after)
    return ReplayStep(replay=after, sent=tuple(sent)), after


async def _send(
    link: Link, replay: Replay, count: int, *, now: datetime, history: int
) -> tuple[Sequence[DeliveryId], int, int]:
    """Send the next letters; return them, how many were not, and how many of those wait behind."""
    found = await link.fetch(_NEXT, replay.id, count)
    letters = [(number, token) for number, token, _ in found]
    last = letters[-1][0] if len(letters) == count else _NO_LAST
    touched = {destination for _, _, destination in found}
    whole = [row[0] for row in await link.fetch(_BLOCKING) if row[0] in touched]
    if whole and last != _NO_LAST:
        letters += [tuple(row) for row in await link.fetch(_REST_OF, replay.id, whole, last)]
    # Locked: what is a letter now stays one until it is sent.
    chosen = [DeliveryId(row[0]) for row in await link.fetch(_LOCK_LETTERS, *columns(letters, 2))]
    passed = await link.value(_TAKE_OFF, replay.id, last, [number for number, _ in letters])
    sent = await send_again(
        link,
        await sendable(link, chosen),
        actor=Actor(replay.by, replay.why),
        generation=replay.generation,
        now=now,
        history=history,
        of_replay=replay.id,
        is_automatic=replay.is_automatic,
    )
    return sent, passed - len(sent), len(chosen) - len(sent)


async def sendable(link: Link, ids: Sequence[DeliveryId]) -> list[DeliveryId]:
    """Leave out what would only wait behind a dead letter that is not sent with it."""
    numbers = list(ids)
    blocked = [row[0] for row in await link.fetch(_STOPPED_BLOCKS, numbers)]
    return [DeliveryId(row[0]) for row in await link.fetch(_SENDABLE, numbers, blocked)]


async def turn(
    link: Link,
    replay_id: int,
    state: ReplayState,
    before: Sequence[ReplayState],
    *,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out what a person says: pause, resume or cancel."""
    replay = await _locked(link, replay_id)
    if replay is None or replay.state not in before:
        return False
    await _keep(link, steering.turned(replay, state, actor=actor, now=now))
    action, number = steering.ACTIONS[state], str(replay_id)
    await record(link, action, (), actor, now=now, count=1, detail=number)
    return True


async def read(link: Link, *, before: int | None, limit: int) -> Sequence[Replay]:
    """Carry out `Replays.replays`."""
    where = "WHERE $1::bigint IS NULL OR r.id < $1 ORDER BY r.id DESC LIMIT $2"
    return await _some(link, where, before, limit)


async def find(link: Link, replay_id: int) -> Replay | None:
    """Carry out `Replays.find_replay`."""
    for replay in await _some(link, "WHERE r.id = $1", replay_id):
        return msgspec.structs.replace(replay, newcomers=await _newcomers(link, replay))
    return None


async def _newcomers(link: Link, replay: Replay) -> int:
    if replay.query is None:
        return 0
    condition, values = selected(Selection(query=replay.query))
    since, sender = f"${len(values) + 1}", f"${len(values) + 2}"
    where = f"{condition} AND d.settled_at > {since} AND d.replay IS DISTINCT FROM {sender}"
    statement = f"SELECT count(*) {SELECTED.format(where=where)}"
    return int(await link.value(statement, *values, replay.started_at, replay.id))


async def _held(link: Link, replay: Replay) -> int:
    """Count the letters under way that wait behind a dead letter."""
    if not replay.under_way:
        return 0
    blocked = [row[0] for row in await link.fetch(_STOPPED_BLOCKS, [])]
    return int(await link.value(_HELD, replay.id, blocked))


async def _locked(link: Link, replay_id: int) -> Replay | None:
    """Return a replay that nobody else changes until the transaction ends.

    It is read after it was locked: whoever held it before may have counted its outcomes.
    """
    if await link.value(_LOCK, replay_id) is None:
        return None
    await link.fetch(_COUNT_OUTCOMES, replay_id)
    [replay] = await _some(link, "WHERE r.id = $1", replay_id)
    return replay


async def _some(link: Link, where: str, *values: object) -> list[Replay]:
    return [steering.read(row) for row in await link.fetch(_READ + where, *values)]


async def _keep(link: Link, replay: Replay) -> None:
    """Write down how a replay stands; what has become of its letters is counted elsewhere."""
    await link.fetch(
        _KEEP,
        replay.id,
        str(replay.state),
        replay.selected,
        replay.sent,
        replay.skipped,
        json_text(replay),
    )
    if replay.state in steering.IS_OVER:
        await link.fetch("DELETE FROM redrive.replay_items WHERE replay = $1", replay.id)
