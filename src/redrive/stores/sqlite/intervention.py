"""What a person, or a deadline, may change in the SQLite store; each change leaves its audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from redrive.model.delivery import Cycle, Delivery, DeliveryId
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.store import Blame
from redrive.stores.codec import json_text, micros
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.inspection import find_deliveries
from redrive.stores.sqlite.lanes import pass_by, rejoin

__all__ = ["begin_cycles", "fail_pending"]

_OF = "id IN (SELECT value FROM json_each(?))"
_REPLAY = """
UPDATE redrive_deliveries
SET status = 0, is_ready = 1, kind = 2, due = ?1, attempts = 0, snoozes = 0, crashes = 0,
    last_crash_at = NULL, settled_at = NULL, first_failed_at = NULL, last_failed_at = NULL,
    reason = NULL, group_id = NULL, fault = NULL, log = NULL, cycles = ?2,
    generation = ifnull(?3, generation), replay = ?5, auto_replays = auto_replays + ?6,
    deadline = CASE WHEN deadline > ?1 THEN deadline END
WHERE id = ?4
"""
_DESTINATIONS = f"""
SELECT id, name FROM redrive_destinations
WHERE id IN (SELECT destination FROM redrive_deliveries WHERE {_OF})
"""
_FAIL_PENDING = f"""
UPDATE redrive_deliveries
SET status = 3, reason = ?1, fault = ?2, group_id = ?2 ->> 'group', settled_at = ?3,
    first_failed_at = ifnull(first_failed_at, ?3), last_failed_at = ?3
WHERE destination = ?4 AND {_OF}
"""


def begin_cycles(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    by: str,
    generation: str | None,
    now: datetime,
    history: int,
    replay: int | None = None,
    is_automatic: bool = False,
) -> list[DeliveryId]:
    """Make those that are unresolved dead letters pending again, and return them."""
    dead = find_deliveries(
        connection,
        f"WHERE d.{_OF} AND d.status = 3 AND d.resolution IS NULL ORDER BY d.id",
        (json_text(ids),),
    )
    connection.executemany(
        _REPLAY,
        (
            (
                micros(now),
                json_text((*delivery.cycles, _cycle(delivery, by, now=now))[-history:]),
                generation,
                delivery.id,
                replay,
                is_automatic,
            )
            for delivery in dead
        ),
    )
    changed = [delivery.id for delivery in dead]
    connection.execute(
        f"DELETE FROM redrive_exchanges WHERE {_OF.replace('id', 'delivery')}",
        (json_text(changed),),
    )
    rejoin(connection, changed)
    return changed


def _cycle(delivery: Delivery, by: str, *, now: datetime) -> Cycle:
    return Cycle(
        attempts=delivery.attempts,
        reason=delivery.reason or FailureReason.EXHAUSTED,
        fault=delivery.fault or Fault(error_class="", message="", rule=""),
        failed_at=delivery.settled_at or now,
        generation=delivery.generation,
        replayed_at=now,
        replayed_by=by,
        first_failed_at=delivery.first_failed_at,
        log=delivery.log,
    )


def fail_pending(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    reason: FailureReason,
    blame: Blame,
    *,
    now: datetime,
) -> None:
    """Fail pending deliveries, each for what its destination is blamed for."""
    numbers = json_text(ids)
    destinations = rows(connection, _DESTINATIONS, (numbers,))
    for destination, name in destinations:
        values = (reason, json_text(blame(str(name))), micros(now), destination, numbers)
        connection.execute(_FAIL_PENDING, values)
    pass_by(connection, ids)
