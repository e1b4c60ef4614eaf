"""Followers: what stands behind the head of a lane, and is applied in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.claiming.passage import is_plain
from redrive.model.delivery import Leased
from redrive.store import Following
from redrive.stores.inbox import inbox_key
from redrive.stores.sql.claiming import leased_from
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.session import Either, Session

__all__ = ["take_followers"]

_MOST = 1_000
_MOST_CHARACTERS = 4 * 2**20
"""How much of a lane is read into memory at once."""
_LONG_ENOUGH = timedelta(hours=1)
"""The lease of what is settled in the same transaction."""

# With the head in front, as everybody locks what is in a lane: by its number. What somebody else
# has in hand ends what can be taken.
_LOCK = """
SELECT d.id FROM redrive.deliveries head JOIN redrive.deliveries d
    ON d.destination = head.destination AND d.lane = head.lane
WHERE head.id = $1 AND head.lane IS NOT NULL AND head.token = $2 AND d.id >= head.id
  AND d.lane IS NOT NULL AND d.status <> 2 AND d.resolution IS NULL
ORDER BY d.id LIMIT $3 FOR NO KEY UPDATE OF d SKIP LOCKED
"""
# A statement after the locks were taken: it sees what others have changed before.
_READ = Either(
    sqlite="iif(d.cycles IS NULL, 0, json_array_length(d.cycles))",
    postgres="coalesce(jsonb_array_length(d.cycles), 0)",
).within("""
SELECT id, token + 1, destination, convert_to(document, 'UTF8'), payload, attempts + 1, kind,
       enqueued_at, snoozes, crashes, last_crash_at, breaker_generation, cycles, deadline, rule,
       is_next
FROM (
    SELECT d.id, d.token, d.destination, e.document, d.payload, d.attempts, d.kind % 3 AS kind,
           d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, head.breaker_generation,
           {} AS cycles, d.deadline, d.rule,
           d.status = 0 AND d.crashes = 0 AND d.kind % 3 = 0 AND d.due <= $2
           AND d.generation = head.generation
           AND (d.deadline IS NULL OR d.deadline > $2) AS is_next,
           sum(length(e.document) + coalesce(length(d.payload), 0)) OVER (ORDER BY d.id) AS total
    FROM redrive.deliveries head JOIN redrive.deliveries d
        ON d.destination = head.destination AND d.lane = head.lane
    JOIN redrive.events e ON e.position = d.position
    WHERE head.id = $1 AND d.id > head.id AND d.id <= $3
      AND d.lane IS NOT NULL AND d.status <> 2 AND d.resolution IS NULL
) AS behind WHERE total <= $4 ORDER BY id
""")
_KNOW = """
INSERT INTO redrive.inbox (handler, source, key, event)
SELECT $1, given.source, given.key, given.event::uuid
FROM json_to_recordset($2::json) AS given (source text, key text, event text) WHERE true
ORDER BY given.source, given.key
ON CONFLICT (handler, source, key) DO NOTHING RETURNING source, key
"""
_LEASE = """
UPDATE redrive.deliveries
SET status = 1, token = token + 1, attempts = attempts + 1, kind = kind % 3, is_ready = true,
    is_behind = false, lease_until = $2,
    worker = (SELECT head.worker FROM redrive.deliveries head WHERE head.id = $1)
WHERE id = ANY ($3::bigint[])
"""


async def take_followers(
    session: Session, head: Leased, follow: Following, *, connection: object
) -> Sequence[Leased]:
    """Run what may go next behind the head of a lane; return what was, leased to be settled."""
    if head.event.key is None or head.is_alone or head.is_probe:
        return ()
    behind = await _behind(session, head)
    if not behind or not await _passes_all(session, head.destination):
        return ()
    while behind:
        await session.fetch("SAVEPOINT redrive_followers")
        followed = await follow(connection, behind)
        count = followed.count
        if followed.is_clean:
            behind = behind[:count]
            count = await _count_new(session, head.destination, behind)
        is_kept = followed.is_clean and count == len(behind)
        if not is_kept:
            await session.fetch("ROLLBACK TO SAVEPOINT redrive_followers")
        await session.fetch("RELEASE SAVEPOINT redrive_followers")
        if is_kept:
            break
        behind = behind[:count]
    if behind:
        ids = [one.lease.delivery_id for one in behind]
        await session.fetch(_LEASE, head.lease.delivery_id, session.now + _LONG_ENOUGH, ids)
    return behind


async def _behind(session: Session, head: Leased) -> Sequence[Leased]:
    """Return what may go next, in order, and keep others from it."""
    number = head.lease.delivery_id
    locked = [one for (one,) in await session.fetch(_LOCK, number, head.lease.token, _MOST)]
    if locked[:1] != [number] or len(locked) == 1:
        return ()
    rows = await session.fetch(_READ, number, session.now, locked[-1], _MOST_CHARACTERS)
    behind: list[Leased] = []
    for row, mine in zip(rows, locked[1:], strict=False):
        *columns, is_next = row
        if not is_next or row[0] != mine:
            break
        behind.append(
            leased_from(
                columns,
                codec=session.codec,
                destination=head.destination,
                now=session.now,
            )
        )
    return behind


async def _passes_all(session: Session, name: str) -> bool:
    """Tell whether a gate lets everything through, and counts nothing of it."""
    gates = await GateRepository.read(session, [name])
    if name not in gates.numbers:
        return False
    passage = await gates.passage(name)
    fairness = gates.fairness(name)
    return (
        fairness.rate is None
        and not fairness.rates
        and is_plain(gates.gate(name), passage, gates.limits(name), now=session.now)
    )


async def _count_new(session: Session, destination: str, behind: Sequence[Leased]) -> int:
    """Write the inbox records; return how many there are before the first that was known."""
    keys = [inbox_key(one.event) for one in behind]
    rows: list[dict[str, object]] = [
        {"source": source, "key": key, "event": one.event.id}
        for (source, key), one in zip(keys, behind, strict=True)
    ]
    if not rows:
        return 0
    new = {tuple(row) for row in await session.fetch(_KNOW, destination, session.records(rows))}
    for place, key in enumerate(keys):
        if key not in new:
            return place
        new.discard(key)
    return len(keys)
