"""What has been kept long enough goes, in small batches that wait for nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.store import LetterQuota, Pruned
from redrive.stores.codec import destination_from, json_text
from redrive.stores.deduplicate import Kept, Remains
from redrive.stores.sql.audit import record
from redrive.stores.sql.counts import FAILED, HAS_CHANGES, fold
from redrive.stores.sql.lanes import lanes_of
from redrive.stores.sql.removal import grow, leave_idle, remove
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing

__all__ = ["IS_READ", "OF_EVENT", "Bookmark", "RetentionRole", "prune"]

_OVER = "state NOT IN ('running', 'paused')"
_CHANGED_AT = Either(
    sqlite="unixepoch(document ->> 'changed_at') * 1000000",
    postgres="(document::json ->> 'changed_at')::timestamptz",
)
# Entries and replays are in the order of time, or next to it: a look at the first tells.
_LOOK = _CHANGED_AT.within(f"""
SELECT EXISTS (
        SELECT FROM redrive.deliveries WHERE status = 2 AND settled_at <= now - $2::interval
    )
    OR EXISTS (SELECT FROM redrive.deliveries WHERE resolved_at <= now - $3::interval)
    OR EXISTS (SELECT FROM redrive.idle WHERE since <= now - $3::interval)
    OR EXISTS (SELECT FROM redrive.tenants WHERE served_at <= now - $3::interval)
    OR EXISTS (SELECT FROM redrive.idempotency WHERE since <= now - $4::interval)
    OR EXISTS (SELECT FROM redrive.uniques WHERE until <= now)
    OR EXISTS (SELECT FROM redrive.inbox WHERE since <= now - $5::interval)
    OR EXISTS (SELECT FROM redrive.group_aliases WHERE at <= now - $6::interval)
    OR coalesce((
        SELECT at <= now - $6::interval FROM redrive.audit ORDER BY id LIMIT 1
    ), false)
    OR coalesce((
        SELECT {{}} <= now - $6::interval FROM redrive.replays WHERE {_OVER} ORDER BY id LIMIT 1
    ), false)
    OR {{changes}}
FROM {PRESENT}
""")
_HAS_PRUNABLE = Either(
    *(look.replace("{changes}", changes) for look, changes in zip(_LOOK, HAS_CHANGES, strict=True))
)
_DELIVERED = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM redrive.deliveries WHERE status = 2 AND settled_at <= $1
    ORDER BY settled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.deliveries WHERE id IN (SELECT id FROM chosen)
RETURNING position, settled_at, destination
"""
_RESOLVED = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM redrive.deliveries WHERE resolved_at <= $1
    ORDER BY resolved_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.deliveries WHERE id IN (SELECT id FROM chosen)
RETURNING position, resolved_at
"""
_LOCK_DESTINATIONS = """
SELECT id FROM redrive.destinations WHERE id = ANY ($1::integer[]) ORDER BY id FOR NO KEY UPDATE
"""
_COUNT_PRUNED = """
UPDATE redrive.destinations AS t SET pruned = t.pruned + given.number
FROM json_to_recordset($1::json) AS given (id integer, number bigint) WHERE t.id = given.id
"""
_LOCK_IDLE = """
SELECT position, since FROM redrive.idle WHERE position = ANY ($1::bigint[]) AND since <= $2
ORDER BY since, position FOR UPDATE SKIP LOCKED
"""
IS_READ = Either(
    sqlite="c.number >= e.position", postgres="(c.time, c.number) >= (e.xid, e.position)"
).within("NOT EXISTS (SELECT FROM redrive.checkpoints c WHERE NOT {})")
"""Whether every projection is past the event `e`."""

# What is not to go yet, by its type or because somebody has still to read it, may be any number:
# each look begins where the last one has ended.
_IDLE = IS_READ.within("""
SELECT i.position, i.since, e.type, {} FROM redrive.idle i CROSS JOIN redrive.events e
WHERE i.since <= $1 AND (i.since, i.position) > ($2::timestamptz, $3::bigint)
  AND e.position = i.position
ORDER BY i.since, i.position LIMIT $4
""")
_LOCK_EVENTS = IS_READ.within("""
SELECT e.position FROM redrive.events e WHERE e.position = ANY ($1::bigint[]) AND {}
ORDER BY e.position FOR UPDATE OF e SKIP LOCKED
""")
OF_EVENT = Either(
    sqlite="""i.position = e.position
    AND i.source = ifnull(iif(json_valid(e.document), e.document ->> 'source', ''), '')
    AND i.key = iif(json_valid(e.document), e.document ->> 'idempotency_key', NULL)""",
    postgres="i.event = e.id",
)
"""Whether the idempotency key `i` was used for the event `e`."""

# A statement after the lock: what was given to an event until then is seen. The document is read
# only of those whose key outlives them.
_FINISHED = OF_EVENT.within("""
SELECT e.position, e.id::text, e.destinations, e.version, given.since, i.source, i.key,
       CASE WHEN given.since > $2 AND i.key IS NOT NULL THEN convert_to(e.document, 'UTF8') END
FROM json_to_recordset($1::json) AS given (position bigint, since timestamptz)
CROSS JOIN redrive.events e LEFT JOIN redrive.idempotency i ON {}
WHERE e.position = given.position
  AND NOT EXISTS (SELECT FROM redrive.deliveries d WHERE d.position = e.position)
""")
_OUTLIVE = """
UPDATE redrive.idempotency AS i SET since = given.since, remains = given.remains
FROM json_to_recordset($1::json) AS given (source text, key text, since timestamptz, remains text)
WHERE i.source = given.source AND i.key = given.key
"""
_FORGET_KEYS = """
DELETE FROM redrive.idempotency WHERE (source, key) IN (
    SELECT source, key FROM json_to_recordset($1::json) AS given (source text, key text)
)
"""
_FORGET_REMAINS = """
WITH chosen AS MATERIALIZED (
    SELECT source, key FROM redrive.idempotency WHERE since <= $1 ORDER BY since LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.idempotency WHERE (source, key) IN (SELECT source, key FROM chosen)
RETURNING key
"""
# Whoever takes one of these just now holds it: it is theirs then.
_FORGET_UNIQUES = """
WITH chosen AS MATERIALIZED (
    SELECT source, key FROM redrive.uniques WHERE until <= $1 ORDER BY until LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.uniques WHERE (source, key) IN (SELECT source, key FROM chosen)
"""
_LEAVE_INBOX = """
UPDATE redrive.inbox AS n SET since = given.since
FROM json_to_recordset($1::json) AS given (event uuid, since timestamptz)
WHERE n.event = given.event
"""
# Whoever applies an effect holds its record for as long as the handler runs.
_PAST_INBOX = """
SELECT handler, source, key FROM redrive.inbox WHERE since <= $1 ORDER BY since LIMIT $2
FOR UPDATE SKIP LOCKED
"""
_RECORDS = "json_to_recordset($1::json) AS given (handler text, source text, key text)"
# A record goes on with another event that was published under the same key since.
_KEEP_INBOX = Either(
    sqlite="ifnull((SELECT e.id FROM redrive_events e WHERE e.position = i.position), n.event)",
    postgres="i.event",
).within(f"""
UPDATE redrive.inbox AS n SET since = i.since, event = {{}}
FROM {_RECORDS} JOIN redrive.idempotency i ON i.source = given.source AND i.key = given.key
WHERE n.handler = given.handler AND n.source = given.source AND n.key = given.key
""")
_FORGET_INBOX = f"""
DELETE FROM redrive.inbox AS n
WHERE (handler, source, key) IN (SELECT handler, source, key FROM {_RECORDS})
  AND since <= $2 AND NOT EXISTS (
      SELECT FROM redrive.idempotency i WHERE i.source = n.source AND i.key = n.key
  )
RETURNING handler
"""
# Only computed when some tenant is old enough to forget, because it scans every pending row.
_FORGET_TENANTS = """
WITH busy AS MATERIALIZED (
    SELECT DISTINCT destination, coalesce(tenant, '') COLLATE "C" AS tenant
    FROM redrive.deliveries
    WHERE status IN (0, 1) AND EXISTS (SELECT FROM redrive.tenants WHERE served_at <= $1)
), idle AS MATERIALIZED (
    SELECT t.destination, t.tenant FROM redrive.tenants t
    WHERE t.served_at <= $1 AND NOT EXISTS (
        SELECT FROM busy WHERE busy.destination = t.destination AND busy.tenant = t.tenant
    )
    LIMIT $2 FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM redrive.tenants
WHERE (destination, tenant) IN (SELECT destination, tenant FROM idle)
"""
_FORGET_AUDIT = """
DELETE FROM redrive.audit
WHERE at <= $1 AND id IN (SELECT id FROM redrive.audit ORDER BY id LIMIT $2) RETURNING id
"""
_PAST_REPLAYS = _CHANGED_AT.within(f"""
SELECT id FROM redrive.replays WHERE {_OVER} AND {{}} <= $1 ORDER BY id LIMIT $2
FOR UPDATE SKIP LOCKED
""")
_FORGET_OUTCOMES = Either(
    sqlite="SELECT $1",  # nothing: a trigger counts them as they come
    postgres="DELETE FROM redrive.replay_outcomes WHERE replay = ANY ($1::bigint[])",
)
# Whoever published by older routes than these has ended, and what they published is complete.
_FORGET_CHANGES = Either(
    sqlite="SELECT $1",  # nothing: nobody publishes while routes change
    postgres="""
DELETE FROM redrive.route_changes WHERE version <= (
    SELECT max(version) FROM redrive.route_changes
) - $1 AND NOT EXISTS (SELECT FROM redrive.route_changes WHERE NOT is_done)
AND NOT EXISTS (SELECT FROM redrive.late_events)
""",
)
_CHANGES_KEPT = 1_000
"""How many changes of routes are kept; a deployment makes a few."""

_TYPES = "SELECT DISTINCT type FROM redrive.events"
_EVENTS_TO_PRUNE = """
SELECT count(*), count(*) FILTER (WHERE has_key AND since <= $3),
       coalesce(sum(applied) FILTER (WHERE since <= $4), 0)
FROM (
    SELECT EXISTS (SELECT FROM redrive.idempotency i WHERE {of_event}) AS has_key,
    (SELECT count(*) FROM redrive.inbox n WHERE n.event = e.id) AS applied, (
        SELECT max(one.since) FROM (
            SELECT i.since FROM redrive.idle i WHERE i.position = e.position
            UNION ALL
            SELECT coalesce(d.resolved_at, d.settled_at) FROM redrive.deliveries d
            WHERE d.position = e.position
        ) AS one
    ) AS since
    , given.old_by FROM json_to_recordset($5::json) AS given (type text, old_by timestamptz)
    CROSS JOIN redrive.events e WHERE e.type = given.type AND NOT EXISTS (
        SELECT FROM redrive.deliveries d WHERE d.position = e.position
          AND (d.status = 2 AND d.settled_at <= $1) IS NOT TRUE
          AND (d.resolved_at <= $2) IS NOT TRUE
    ) AND {is_read}
) AS finished WHERE since <= finished.old_by
"""
_PRUNABLE_EVENTS = Either(
    *(
        _EVENTS_TO_PRUNE.replace("{of_event}", of_event).replace("{is_read}", is_read)
        for of_event, is_read in zip(OF_EVENT, IS_READ, strict=True)
    )
)
_PRUNABLE = _CHANGED_AT.within(f"""
SELECT (SELECT count(*) FROM redrive.deliveries WHERE status = 2 AND settled_at <= $1),
       (SELECT count(*) FROM redrive.deliveries WHERE resolved_at <= $2),
       (SELECT count(*) FROM redrive.idempotency WHERE since <= $3),
       (SELECT count(*) FROM redrive.inbox WHERE since <= $4),
       (SELECT count(*) FROM redrive.audit WHERE at <= $5),
       (SELECT count(*) FROM redrive.replays WHERE {_OVER} AND {{}} <= $5)
""")
_LETTER_QUOTAS = f"""
SELECT present.now, t.name, t.document, (
    SELECT coalesce(sum(k.number), 0)::bigint FROM redrive.kept_counts k
    WHERE k.destination = t.id AND k.state = {FAILED}
) AS letters_kept, (
    SELECT min(d.settled_at) FROM redrive.deliveries d
    WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
) AS oldest
FROM {PRESENT} CROSS JOIN redrive.destinations t
WHERE t.document::json ->> 'dead_letters' IS NOT NULL ORDER BY t.name COLLATE "C"
"""
_UNCHANGED = """
SELECT d.id, d.edits::text FROM json_to_recordset($1::json) AS given (id bigint, at timestamptz)
CROSS JOIN redrive.deliveries d
WHERE d.id = given.id AND d.status = 3 AND d.resolution IS NULL AND d.settled_at = given.at
ORDER BY d.id FOR UPDATE OF d
"""
# Nothing is written while somebody else has the turn, nor while one's own lasts for half of it.
_HOLDS_WATCH = f"""
SELECT worker = $3 FROM {PRESENT} CROSS JOIN redrive.watches
WHERE duty = $2 AND until > now AND (worker <> $3 OR until > now + $4::interval / 2)
"""
_TAKE_WATCH = """
INSERT INTO redrive.watches AS known (duty, worker, until) VALUES ($1, $2, $3)
ON CONFLICT (duty) DO UPDATE SET worker = excluded.worker, until = excluded.until
WHERE known.worker = excluded.worker OR known.until <= $4
RETURNING duty
"""

_names = msgspec.json.Decoder(tuple[str, ...])
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_PAGES = 10
"""How many pages of what may not go are looked through at once."""


class Bookmark:
    """Where the next look for events that may go begins; at the end of them it begins anew."""

    def __init__(self) -> None:
        self.since, self.position = _BEGINNING, 0

    def put(self, since: datetime, position: int) -> None:
        self.since, self.position = since, position


class RetentionRole(SqlStore):
    """`Housekeeping`, but for groups; what somebody else has in hand is left for the next time."""

    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        spans = _spans(retention)
        [(has_prunable,)] = await self._query(
            _HAS_PRUNABLE, spans[0], retention.shortest, *spans[2:]
        )
        if not has_prunable:
            return Pruned()
        mark = self._bookmark
        return await self._write(lambda session, _: prune(session, retention, mark, limit=limit))

    @cached_property
    def _bookmark(self) -> Bookmark:
        return Bookmark()

    @reading
    async def prunable(self, session: Session, retention: Retention) -> Pruned:
        cuts = _cuts(session, retention)
        spans = {kind: retention.keeps(kind) for (kind,) in await session.fetch(_TYPES)}
        by_type: list[dict[str, object]] = [
            {"type": kind, "old_by": session.now - span}
            for kind, span in spans.items()
            if span is not None
        ]
        [(events, keys, inbox)] = await session.fetch(
            _PRUNABLE_EVENTS, *cuts[:4], session.records(by_type)
        )
        [(delivered, resolved, outlived, remains, audit, replays)] = await session.fetch(
            _PRUNABLE, *cuts
        )
        return Pruned(
            delivered=delivered,
            resolved=resolved,
            events=events,
            keys=keys + outlived,
            inbox=int(inbox) + remains,
            audit=audit,
            replays=replays,
        )

    async def letter_quotas(self) -> Sequence[LetterQuota]:
        return [
            LetterQuota(
                destination=name, keep=keep, count=count, oldest=instant(oldest), now=instant(now)
            )
            for now, name, document, count, oldest in await self._query(_LETTER_QUOTAS)
            if (keep := destination_from(document).dead_letters) is not None
        ]

    @writing(notifies=True)
    async def discard(
        self, session: Session, letters: Sequence[Letter], *, actor: Actor, detail: str
    ) -> Sequence[DeliveryId]:
        read = [
            {"id": one.id, "at": one.settled_at} for one in (letter.delivery for letter in letters)
        ]
        found = await session.fetch(_UNCHANGED, session.records(read))
        edits = {one.delivery.id: one.delivery.edits for one in letters}
        ids = [
            DeliveryId(number)
            for number, document in found
            if session.codec.edits(document) == edits[number]
        ]
        if ids:
            lanes = await lanes_of(session, ids)
            await remove(session, ids)
            await session.free_lanes(lanes)
            await grow(session, "exported", len(ids))
            await record(session, "export", ids, actor, detail=detail)
        return ids

    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        if known := await self._query(_HOLDS_WATCH, duty, worker, span):
            return bool(known[0][0])
        return await self._take_watch(duty, worker, span)

    @writing()
    async def _take_watch(self, session: Session, duty: str, worker: str, span: timedelta) -> bool:
        now = session.now
        return bool(await session.fetch(_TAKE_WATCH, duty, worker, now + span, now))


async def prune(session: Session, retention: Retention, mark: Bookmark, *, limit: int) -> Pruned:
    """Remove up to so many of each kind that have been kept long enough."""
    delivered_by, events_by, keys_by, inbox_by, audit_by = _cuts(session, retention)
    delivered = await session.fetch(_DELIVERED, delivered_by, limit)
    resolved = await session.fetch(_RESOLVED, events_by, limit)
    await leave_idle(session, [(row[0], instant(row[1])) for row in (*delivered, *resolved)])
    old = await _old_events(session, retention, mark, limit=limit)
    events, keys = await _prune_events(session, old, retention.shortest, keys_by)
    keys += len(await session.fetch(_FORGET_REMAINS, keys_by, limit))
    await session.fetch(_FORGET_UNIQUES, session.now, limit)
    inbox = await _forget_inbox(session, inbox_by, limit=limit)
    if resolved:
        await grow(session, "pruned_resolved", len(resolved))
    if events:
        await grow(session, "pruned_events", events)
    await _count_pruned(session, Counter(destination for _, _, destination in delivered))
    await session.fetch(_FORGET_TENANTS, events_by, limit)
    audit, replays = await _forget_acts(session, audit_by, limit=limit)
    await fold(session)
    return Pruned(
        delivered=len(delivered),
        resolved=len(resolved),
        events=events,
        keys=keys,
        inbox=inbox,
        audit=audit,
        replays=replays,
    )


async def _old_events(
    session: Session, retention: Retention, mark: Bookmark, *, limit: int
) -> list[int]:
    """Return idle events that may go; one look is as far as some pages of them."""
    found: list[int] = []
    by = session.now - retention.shortest
    for _ in range(_MOST_PAGES):
        page = await session.fetch(_IDLE, by, mark.since, mark.position, limit)
        for position, at, kind, is_read in page:
            since, span = instant(at), retention.keeps(kind)
            mark.put(since, position)
            if is_read and span is not None and since <= session.now - span:
                found.append(position)
                if len(found) == limit:
                    return found
        if len(page) < limit:
            mark.put(_BEGINNING, 0)
            break
        if found:
            break
    return found


async def _prune_events(
    session: Session, old: Sequence[int], shortest: timedelta, keys_by: datetime
) -> tuple[int, int]:
    """Remove idle events without deliveries; return how many, and how many keys went with them."""
    if not old:
        return 0, 0
    found = await session.fetch(_LOCK_IDLE, list(old), session.now - shortest)
    idle = {position: instant(since) for position, since in found}
    # Whoever gives an event one more delivery has it locked: its turn comes again.
    locked = [position for (position,) in await session.fetch(_LOCK_EVENTS, list(idle))]
    given = session.records([{"position": one, "since": idle[one]} for one in locked])
    gone: list[int] = []
    lasting, passing, applied = [], [], []
    for position, event_id, names, version, at, source, key, document in await session.fetch(
        _FINISHED, given, keys_by
    ):
        since = instant(at)
        destinations = _names.decode(names) if isinstance(names, str) else tuple(names)
        gone.append(position)
        applied.append({"event": event_id, "since": since})
        if document is not None:
            kept = Kept(session.codec.event(document), destinations, version)
            remains = json_text(Remains.of(kept, session.codec))
            lasting.append({"source": source, "key": key, "since": since, "remains": remains})
        elif key is not None:
            passing.append({"source": source, "key": key})
    # One that has a delivery left will be idle once more, when that one goes.
    await session.fetch("DELETE FROM redrive.idle WHERE position = ANY ($1::bigint[])", locked)
    await session.fetch(_OUTLIVE, session.records(lasting))
    await session.fetch(_FORGET_KEYS, session.records(passing))
    await session.fetch(_LEAVE_INBOX, session.records(applied))
    await session.fetch("DELETE FROM redrive.events WHERE position = ANY ($1::bigint[])", gone)
    await session.fetch(
        "DELETE FROM redrive.projection_edits WHERE position = ANY ($1::bigint[])", gone
    )
    return len(gone), len(passing)


async def _forget_inbox(session: Session, inbox_by: datetime, *, limit: int) -> int:
    """Forget the records that have outlived their events long enough, and count them."""
    past = await session.fetch(_PAST_INBOX, inbox_by, limit)
    if not past:
        return 0
    records = session.records(
        [{"handler": handler, "source": source, "key": key} for handler, source, key in past]
    )
    await session.fetch(_KEEP_INBOX, records)
    return len(await session.fetch(_FORGET_INBOX, records, inbox_by))


async def _count_pruned(session: Session, pruned: Counter[int]) -> None:
    # Lock rows in id order, as every other writer does, so that two never deadlock.
    if pruned:
        await session.fetch(_LOCK_DESTINATIONS, list(pruned))
        rows = [{"id": number, "number": count} for number, count in pruned.items()]
        await session.fetch(_COUNT_PRUNED, session.records(rows))


async def _forget_acts(session: Session, by: datetime, *, limit: int) -> tuple[int, int]:
    """Remove what people did up to an instant; return how many audit entries and replays."""
    audit = await session.fetch(_FORGET_AUDIT, by, limit)
    replays = [number for (number,) in await session.fetch(_PAST_REPLAYS, by, limit)]
    if replays:
        await session.fetch(
            "DELETE FROM redrive.replay_items WHERE replay = ANY ($1::bigint[])", replays
        )
        await session.fetch(_FORGET_OUTCOMES, replays)
        await session.fetch("DELETE FROM redrive.replays WHERE id = ANY ($1::bigint[])", replays)
    await session.fetch("DELETE FROM redrive.group_aliases WHERE at <= $1", by)
    await session.fetch(_FORGET_CHANGES, _CHANGES_KEPT)
    return len(audit), len(replays)


def _spans(retention: Retention) -> tuple[timedelta, ...]:
    """Return how long delivered rows, events, keys, inbox records and acts are kept."""
    return (
        *(retention.delivered, retention.events, retention.idempotency, retention.inbox),
        retention.audit,
    )


def _cuts(session: Session, retention: Retention) -> list[datetime]:
    """Return up to when what may go was settled, in the order of `_spans`."""
    return [session.now - one for one in _spans(retention)]
