"""Destinations and their declarations, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from redrive.model.audit import REDRIVE, Actor
from redrive.model.destination import Destination
from redrive.model.standing import Standing
from redrive.policies.declaring import differing
from redrive.store import Declarer, Registered
from redrive.stores.codec import destination_from, json_text, micros
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
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.claiming import see_worker
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.lanes import relane
from redrive.stores.sqlite.log import count, grow, read_routes

__all__ = ["keep_standing", "others", "read_standings", "register"]

_STANDINGS = """
SELECT t.id, t.document, t.removed_at IS NOT NULL, s.document
FROM redrive_destinations t LEFT JOIN redrive_standings s ON s.destination = t.id
"""
_OF_THESE = "WHERE t.name IN (SELECT value FROM json_each(?))"
_LIVE = """
SELECT document FROM redrive_releases WHERE id IN (
    SELECT release FROM redrive_workers WHERE id <> ? AND seen_at > ?
)
"""
_KEEP = """
INSERT INTO redrive_standings (destination, document) VALUES (?, ?)
ON CONFLICT (destination) DO UPDATE SET document = excluded.document
"""
_WRITE = """
INSERT INTO redrive_destinations (name, document) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET document = excluded.document, removed_at = NULL
"""
_FORGET_RELEASES = """
DELETE FROM redrive_releases WHERE id NOT IN (
    SELECT release FROM redrive_workers WHERE release IS NOT NULL
)
"""
_DECLARED = """
SELECT w.id, r.id, r.document FROM redrive_workers w JOIN redrive_releases r ON r.id = w.release
"""


def register(
    connection: apsw.Connection,
    destinations: Sequence[Destination],
    *,
    by: Declarer,
    again: bool,
    now: datetime,
) -> Registered:
    """Carry out `Registry.register`."""
    known = read_standings(connection, [one.name for one in destinations])
    standings = {name: standing for name, (_, standing) in known.items()}
    is_contested_now = bool(by.worker) and is_contested(destinations, standings)
    live = _live(connection, by, now=now) if is_contested_now else []
    rulings = rule(destinations, standings, by=by, live=live, now=now)
    is_first = not count(connection, "routes_version")
    for number, detail in audited(rulings, is_first=is_first):
        actor = Actor(REDRIVE, by.why)
        record(connection, "declare", (), actor, now=now, count=number, detail=detail)
    for one in rulings:
        number, _ = known.get(one.name, (0, None))
        _keep(connection, one, number)
    if any(one.is_change for one in rulings):
        grow(connection, "routes_version", 1)
    if by.worker:
        see_worker(connection, by.worker, micros(now))
        if not again:
            _tell(connection, by.worker, destinations)
    return registered(read_routes(connection), rulings)


def read_standings(
    connection: apsw.Connection, names: Sequence[str] | None = None
) -> dict[str, tuple[int, Standing]]:
    """Return the numbers and the standings of these destinations, or of all."""
    found = (
        rows(connection, _STANDINGS)
        if names is None
        else rows(connection, _STANDINGS + _OF_THESE, (json_text(names),))
    )
    standings = {}
    for number, document, is_removed, kept in found:
        one = destination_from(document)
        standings[one.name] = number, standing_from(one, kept, is_removed=bool(is_removed))
    return standings


def keep_standing(connection: apsw.Connection, number: int, standing: Standing) -> None:
    """Keep the standing of the destination with this number."""
    connection.execute(_KEEP, (number, json_text(standing)))


def others(connection: apsw.Connection) -> dict[str, tuple[str, ...]]:
    """Return of each worker the destinations of which it declares another than is in force."""
    declared = rows(connection, _DECLARED)
    if not declared:
        return {}
    standings = {name: one for name, (_, one) in read_standings(connection).items()}
    releases = {name: document for _, name, document in declared}
    found = {name: differing(release_from(one), standings) for name, one in releases.items()}
    return {worker: found[name] for worker, name, _ in declared}


def _keep(connection: apsw.Connection, ruling: Ruling, number: int) -> None:
    if ruling.is_change:
        after = ruling.after.destination
        if ruling.before is not None and ruling.before.destination.order is not after.order:
            relane(connection, number, before=ruling.before.destination.order, after=after.order)
        connection.execute(_WRITE, (ruling.name, json_text(after)))
    if not number:
        number = connection.execute(
            "SELECT id FROM redrive_destinations WHERE name = ?", (ruling.name,)
        ).get
    if not ruling.is_kept:
        keep_standing(connection, number, ruling.after)


def _live(connection: apsw.Connection, by: Declarer, *, now: datetime) -> list[Release]:
    """Return what live workers declare, but for the one that asks."""
    found = rows(connection, _LIVE, (by.worker, micros(now - by.lease)))
    return [release_from(document) for (document,) in found]


def _tell(connection: apsw.Connection, worker: str, destinations: Sequence[Destination]) -> None:
    """Write down what a worker declares, once for all workers of its release."""
    release, document = release_of(destinations)
    connection.execute("INSERT OR IGNORE INTO redrive_releases VALUES (?, ?)", (release, document))
    connection.execute("UPDATE redrive_workers SET release = ? WHERE id = ?", (release, worker))
    connection.execute(_FORGET_RELEASES)
