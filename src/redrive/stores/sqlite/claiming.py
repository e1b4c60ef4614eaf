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

from redrive.model.delivery import SUSPECT_AFTER, Kind, Leased
from redrive.store import Allowance, Claim, ClaimRequest
from redrive.stores.codec import json_text, maybe_from_micros, micros

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
SELECT json_group_array(json_array(-priority, id)) FROM (
    SELECT priority, id FROM redrive_deliveries
    WHERE destination = ? AND generation = ? AND kind = ?
      AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2
      AND (deadline IS NULL OR deadline > ?)
    ORDER BY priority DESC, id LIMIT ?
)
"""
_SUSPECTS = """
SELECT json_group_array(json_array(-priority, id)) FROM (
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
SELECT '[' || group_concat('[[' || d.id || ',' || d.token || '],' || json_quote(t.name) || ','
    || e.document || ',' || d.attempts || ',"'
    || CASE d.kind WHEN 0 THEN 'first' WHEN 1 THEN 'retry' ELSE 'replay' END || '",'
    || :now || ',' || format('%.6f', d.enqueued_at / 1e6) || ','
    || d.snoozes || ',' || d.crashes || ','
    || iif(d.last_crash_at IS NULL, 'null', format('%.6f', d.last_crash_at / 1e6)) || ','
    || :alone || ']') || ']'
FROM json_each(:ids) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
"""
"""Each row is a `Leased` as JSON, in the order of its fields."""

_pairs = msgspec.json.Decoder(list[tuple[int, int]])


# Instants come as seconds with six decimals, which only a decoder that is not strict reads.
_leased = msgspec.json.Decoder(tuple[Leased, ...], strict=False)


def claim(connection: apsw.Connection, request: ClaimRequest, *, now: datetime) -> Claim:
    """Carry out `DeliveryQueue.claim`."""
    moment = micros(now)
    earliest = connection.execute(_EARLIEST_WAITING).get
    if earliest is not None and earliest <= moment:
        connection.execute(_PROMOTE, (moment, _MOST_PROMOTED))
    known = dict(connection.execute("SELECT name, id FROM redrive_destinations"))
    numbers = {
        known[one.destination]: one for one in request.allowances if one.destination in known
    }
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
        deliveries=_lease(connection, chosen, request, now=now) if chosen else (),
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
    """Return the ids of a destination that may start: higher priority first, then publish order."""
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
        found += sorted(of_kind)[:limit]
    found.sort()
    return [number for _, number in found[: allowance.total]]


def _lease(
    connection: apsw.Connection,
    chosen: Sequence[int],
    request: ClaimRequest,
    *,
    now: datetime,
) -> tuple[Leased, ...]:
    ids = json_text(chosen)
    moment = micros(now)
    see_worker(connection, request.worker, moment)
    until = micros(now + request.lease)
    connection.execute(_LEASE, (request.worker, until, request.alone, ids))
    instant = f"{moment // 1_000_000}.{moment % 1_000_000:06}"
    alone = json_text(request.alone)
    found = connection.execute(_LEASED, {"ids": ids, "now": instant, "alone": alone}).get
    return _leased.decode(found)


def see_worker(connection: apsw.Connection, worker: str, moment: int) -> None:
    """Note that a worker was heard of."""
    connection.execute(
        "INSERT INTO redrive_workers (id, seen_at) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
        (worker, moment),
    )


assert SUSPECT_AFTER == 2, "the partial indexes and queries above say 2"  # noqa: S101, PLR2004
