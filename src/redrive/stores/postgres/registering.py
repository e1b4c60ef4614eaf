"""Destinations and their declarations, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import REDRIVE, Actor
from redrive.model.destination import Destination
from redrive.model.standing import Standing
from redrive.policies.declaring import differing
from redrive.store import Declarer, Registered
from redrive.stores.codec import destination_from, json_text
from redrive.stores.declaring import (
    Release,
    Ruling,
    audited,
    is_contested,
    registered,
    release_from,
    release_of,
    rule,
    standing_from,
)
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.lanes import relane
from redrive.stores.postgres.late_events import advance_routes, note_change
from redrive.stores.postgres.log import read_routes
from redrive.stores.postgres.settling import see_worker

__all__ = ["hold_routes", "keep_standing", "others", "read_standings", "register"]

_KEEP_HISTORY = """
UPDATE redrive.settings SET value = $1 WHERE name = 'history' AND value <> $1
"""
_HOLD = "SELECT value FROM redrive.counters WHERE name = 'routes_version' FOR UPDATE"
_STANDINGS = """
SELECT t.id, t.document, t.removed_at IS NOT NULL, s.document
FROM redrive.destinations t LEFT JOIN redrive.standings s ON s.destination = t.id
WHERE $1::text[] IS NULL OR t.name = ANY ($1)
"""
_LIVE = """
SELECT document FROM redrive.releases WHERE id IN (
    SELECT release FROM redrive.workers WHERE id <> $1 AND seen_at > $2
)
"""
_KEEP = """
INSERT INTO redrive.standings (destination, document) VALUES ($1, $2)
ON CONFLICT (destination) DO UPDATE SET document = excluded.document
"""
_WRITE = """
WITH kept AS (
    INSERT INTO redrive.destinations (name, document) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET document = excluded.document, removed_at = NULL
    RETURNING id
), gate AS (
    INSERT INTO redrive.gates (destination, document) SELECT id, '{}' FROM kept
    ON CONFLICT DO NOTHING
)
SELECT id FROM kept
"""
_TELL = """
WITH told AS (
    INSERT INTO redrive.releases (id, document) VALUES ($2, $3) ON CONFLICT DO NOTHING
)
UPDATE redrive.workers SET release = $2 WHERE id = $1
"""
_FORGET_RELEASES = """
DELETE FROM redrive.releases r
WHERE NOT EXISTS (SELECT FROM redrive.workers w WHERE w.release = r.id)
"""
_DECLARED = """
SELECT w.id, r.id, r.document FROM redrive.workers w JOIN redrive.releases r ON r.id = w.release
"""


async def register(
    link: Link,
    destinations: Sequence[Destination],
    *,
    by: Declarer,
    again: bool,
    history: int,
    now: datetime,
) -> Registered:
    """Carry out `Registry.register`; `history` then also bounds what a replay in psql keeps."""
    await link.fetch(_KEEP_HISTORY, history)
    version = await hold_routes(link)
    known = await read_standings(link, [one.name for one in destinations])
    standings = {name: standing for name, (_, standing) in known.items()}
    is_contested_now = bool(by.worker) and is_contested(destinations, standings)
    live = await _live(link, by, now=now) if is_contested_now else []
    rulings = rule(destinations, standings, by=by, live=live, now=now)
    changed = [one for one in rulings if one.is_change]
    for number, detail in audited(rulings, is_first=not version):
        actor = Actor(REDRIVE, by.why)
        await record(link, "declare", (), actor, now=now, count=number, detail=detail)
    new_version = await advance_routes(link) if changed else version
    for one in rulings:
        number, _ = known.get(one.name, (0, None))
        await _keep(link, one, number)
    if changed:
        await note_change(link, new_version, [one.after.destination for one in changed])
    if by.worker:
        await see_worker(link, by.worker, now)
        if not again:
            await link.fetch(_TELL, by.worker, *release_of(destinations))
            await link.fetch(_FORGET_RELEASES)
    return registered(await read_routes(link), rulings)


async def hold_routes(link: Link) -> int:
    """Keep everybody else from changing destinations, and return the version of the routes."""
    return int(await link.value(_HOLD))


async def read_standings(
    link: Link, names: Sequence[str] | None = None
) -> dict[str, tuple[int, Standing]]:
    """Return the numbers and the standings of these destinations, or of all."""
    standings = {}
    for number, document, is_removed, kept in await link.fetch(
        _STANDINGS, None if names is None else list(names)
    ):
        one = destination_from(document)
        standings[one.name] = number, standing_from(one, kept, is_removed=is_removed)
    return standings


async def keep_standing(link: Link, number: int, standing: Standing) -> None:
    """Keep the standing of the destination with this number."""
    await link.fetch(_KEEP, number, json_text(standing))


async def others(link: Link) -> dict[str, tuple[str, ...]]:
    """Return of each worker the destinations of which it declares another than is in force."""
    declared = await link.fetch(_DECLARED)
    if not declared:
        return {}
    standings = {name: one for name, (_, one) in (await read_standings(link)).items()}
    releases = {name: document for _, name, document in declared}
    found = {name: differing(release_from(one), standings) for name, one in releases.items()}
    return {worker: found[name] for worker, name, _ in declared}


async def _keep(link: Link, ruling: Ruling, number: int) -> None:
    if ruling.is_change:
        after = ruling.after.destination
        if ruling.before is not None and ruling.before.destination.order is not after.order:
            await relane(link, number, before=ruling.before.destination.order, after=after.order)
        number = await link.value(_WRITE, ruling.name, json_text(after))
    if not ruling.is_kept:
        await keep_standing(link, number, ruling.after)


async def _live(link: Link, by: Declarer, *, now: datetime) -> list[Release]:
    """Return what live workers declare, but for the one that asks."""
    found = await link.fetch(_LIVE, by.worker, now - by.lease)
    return [release_from(document) for (document,) in found]
