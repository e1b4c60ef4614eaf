"""The registry of destinations: what is declared of them, and which declaration is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.model.audit import REDRIVE, Actor
from redrive.model.destination import Destination
from redrive.model.standing import Standing
from redrive.policies.declaring import differing
from redrive.store import PUBLISHER, Declarer, Registered
from redrive.stores.codec import destination_from, json_text
from redrive.stores.declaring import (
    Ruling,
    audited,
    is_contested,
    registered,
    release_from,
    release_of,
    rule,
    standing_from,
)
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import add_gates, read_overrides
from redrive.stores.sql.lanes import relane
from redrive.stores.sql.leases import see_worker
from redrive.stores.sql.log import read_routes
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore

__all__ = [
    "RegistryRole",
    "hold_routes",
    "keep_standings",
    "others",
    "read_standings",
    "register",
    "write_destinations",
]

_HOLD = "SELECT value FROM redrive.counters WHERE name = 'routes_version' FOR UPDATE"
_STANDINGS = """
SELECT t.id, t.document, t.removed_at IS NOT NULL, s.document
FROM redrive.destinations t LEFT JOIN redrive.standings s ON s.destination = t.id
"""
# Not `= ANY`: of ten thousand names each would be compared with all.
_STANDINGS_OF = f"{_STANDINGS} WHERE t.name IN (SELECT unnest($1::text[]))"
_LIVE = """
SELECT document FROM redrive.releases WHERE id IN (
    SELECT release FROM redrive.workers WHERE id <> $1 AND seen_at > $2
)
"""
_KEEP = """
INSERT INTO redrive.standings (destination, document)
SELECT destination, document
FROM json_to_recordset($1::json) AS given (destination integer, document text) WHERE true
ON CONFLICT (destination) DO UPDATE SET document = excluded.document
"""
_WRITE = """
INSERT INTO redrive.destinations (name, document)
SELECT name, document
FROM json_to_recordset($1::json) AS given (name text, document text) WHERE true
ON CONFLICT (name) DO UPDATE SET document = excluded.document, removed_at = NULL
RETURNING name, id
"""
_KEEP_RELEASE = """
INSERT INTO redrive.releases (id, document) VALUES ($1, $2) ON CONFLICT DO NOTHING
"""
_FORGET_RELEASES = """
DELETE FROM redrive.releases AS r
WHERE NOT EXISTS (SELECT FROM redrive.workers w WHERE w.release = r.id)
"""
_DECLARED = """
SELECT w.id, r.id, r.document FROM redrive.workers w JOIN redrive.releases r ON r.id = w.release
"""


class RegistryRole(SqlStore):
    """How `Registry` is told of destinations."""

    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        if not destinations:  # whoever only looks must not wait for a lock
            return await self._read(lambda session, _: look(session, by=by))
        if not by.worker:  # nor who brings nothing new, as most who publish do
            known = await self._read(
                lambda session, _: as_known(session, destinations, by=by, history=self._history)
            )
            if known is not None:
                return known
        done = await self._write(
            lambda session, _: register(
                session, destinations, by=by, again=again, history=self._history
            )
        )
        if done.changes:
            self._notify()
        return done


async def register(
    session: Session,
    destinations: Sequence[Destination],
    *,
    by: Declarer,
    again: bool,
    history: int,
) -> Registered:
    """Hold what is declared against what is in force, and keep what comes of it."""
    await session.keep_history(history)
    version = await hold_routes(session)
    known = await read_standings(session, [one.name for one in destinations])
    standings = {name: standing for name, (_, standing) in known.items()}
    is_contested_now = bool(by.worker) and is_contested(destinations, standings)
    found = (
        await session.fetch(_LIVE, by.worker, session.now - by.lease) if is_contested_now else []
    )
    live = [release_from(document) for (document,) in found]
    rulings = rule(destinations, standings, by=by, live=live, now=session.now)
    for count, detail in audited(rulings, is_first=not version):
        actor = Actor(REDRIVE, by.why)
        await record(session, "declare", (), actor, count=count, detail=detail)
    if changes := [one for one in rulings if one.is_change]:
        await session.change_routes(
            [one.after.destination for one in changes],
            begins_order=any(one.begins_order for one in changes),
        )
    await _keep(session, rulings, {name: number for name, (number, _) in known.items()})
    if by.worker:
        await see_worker(session, by.worker)
        if not again:
            await _tell(session, by.worker, destinations)
    overrides = await read_overrides(session) if by.worker else {}
    return registered(await read_routes(session), rulings, overrides)


async def as_known(
    session: Session, destinations: Sequence[Destination], *, by: Declarer, history: int
) -> Registered | None:
    """Return what is in force if nothing is to be kept of what somebody declares."""
    if not await session.keeps_history(history):
        return None
    known = await read_standings(session, [one.name for one in destinations])
    standings = {name: standing for name, (_, standing) in known.items()}
    rulings = rule(destinations, standings, by=by, live=(), now=session.now)
    if any(one.is_change or not one.is_kept for one in rulings):
        return None
    return registered(await read_routes(session), rulings, {})


async def look(session: Session, *, by: Declarer) -> Registered:
    """Return what is in force, to who brings nothing."""
    overrides = await read_overrides(session) if by.worker else {}
    return Registered(routes=await read_routes(session), overrides=overrides)


async def hold_routes(session: Session) -> int:
    """Keep everybody else from changing destinations, and return the version of the routes."""
    return int(await session.value(_HOLD))


async def read_standings(
    session: Session, names: Sequence[str] | None = None
) -> dict[str, tuple[int, Standing]]:
    """Return the numbers and the standings of these destinations, or of all."""
    if names is None:
        rows = await session.fetch(_STANDINGS)
    else:
        rows = await session.fetch(_STANDINGS_OF, list(names))
    standings = {}
    for number, document, is_removed, kept in rows:
        one = destination_from(document)
        standings[one.name] = number, standing_from(one, kept, is_removed=bool(is_removed))
    return standings


async def keep_standings(session: Session, standings: Mapping[int, Standing]) -> None:
    """Keep the standings of the destinations with these numbers."""
    rows = [
        {"destination": number, "document": json_text(one)} for number, one in standings.items()
    ]
    if rows:
        await session.fetch(_KEEP, session.records(rows))


async def others(session: Session) -> dict[str, tuple[str, ...]]:
    """Return of each worker the destinations of which it declares another than is in force."""
    declared = await session.fetch(_DECLARED)
    if not declared:
        return {}
    standings = {name: one for name, (_, one) in (await read_standings(session)).items()}
    releases = {name: document for _, name, document in declared}
    found = {name: differing(release_from(one), standings) for name, one in releases.items()}
    return {worker: found[name] for worker, name, _ in declared}


async def _keep(session: Session, rulings: Sequence[Ruling], numbers: dict[str, int]) -> None:
    changes = [one for one in rulings if one.is_change]
    for one in changes:
        after = one.after.destination.order
        if one.before is not None and one.before.destination.order is not after:
            before = one.before.destination.order
            await relane(session, numbers[one.name], before=before, after=after)
    if changes:
        numbers |= await write_destinations(session, [one.after.destination for one in changes])
        await add_gates(session, [one.name for one in changes])
    await keep_standings(
        session, {numbers[one.name]: one.after for one in rulings if not one.is_kept}
    )


async def write_destinations(
    session: Session, destinations: Sequence[Destination]
) -> dict[str, int]:
    """Write down what is in force of destinations, new or not; return their numbers by name."""
    rows = [{"name": one.name, "document": json_text(one)} for one in destinations]
    return dict(await session.fetch(_WRITE, session.records(rows)))


async def _tell(session: Session, worker: str, destinations: Sequence[Destination]) -> None:
    """Write down what a worker declares, once for all workers of its release."""
    release, document = release_of(destinations)
    await session.fetch(_KEEP_RELEASE, release, document)
    await session.fetch("UPDATE redrive.workers SET release = $2 WHERE id = $1", worker, release)
    await session.fetch(_FORGET_RELEASES)
