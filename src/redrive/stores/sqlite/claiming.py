"""Claiming in SQL: which deliveries may start now, and the leases on them.

Rows of a claim come back as one JSON document, and batches go in as one: each statement then
crosses between SQLite and Python once, not once per row, which matters because every crossing has
to win the interpreter's lock from the handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.model.delivery import SUSPECT_AFTER, DeliveryId, Kind, Lease, Leased
from redrive.model.event import Event
from redrive.store import Allowance, Claim, ClaimRequest
from redrive.stores.codec import from_micros, json_text, maybe_from_micros, micros

__all__ = ["KINDS", "claim", "see_worker"]

KINDS = (Kind.FIRST, Kind.RETRY, Kind.REPLAY)
_MOST_PROMOTED = 2_000

_EARLIEST_WAITING = """
SELECT due FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 ORDER BY due LIMIT 1
"""
_PROMOTE = """
UPDATE redrive_deliveries SET is_ready = 1 WHERE id IN (
    SELECT id FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 AND due <= ?
    ORDER BY due LIMIT ?
)
"""
_CANDIDATES = """
SELECT json_group_array(json_array(priority, id)) FROM (
    SELECT priority, id FROM redrive_deliveries
    WHERE destination = ? AND generation = ? AND kind = ?
      AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2
      AND (deadline IS NULL OR deadline > ?)
    ORDER BY priority DESC, id LIMIT ?
)
"""
_SUSPECTS = """
SELECT json_group_array(json_array(priority, id)) FROM (
    SELECT priority, id FROM redrive_deliveries
    WHERE destination IN (SELECT value FROM json_each(?))
      AND generation IN (SELECT value FROM json_each(?))
      AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2
      AND (deadline IS NULL OR deadline > ?)
    ORDER BY priority DESC, id LIMIT 100
)
"""
_NEXT_DUE = """
SELECT due FROM redrive_deliveries
WHERE status = 0 AND is_ready = 0 AND is_behind = 0
  AND destination IN (SELECT value FROM json_each(?))
  AND generation IN (SELECT value FROM json_each(?))
ORDER BY due LIMIT 1
"""
_LEASE = """
UPDATE redrive_deliveries
SET status = 1, token = token + 1, attempts = attempts + 1, worker = ?, lease_until = ?,
    is_alone = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_LEASED = """
SELECT '[' || group_concat('[' || d.id || ',' || d.token || ',' || d.destination || ','
    || d.attempts || ',' || d.kind || ',' || d.enqueued_at || ',' || d.snoozes || ','
    || d.crashes || ',' || ifnull(d.last_crash_at, 'null') || ',' || e.document || ']') || ']'
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
"""

_pairs = msgspec.json.Decoder(list[tuple[int, int]])


class _Row(msgspec.Struct, array_like=True, frozen=True):
    id: int
    token: int
    destination: int
    attempts: int
    kind: int
    enqueued_at: int
    snoozes: int
    crashes: int
    last_crash_at: int | None
    event: Event[msgspec.Raw]


_rows = msgspec.json.Decoder(list[_Row])


def claim(connection: apsw.Connection, request: ClaimRequest, *, now: datetime) -> Claim:
    """Carry out `DeliveryQueue.claim`."""
    moment = micros(now)
    earliest = connection.execute(_EARLIEST_WAITING).get
    if earliest is not None and earliest <= moment:
        connection.execute(_PROMOTE, (moment, _MOST_PROMOTED))
    names = dict(connection.execute("SELECT id, name FROM redrive_destinations"))
    asked = {one.destination: one for one in request.allowances}
    known = {name: number for number, name in names.items()}
    numbers = {known[name]: one for name, one in asked.items() if name in known}
    scope = (json_text(list(numbers)), json_text(request.generations))

    startable = json_text([number for number, one in numbers.items() if one.total > 0])
    suspects = _pairs.decode(connection.execute(_SUSPECTS, (startable, scope[1], moment)).get)
    if request.alone:
        chosen = [number for _, number in suspects[:1]]
    else:
        chosen = [
            number
            for destination, allowance in numbers.items()
            for number in _choose(connection, destination, allowance, request, moment)
        ][: request.limit]
    next_due = connection.execute(_NEXT_DUE, scope).get
    return Claim(
        now=now,
        deliveries=_lease(connection, chosen, request, names, now=now) if chosen else (),
        next_due=maybe_from_micros(next_due),
        suspects=len(suspects) - (len(chosen) if request.alone else 0),
    )


def _choose(
    connection: apsw.Connection,
    destination: int,
    allowance: Allowance,
    request: ClaimRequest,
    moment: int,
) -> list[int]:
    """Return the ids of a destination that may start, in the order they should."""
    found: list[tuple[int, int]] = []
    for number, kind in enumerate(KINDS):
        limit = allowance.of(kind)
        if limit <= 0:
            continue
        of_kind: list[tuple[int, int]] = []
        for generation in request.generations:
            of_kind += _pairs.decode(
                connection.execute(
                    _CANDIDATES, (destination, generation, number, moment, limit)
                ).get
            )
        if len(request.generations) > 1:
            of_kind.sort(key=_precedence)
        found += of_kind[:limit]
    found.sort(key=_precedence)
    return [number for _, number in found[: allowance.total]]


def _precedence(candidate: tuple[int, int]) -> tuple[int, int]:
    priority, number = candidate
    return -priority, number


def _lease(
    connection: apsw.Connection,
    chosen: Sequence[int],
    request: ClaimRequest,
    names: dict[int, str],
    *,
    now: datetime,
) -> tuple[Leased, ...]:
    ids = json_text(chosen)
    until = micros(now + request.lease)
    see_worker(connection, request.worker, micros(now))
    connection.execute(_LEASE, (request.worker, until, request.alone, ids))
    rows = _rows.decode(connection.execute(_LEASED, (ids,)).get)
    return tuple(
        Leased(
            lease=Lease(DeliveryId(row.id), row.token),
            destination=names[row.destination],
            event=row.event,
            attempt=row.attempts,
            kind=KINDS[row.kind],
            claimed_at=now,
            enqueued_at=from_micros(row.enqueued_at),
            snoozes=row.snoozes,
            crashes=row.crashes,
            last_crash_at=maybe_from_micros(row.last_crash_at),
            is_alone=request.alone,
        )
        for row in rows
    )


def see_worker(connection: apsw.Connection, worker: str, moment: int) -> None:
    """Note that a worker was heard of."""
    connection.execute(
        "INSERT INTO redrive_workers (id, seen_at) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
        (worker, moment),
    )


assert SUSPECT_AFTER == 2, "the partial indexes and queries above say 2"  # noqa: S101, PLR2004
