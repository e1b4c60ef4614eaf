"""Replays of many dead letters in SQL: what is selected, and each step of sending it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

import apsw
import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.replay import ReplayState
from redrive.policies import replay as policy
from redrive.store import Advance, NewReplay, Replay, ReplayStep, Selection
from redrive.stores import steering
from redrive.stores.codec import json_text, micros
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.inspection import conditions_of
from redrive.stores.sqlite.intervention import begin_cycles

__all__ = [
    "SELECTED",
    "advance",
    "find",
    "is_running",
    "read",
    "selected",
    "sendable",
    "start",
    "turn",
]

SELECTED = """
FROM redrive_deliveries d
JOIN redrive_events e ON e.position = d.position
JOIN redrive_destinations t ON t.id = d.destination
WHERE {where}
"""
"""The letters of a selection; `selected` gives the condition and its values."""

_READ = f"SELECT {steering.REPLAY_COLUMNS} FROM redrive_replays "
_SELECT_ITEMS = f"""
INSERT INTO redrive_replay_items (replay, delivery, token)
SELECT ?, d.id, d.token {SELECTED}
"""
_HAS_ANY = f"SELECT 1 {SELECTED} LIMIT 1"
_DESTINATIONS = """
SELECT DISTINCT t.name FROM redrive_replay_items i
CROSS JOIN redrive_deliveries d ON d.id = i.delivery
CROSS JOIN redrive_destinations t ON t.id = d.destination
WHERE i.replay = ? ORDER BY t.name
"""
_NEXT = """
SELECT i.delivery, d.destination FROM redrive_replay_items i
CROSS JOIN redrive_deliveries d ON d.id = i.delivery
WHERE i.replay = ? AND d.status = 3 AND d.resolution IS NULL AND d.token = i.token
ORDER BY i.delivery LIMIT ?
"""
_REST_OF = """
SELECT i.delivery FROM redrive_replay_items i
CROSS JOIN redrive_deliveries d ON d.id = i.delivery
WHERE i.replay = ? AND d.status = 3 AND d.resolution IS NULL AND d.token = i.token
  AND d.destination IN (SELECT value FROM json_each(?)) AND i.delivery > ?
ORDER BY i.delivery
"""
# A partial index is used only by a query that repeats its condition, hence `resolution IS NULL`.
_STOPPED_BLOCKS = """
SELECT DISTINCT d.destination FROM redrive_deliveries d
WHERE d.destination IN (SELECT id FROM redrive_destinations WHERE document ->> 'order' = 'block')
  AND d.lane IS NOT NULL AND d.status = 3 AND d.resolution IS NULL
  AND d.id NOT IN (SELECT value FROM json_each(?))
"""
_SENDABLE = """
SELECT d.id FROM json_each(:ids) CROSS JOIN redrive_deliveries d ON d.id = value
WHERE d.destination NOT IN (SELECT value FROM json_each(:blocked)) AND (
    d.lane IS NULL OR NOT (
        SELECT head.status = 3 AND head.id NOT IN (SELECT value FROM json_each(:ids))
        FROM redrive_deliveries AS head
        WHERE head.destination = d.destination AND head.lane = d.lane
          AND head.status <> 2 AND head.resolution IS NULL
        ORDER BY head.id LIMIT 1
    )
)
ORDER BY d.id
"""
_HELD = """
SELECT count(*) FROM redrive_deliveries d
WHERE d.replay = ? AND d.status = 0 AND (
    d.destination IN (SELECT value FROM json_each(?)) OR (d.is_behind AND (
        SELECT head.status = 3 FROM redrive_deliveries AS head
        WHERE head.destination = d.destination AND head.lane = d.lane
          AND head.status <> 2 AND head.resolution IS NULL
        ORDER BY head.id LIMIT 1
    ))
)
"""


def selected(selection: Selection) -> tuple[str, list[object]]:
    """Return the condition of a selection, and its values."""
    if selection.ids is not None:
        condition = (
            "d.status = 3 AND d.resolution IS NULL AND d.id IN (SELECT value FROM json_each(?))"
        )
        return condition, [json_text(selection.ids)]
    if selection.query is None:
        return "d.status = 3 AND d.resolution IS NULL", []
    conditions, values = conditions_of(selection.query, "d.settled_at")
    return " AND ".join([*conditions, "d.status = 3", "d.resolution IS NULL"]), values


def start(
    connection: apsw.Connection, new: NewReplay, *, actor: Actor, now: datetime
) -> Replay | None:
    """Carry out `Replays.start_replay`."""
    replay = steering.begun(new, actor=actor, now=now)
    condition, values = selected(new.selection)
    if connection.execute(_HAS_ANY.format(where=condition), values).get is None:
        return None
    connection.execute(
        "INSERT INTO redrive_replays (state, selected, document) VALUES (?, 0, ?)",
        (replay.state, json_text(replay)),
    )
    number = connection.last_insert_rowid()
    connection.execute(_SELECT_ITEMS.format(where=condition), (number, *values))
    count = connection.changes()
    names = tuple(name for (name,) in rows(connection, _DESTINATIONS, (number,)))
    replay = msgspec.structs.replace(replay, id=number, selected=count, destinations=names)
    connection.execute("UPDATE redrive_replays SET selected = ? WHERE id = ?", (count, number))
    _keep(connection, replay)
    record(connection, "start_replay", (), actor, now=now, count=count, detail=str(number))
    return replay


def is_running(connection: apsw.Connection) -> bool:
    """Tell whether any replay is to be driven; takes no write lock, unlike `advance`."""
    found = connection.execute(
        "SELECT 1 FROM redrive_replays WHERE state IN ('running', 'paused') AND state = 'running'"
    ).get
    return found is not None


def advance(connection: apsw.Connection, *, now: datetime, history: int) -> Advance:
    """Carry out `Replays.advance_replays`."""
    running = _some(
        connection, "WHERE state IN ('running', 'paused') AND state = 'running' ORDER BY id", ()
    )
    taken = [_step(connection, replay, now=now, history=history) for replay in running]
    return steering.summary(taken, now=now)


def _step(
    connection: apsw.Connection, replay: Replay, *, now: datetime, history: int
) -> tuple[ReplayStep | None, Replay]:
    """Decide about a replay and carry it out; no step if nothing has changed."""
    sent: Sequence[DeliveryId] = ()
    match policy.decide(replay, held=_held(connection, replay), now=now):
        case policy.Send(count=count, wave=wave):
            sent, skipped, behind = _send(connection, replay, count, now=now, history=history)
            after = policy.moved(
                replay, wave, sent=len(sent), skipped=skipped, behind=behind, now=now
            )
        case policy.Wait(until=until):
            if replay.next_at != until:
                _keep(connection, msgspec.structs.replace(replay, next_at=until))
            return None, msgspec.structs.replace(replay, next_at=until)
        case policy.Stop(why=why):
            after = steering.in_state(replay, ReplayState.STOPPED, why, now=now)
        case policy.Done(why=why):
            after = steering.in_state(replay, ReplayState.DONE, why, now=now)
        case never:
            assert_never(never)
    _keep(connection, after)
    return ReplayStep(replay=after, sent=tuple(sent)), after


def _send(
    connection: apsw.Connection, replay: Replay, count: int, *, now: datetime, history: int
) -> tuple[Sequence[DeliveryId], int, int]:
    """Send the next letters; return them, how many were not, and how many of those wait behind."""
    found = rows(connection, _NEXT, (replay.id, count))
    chosen = [number for number, _ in found]
    last = chosen[-1] if len(chosen) == count else None
    touched = {destination for _, destination in found}
    whole = [number for number in _blocking(connection) if number in touched]
    if whole and last is not None:
        more = rows(connection, _REST_OF, (replay.id, json_text(whole), last))
        chosen += [number for (number,) in more]
    connection.execute(
        "DELETE FROM redrive_replay_items WHERE replay = ?1 "
        "AND (?2 IS NULL OR delivery <= ?2 OR delivery IN (SELECT value FROM json_each(?3)))",
        (replay.id, last, json_text(chosen)),
    )
    passed = connection.changes()
    sent = begin_cycles(
        connection,
        sendable(connection, chosen),
        by=replay.by,
        generation=replay.generation,
        now=now,
        history=history,
        replay=replay.id,
        is_automatic=replay.is_automatic,
    )
    return sent, passed - len(sent), len(chosen) - len(sent)


def sendable(connection: apsw.Connection, ids: Sequence[DeliveryId]) -> list[DeliveryId]:
    """Leave out what would only wait behind a dead letter that is not sent with it."""
    numbers = json_text(ids)
    blocked = [number for (number,) in rows(connection, _STOPPED_BLOCKS, (numbers,))]
    return [
        DeliveryId(number)
        for (number,) in rows(
            connection, _SENDABLE, {"ids": numbers, "blocked": json_text(blocked)}
        )
    ]


def turn(
    connection: apsw.Connection,
    replay_id: int,
    state: ReplayState,
    before: Sequence[ReplayState],
    *,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out what a person says: pause, resume or cancel."""
    found = _some(connection, "WHERE id = ?", (replay_id,))
    if not found or found[0].state not in before:
        return False
    _keep(connection, steering.turned(found[0], state, actor=actor, now=now))
    action, number = steering.ACTIONS[state], str(replay_id)
    record(connection, action, (), actor, now=now, count=1, detail=number)
    return True


def read(connection: apsw.Connection, *, before: int | None, limit: int) -> Sequence[Replay]:
    """Carry out `Replays.replays`."""
    return _some(
        connection, "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (before, limit)
    )


def find(connection: apsw.Connection, replay_id: int) -> Replay | None:
    """Carry out `Replays.find_replay`."""
    for replay in _some(connection, "WHERE id = ?", (replay_id,)):
        return msgspec.structs.replace(replay, newcomers=_newcomers(connection, replay))
    return None


def _newcomers(connection: apsw.Connection, replay: Replay) -> int:
    if replay.query is None:
        return 0
    condition, values = selected(Selection(query=replay.query))
    where = f"{condition} AND d.settled_at > ? AND d.replay IS NOT ?"
    return int(
        connection.execute(
            f"SELECT count(*) {SELECTED.format(where=where)}",
            (*values, micros(replay.started_at), replay.id),
        ).get
    )


def _held(connection: apsw.Connection, replay: Replay) -> int:
    """Count the letters under way that wait behind a dead letter."""
    if not replay.under_way:
        return 0
    blocked = [number for (number,) in rows(connection, _STOPPED_BLOCKS, ("[]",))]
    return int(connection.execute(_HELD, (replay.id, json_text(blocked))).get)


def _blocking(connection: apsw.Connection) -> list[int]:
    return [
        number
        for (number,) in rows(
            connection,
            "SELECT id FROM redrive_destinations WHERE document ->> 'order' = 'block'",
        )
    ]


def _some(connection: apsw.Connection, where: str, values: Sequence[object]) -> list[Replay]:
    return [steering.read(row) for row in rows(connection, _READ + where, values)]


def _keep(connection: apsw.Connection, replay: Replay) -> None:
    """Write down how a replay stands; what has become of its letters is counted elsewhere."""
    connection.execute(
        "UPDATE redrive_replays SET state = ?, sent = ?, skipped = ?, document = ? WHERE id = ?",
        (replay.state, replay.sent, replay.skipped, json_text(replay), replay.id),
    )
    if replay.state in steering.IS_OVER:
        connection.execute("DELETE FROM redrive_replay_items WHERE replay = ?", (replay.id,))
