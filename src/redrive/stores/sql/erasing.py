"""What events said goes, from every table that has a piece of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Resolution
from redrive.model.erasure import (
    ErasurePart,
    ErasureQuery,
    ErasureTerms,
    ErasureWaiting,
    erased_attempts,
    erased_cycles,
    erased_edits,
    erased_event,
    erased_fault,
    erased_request,
    is_to_erase,
)
from redrive.model.event import Event
from redrive.model.settlement import FailureReason
from redrive.store import Blame, Erasable, ErasableSlice, ErasedBatch, Replay
from redrive.stores.codec import (
    json_text,
)
from redrive.stores.erasing import RESOLVED_AS_ERASED, Traces, audited, untold
from redrive.stores.sql.audit import record
from redrive.stores.sql.counts import fold
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.intervention import fail_pending
from redrive.stores.sql.lanes import lanes_of
from redrive.stores.sql.retention import IS_READ, OF_EVENT
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["ErasingRole", "erased_among"]

_COLUMNS = "position, id::text, type, convert_to(document, 'UTF8')"
_OF_IDS = f"""
SELECT {_COLUMNS} FROM redrive.events
WHERE id = ANY ($1::uuid[]) AND position > $2 ORDER BY position LIMIT $3
"""
# Only PostgreSQL has an index of keys; without a limit inside, its planner takes it.
_OF_KEY = f"""
WITH of_key AS MATERIALIZED (
    SELECT position FROM redrive.events WHERE key = $1 AND position > $2
)
SELECT {_COLUMNS} FROM redrive.events
WHERE position IN (SELECT position FROM of_key ORDER BY position LIMIT $3) ORDER BY position
"""
_STRETCH = """
SELECT max(position), count(*) FROM (
    SELECT position FROM redrive.events WHERE position > $1 ORDER BY position LIMIT $2
) AS stretch
"""
# A document in which a name does not stand need not be read to see that it is not the tenant's.
_OF_TENANT = f"""
SELECT {_COLUMNS} FROM redrive.events
WHERE position > $2 AND position <= $3 AND strpos(document, $1) > 0 ORDER BY position
"""
_PLAIN = re.compile(r"[\w. -]+", re.ASCII)
_STATES = """
SELECT position, status, count(*),
       sum(CASE WHEN status = 3 AND resolution IS NULL THEN 1 ELSE 0 END)
FROM redrive.deliveries WHERE position = ANY ($1::bigint[]) GROUP BY position, status
"""
_UNREAD = IS_READ.within("""
SELECT e.position FROM redrive.events e WHERE e.position = ANY ($1::bigint[]) AND NOT ({})
""")
_EVENTS = f"SELECT {_COLUMNS} FROM redrive.events WHERE position = ANY ($1::bigint[]) ORDER BY 1"
_LOCK_EVENTS = f"""
SELECT {_COLUMNS} FROM redrive.events WHERE position = ANY ($1::bigint[])
ORDER BY position FOR UPDATE SKIP LOCKED
"""
_LOCK_DELIVERIES = """
SELECT id, position, destination, status, resolution IS NULL, fault, log, cycles, edits
FROM redrive.deliveries WHERE position = ANY ($1::bigint[])
ORDER BY id FOR UPDATE SKIP LOCKED
"""
_HOW_MANY = """
SELECT position, count(*) FROM redrive.deliveries WHERE position = ANY ($1::bigint[])
GROUP BY position
"""
_REWRITE = """
UPDATE redrive.deliveries AS d
SET fault = given.fault, log = given.log, cycles = given.cycles, edits = given.edits,
    payload = NULL, tenant = CASE WHEN $2 THEN NULL ELSE d.tenant END
FROM json_to_recordset($1::json) AS given (
    id bigint, fault jsonb, log jsonb, cycles jsonb, edits jsonb
)
WHERE d.id = given.id
"""
_RESOLVE = """
UPDATE redrive.deliveries SET resolution = $2::jsonb, resolved_at = $3
WHERE id = ANY ($1::bigint[]) AND status = 3 AND resolution IS NULL
"""
_OUT_OF_LANES = "UPDATE redrive.deliveries SET lane = NULL WHERE id = ANY ($1::bigint[])"
_FORGET_EXCHANGES = "DELETE FROM redrive.exchanges WHERE delivery = ANY ($1::bigint[])"
_FORGET_ADDRESSEES = "DELETE FROM redrive.addressees WHERE delivery = ANY ($1::bigint[])"
_FORGET_EDITS = "DELETE FROM redrive.projection_edits WHERE position = ANY ($1::bigint[])"
_FORGET_PUBLISHER = OF_EVENT.within("""
DELETE FROM redrive.idempotency WHERE (source, key) IN (
    SELECT i.source, i.key FROM redrive.events e JOIN redrive.idempotency i ON {}
    WHERE e.position = ANY ($1::bigint[])
)
""")
# An event without an idempotency key has its id for a source there, and nothing for a key.
_UNNAME_INBOX = """
UPDATE redrive.inbox SET source = event::text, key = '' WHERE event = ANY ($1::uuid[])
"""
_FORGET_UNIQUES = "DELETE FROM redrive.uniques WHERE event = ANY ($1::uuid[])"
_REWRITE_EVENTS = """
UPDATE redrive.events AS e SET document = given.document, erased_at = coalesce(erased_at, $2),
    key = CASE WHEN $3 THEN NULL ELSE e.key END, version = CASE WHEN $3 THEN NULL ELSE e.version END
FROM json_to_recordset($1::json) AS given (position bigint, document text)
WHERE e.position = given.position
"""
_REQUESTS = """
SELECT DISTINCT r.id, r.body FROM redrive.request_log r
JOIN json_to_recordset($2::json) AS given (event text)
    ON strpos(r.body, given.event) > 0 OR substr(r.body, 1, 2) = '"~'
WHERE r.destination = ANY ($1::integer[])
"""
# Of what is encrypted nobody knows before whom it is about.
_REQUESTS_OF_TENANT = """
SELECT id, body FROM redrive.request_log
WHERE strpos(body, $1) > 0 OR substr(body, 1, 2) = '"~'
"""
_REWRITE_REQUESTS = """
UPDATE redrive.request_log AS r SET body = given.body
FROM json_to_recordset($1::json) AS given (id bigint, body text) WHERE r.id = given.id
"""
# Whoever publishes to a key holds its row, and its events are looked for when they have ended.
_HOLD_KEYS = """
SELECT key FROM redrive.keys WHERE key = ANY ($1::text[]) ORDER BY key FOR UPDATE SKIP LOCKED
"""
_FORGET_KEYS = """
DELETE FROM redrive.keys WHERE key = ANY ($1::text[])
  AND key NOT IN (SELECT key FROM redrive.events WHERE key = ANY ($1::text[]))
"""
# Whoever claims locks gates before deliveries.
_FAILING = """
SELECT DISTINCT t.name FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.gates g ON g.destination = d.destination
WHERE d.position = ANY ($1::bigint[]) AND strpos(g.document, '"last_failure"') > 0
"""
_NAMING = """
SELECT t.name FROM redrive.gates g JOIN redrive.destinations t ON t.id = g.destination
WHERE strpos(g.document, $1) > 0
"""
_FORGET_TENANT = (
    "DELETE FROM redrive.tenants WHERE tenant = $1",
    "DELETE FROM redrive.tenant_pauses WHERE tenant = $1",
)
_SOUGHT = "SELECT id, document FROM redrive.replays WHERE strpos(document, '\"query\":{') > 0"
_REWRITE_REPLAYS = """
UPDATE redrive.replays AS r SET document = given.document
FROM json_to_recordset($1::json) AS given (id bigint, document text) WHERE r.id = given.id
"""
_ERASED_OF = """
SELECT d.id FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
WHERE d.id = ANY ($1::bigint[]) AND e.erased_at IS NOT NULL ORDER BY d.id
"""
_ERASED_AMONG = """
SELECT id::text FROM redrive.events WHERE id = ANY ($1::uuid[]) AND erased_at IS NOT NULL
"""
_PENDING, _IN_FLIGHT, _FAILED = 0, 1, 3
_replays = msgspec.json.Decoder(Replay)


class _Told(NamedTuple):
    """What a delivery says, and where it is."""

    id: int
    position: int
    destination: int
    status: int
    is_unresolved: bool
    fault: str | None
    log: str | None
    cycles: str | None
    edits: str | None


class ErasingRole(SqlStore):
    """`Erasing`; what somebody else has in hand is left."""

    @reading
    async def find_erasable(
        self,
        session: Session,
        query: ErasureQuery,
        *,
        terms: ErasureTerms,
        after: int = 0,
        limit: int = 1_000,
        scope: Scope = WHOLE_STORE,
    ) -> ErasableSlice:
        rows, last, looked_at = await _stretch(session, query, after, limit)
        meant = {
            place: event
            for place, event in _events(session, rows)
            if query.fits(event) and _is_within(event, scope)
        }
        whole = {place: event for place, event in meant.items() if is_to_erase(event, terms)}
        return ErasableSlice(
            events=tuple(await _standing(session, whole)),
            last=last,
            looked_at=looked_at,
            erased=len(meant) - len(whole),
        )

    @writing(notifies=True)
    async def erase(
        self,
        session: Session,
        positions: Sequence[int],
        *,
        terms: ErasureTerms,
        by: str,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> ErasedBatch:
        asked = sorted(set(positions))
        needed = {
            place: event
            for place, event in _events(session, await session.fetch(_EVENTS, asked))
            if is_to_erase(event, terms) and _is_within(event, scope)
        }
        failing = [name for (name,) in await session.fetch(_FAILING, asked)]
        gates = await GateRepository.lock(session, failing)
        locked = _events(session, await session.fetch(_LOCK_EVENTS, list(needed)))
        events = {place: event for place, event in locked if is_to_erase(event, terms)}
        told = [_Told(*row) for row in await session.fetch(_LOCK_DELIVERIES, list(events))]
        waiting = await _waiting(session, list(events), told, terms)
        chosen = {place: event for place, event in events.items() if place not in waiting}
        gone = [one for one in told if one.position in chosen]
        left = [event.id for place, event in needed.items() if place not in chosen]
        if not chosen:
            return ErasedBatch(left=tuple(left))
        for name in gates.numbers:
            gates.put(name, untold(gates.gate(name)))
        await gates.write()
        failed = await _rewrite(session, gone, terms, blame=blame, actor=actor)
        await _forget(session, chosen, gone, terms)
        ids = [DeliveryId(one.id) for one in gone]
        detail = audited(by, [one.id for one in chosen.values()])
        await record(session, "erase", ids, actor, count=len(chosen), detail=detail)
        return ErasedBatch(
            events=tuple(one.id for one in chosen.values()),
            deliveries=tuple(ids),
            failed=tuple(failed),
            left=tuple(left),
        )

    @reading
    async def erased_of(self, session: Session, ids: Sequence[DeliveryId]) -> Sequence[DeliveryId]:
        return [DeliveryId(one) for (one,) in await session.fetch(_ERASED_OF, list(ids))]

    @writing()
    async def erase_traces(
        self,
        session: Session,
        query: ErasureQuery,
        *,
        terms: ErasureTerms,
        scope: Scope = WHOLE_STORE,
    ) -> None:
        if scope.destinations or scope.tenant not in (None, query.tenant):
            return
        traces = Traces.of(query, terms)
        if query.tenant is not None:
            name = json_text(query.tenant)
            found = await session.fetch(_REQUESTS_OF_TENANT, name)
            await _rewrite_requests(session, found, terms, tenant=query.tenant)
            if terms.has(ErasurePart.TENANT):
                for statement in _FORGET_TENANT:
                    await session.fetch(statement, query.tenant)
                await fold(session)
                await _forget_turns(session, query.tenant, traces)
        await _rewrite_replays(session, traces)
        if query.key is not None and terms.has(ErasurePart.KEY):
            await _forget_keys(session, [query.key])


async def erased_among(session: Session, ids: Iterable[str]) -> frozenset[str]:
    """Return those ids of events that are of erased ones."""
    asked = [found for one in dict.fromkeys(ids) if (found := session.event_id(one)) is not None]
    return frozenset(one for (one,) in await session.fetch(_ERASED_AMONG, asked))


async def _stretch(
    session: Session, query: ErasureQuery, after: int, limit: int
) -> tuple[Sequence[tuple[int, str, str, bytes]], int | None, int]:
    """Return events that may be meant, where the look has ended, and how many it was about."""
    if query.tenant is not None:
        [(last, count)] = await session.fetch(_STRETCH, after, limit)
        said = query.tenant if _PLAIN.fullmatch(query.tenant) else '"tenant"'
        rows = [] if last is None else await session.fetch(_OF_TENANT, said, after, last)
        return rows, last, count
    if query.key is not None:
        rows = await session.fetch(_OF_KEY, query.key, after, limit)
    else:
        known = [found for one in query.event_ids if (found := session.event_id(one)) is not None]
        rows = await session.fetch(_OF_IDS, known, after, limit)
    return rows, rows[-1][0] if rows else None, len(rows)


async def _standing(session: Session, events: dict[int, Event[msgspec.Raw]]) -> list[Erasable]:
    counts: dict[int, dict[int, int]] = defaultdict(dict)
    letters: dict[int, int] = {}
    for position, status, number, unresolved in await session.fetch(_STATES, list(events)):
        counts[position][status] = number
        if status == _FAILED:
            letters[position] = unresolved
    unread = {place for (place,) in await session.fetch(_UNREAD, list(events))}
    return [
        Erasable(
            position=place,
            event_id=event.id,
            deliveries=sum(counts[place].values()),
            pending=counts[place].get(_PENDING, 0),
            in_flight=counts[place].get(_IN_FLIGHT, 0),
            dead_letters=letters.get(place, 0),
            is_unread=place in unread,
        )
        for place, event in events.items()
    ]


async def _waiting(
    session: Session, positions: Sequence[int], told: Sequence[_Told], terms: ErasureTerms
) -> set[int]:
    """Return the events that somebody has still to get, or has a delivery of in hand."""
    held: dict[int, int] = defaultdict(int)
    for one in told:
        held[one.position] += 1
    all_there_are = await session.fetch(_HOW_MANY, list(positions))
    waiting = {place for place, number in all_there_are if number != held[place]}
    stops = {_IN_FLIGHT}
    if terms.waiting is ErasureWaiting.DELIVER:
        stops.add(_PENDING)
        waiting |= {place for (place,) in await session.fetch(_UNREAD, list(positions))}
    return waiting | {one.position for one in told if one.status in stops}


async def _rewrite(
    session: Session,
    told: Sequence[_Told],
    terms: ErasureTerms,
    *,
    blame: Blame,
    actor: Actor,
) -> list[DeliveryId]:
    """Take from deliveries what was said; returns those that were failed, because they waited."""
    ids = [DeliveryId(one.id) for one in told]
    lanes = await lanes_of(session, ids)
    codec = session.codec
    rows = [
        {
            "id": one.id,
            "fault": erased_fault(codec.fault(one.fault, is_strict=False)),
            "log": erased_attempts(codec.attempts(one.log, is_strict=False)) or None,
            "cycles": erased_cycles(codec.cycles(one.cycles, is_strict=False)) or None,
            "edits": erased_edits(codec.edits(one.edits, is_strict=False)) or None,
        }
        for one in told
    ]
    await session.fetch(_REWRITE, session.records(rows), terms.has(ErasurePart.TENANT))
    failed = [DeliveryId(one.id) for one in told if one.status == _PENDING]
    if failed:
        await fail_pending(session, failed, FailureReason.CANCELLED, blame)
    resolution = Resolution(by=actor.by, at=session.now, why=RESOLVED_AS_ERASED)
    await session.fetch(_RESOLVE, ids, session.json(resolution), session.now)
    if terms.has(ErasurePart.KEY):
        await session.fetch(_OUT_OF_LANES, ids)
    await session.free_lanes(lanes)
    await session.fetch(_FORGET_EXCHANGES, ids)
    await session.fetch(_FORGET_ADDRESSEES, ids)
    return failed


async def _forget(
    session: Session,
    events: dict[int, Event[msgspec.Raw]],
    told: Sequence[_Told],
    terms: ErasureTerms,
) -> None:
    """Take from the log, and from what is kept beside it, what was said."""
    places, ids = list(events), [one.id for one in events.values()]
    await session.fetch(_FORGET_EDITS, places)
    if terms.has(ErasurePart.IDEMPOTENCY_KEY):
        await session.fetch(_FORGET_PUBLISHER, places)
        await session.fetch(_UNNAME_INBOX, ids)
        await session.fetch(_FORGET_UNIQUES, ids)
    documents = [
        {
            "position": place,
            "document": session.codec.event_text(
                erased_event(event, terms, digest=session.codec.digest(event), now=session.now)
            ),
        }
        for place, event in events.items()
    ]
    forgets_key = terms.has(ErasurePart.KEY)
    await session.fetch(_REWRITE_EVENTS, session.records(documents), session.now, forgets_key)
    if forgets_key:
        keys = {one.key for one in events.values() if one.key is not None}
        await _forget_keys(session, sorted(keys))
    said = [bytes(one.payload).decode().casefold() for one in events.values()]
    await _rewrite_replays(session, Traces(payloads=said))
    destinations = sorted({one.destination for one in told})
    named = session.records([{"event": one} for one in ids])
    found = await session.fetch(_REQUESTS, destinations, named)
    await _rewrite_requests(session, found, terms, events=frozenset(ids))


async def _forget_keys(session: Session, keys: Sequence[str]) -> None:
    """Forget keys that have no events any more."""
    held = [key for (key,) in await session.fetch(_HOLD_KEYS, list(keys))]
    if held:
        await session.fetch(_FORGET_KEYS, held)


async def _forget_turns(session: Session, tenant: str, traces: Traces) -> None:
    naming = [name for (name,) in await session.fetch(_NAMING, json_text(tenant))]
    gates = await GateRepository.lock(session, naming)
    for name in gates.numbers:
        gates.put(name, traces.taken_from_gate(gates.gate(name)))
    await gates.write()


async def _rewrite_replays(session: Session, traces: Traces) -> None:
    found = [(number, _replays.decode(text)) for number, text in await session.fetch(_SOUGHT)]
    rows = [
        {"id": number, "document": json_text(after)}
        for number, replay in found
        if (after := traces.taken_from(replay)) != replay
    ]
    if rows:
        await session.fetch(_REWRITE_REPLAYS, session.records(rows))


async def _rewrite_requests(
    session: Session,
    found: Sequence[tuple[int, str]],
    terms: ErasureTerms,
    *,
    events: frozenset[str] = frozenset(),
    tenant: str | None = None,
) -> None:
    rows = []
    for number, body in found:
        requests = [
            erased_request(one, terms)
            if one.event_id in events or (tenant is not None and one.tenant == tenant)
            else one
            for one in session.codec.requests(body)
        ]
        rows.append({"id": number, "body": session.json(requests)})
    if rows:
        await session.fetch(_REWRITE_REQUESTS, session.records(rows))


def _events(
    session: Session,
    rows: Sequence[tuple[int, str, str, bytes]],
) -> list[tuple[int, Event[msgspec.Raw]]]:
    return [
        (place, session.codec.event(document, one, kind, is_strict=False))
        for place, one, kind, document in rows
    ]


def _is_within(event: Event[msgspec.Raw], scope: Scope) -> bool:
    """Tell whether an event is somebody's to erase: it goes to any destination."""
    return not scope.destinations and scope.tenant in (None, event.tenant)
