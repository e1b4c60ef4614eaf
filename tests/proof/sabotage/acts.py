"""The acts of sabotage: a line of a real store, what it becomes, and which tests must notice."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SABOTAGES", "Sabotage"]


class Sabotage(NamedTuple):
    """One spoiled line; `words` are the tests of the store's conformance suite to run."""

    name: str
    store: str
    file: str
    line: str
    becomes: str
    words: str


SABOTAGES = (
    Sabotage(
        "no fencing",
        "sqlite",
        "settling.py",
        "WHERE d.token = value ->> 1 AND d.status = 1 AND d.lease_until > ?",
        "WHERE d.token <> value ->> 1 OR d.status = 1 AND d.lease_until > ?",
        "refused or late or stale",
    ),
    Sabotage(
        "no fencing",
        "postgres",
        "settling.py",
        '_IS_CURRENT = """d.id = given.id AND d.token = given.token AND d.status + 0 = 1',
        '_IS_CURRENT = """d.id = given.id AND d.status + 0 = 1',
        "refused or late or stale",
    ),
    Sabotage(
        "no fencing where one statement settles",
        "postgres",
        "at_once/settle.py",
        "WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1",
        "WHERE d.id = given.id AND d.status + 0 = 1",
        "refused or late or stale or reclaimed",
    ),
    Sabotage(
        "one statement claims past a gate that has changed",
        "postgres",
        "at_once/claim.py",
        "JOIN redrive.gates g ON g.destination = q.destination AND g.document = q.gate",
        "JOIN redrive.gates g ON g.destination = q.destination",
        "pause or paused or breaker or rate or open",
    ),
    Sabotage(
        "settles after the lease has run out",
        "sqlite",
        "settling.py",
        "WHERE d.token = value ->> 1 AND d.status = 1 AND d.lease_until > ?",
        "WHERE d.token = value ->> 1 AND d.status = 1 AND ? > 0",
        "lease",
    ),
    Sabotage(
        "tokens that do not grow",
        "sqlite",
        "claiming.py",
        "SET status = 1, token = token + 1, attempts = attempts + 1, worker = ?, lease_until = ?,",
        "SET status = 1, token = token, attempts = attempts + 1, worker = ?, lease_until = ?,",
        "reclaimed",
    ),
    Sabotage(
        "acknowledges what was rolled back",
        "sqlite",
        "threads.py",
        "                    self._perform_apart(connection, call)\n"
        '            connection.execute("COMMIT")',
        "                    self._perform_apart(connection, call)\n"
        '            connection.execute("ROLLBACK")',
        "delivered",
    ),
    Sabotage(
        "acknowledges what was rolled back",
        "postgres",
        "core.py",
        'await connection.execute("COMMIT")',
        'await connection.execute("ROLLBACK")',
        "delivered",
    ),
    Sabotage(
        "a lane may be overtaken",
        "sqlite",
        "lanes.py",
        "WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id",
        "WHERE head.destination = d.destination AND head.lane = d.lane AND head.id > d.id",
        "replayed or behind or order",
    ),
    Sabotage(
        "a snooze spends an attempt",
        "postgres",
        "settling.py",
        "log = {_LOG}, attempts = attempts - 1, snoozes = snoozes + 1,",
        "log = {_LOG}, snoozes = snoozes + 1,",
        "snooze",
    ),
    Sabotage(
        "replays what has not failed",
        "sqlite",
        "intervention.py",
        'f"WHERE d.{_OF} AND d.status = 3 AND d.resolution IS NULL ORDER BY d.id"',
        'f"WHERE d.{_OF} AND d.resolution IS NULL ORDER BY d.id"',
        "replay",
    ),
    Sabotage(
        "rescues what is not overdue",
        "postgres",
        "settling.py",
        'AND d.status = 1 AND d.lease_until <= $1"',
        'AND d.status = 1"',
        "rescue or rescued or overdue or lease",
    ),
)
