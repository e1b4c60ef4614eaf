"""The acts of sabotage: a line of the source, what it becomes, and which tests must notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["SABOTAGES", "Sabotage"]


class Sabotage(NamedTuple):
    """One spoiled line, in a room of a store or elsewhere in the engine.

    `words` choose among the tests of a file: the store's conformance suite unless another is named.
    """

    name: str
    where: str
    file: str
    line: str
    becomes: str
    words: str
    tests: str = ""

    @property
    def path(self) -> Path:
        """The file within the source."""
        room = Path("redrive") if self.where == "engine" else Path("redrive/stores") / self.where
        return room / self.file

    @property
    def arguments(self) -> tuple[str, ...]:
        """What to run, in the words of pytest."""
        file = self.tests or f"tests/stores/{self.where}/test_store.py"
        return (file, "-k", self.words) if self.words else (file,)


SABOTAGES = (
    Sabotage(
        "no fencing",
        "sqlite",
        "session.py",
        "WHERE d.token = value ->> 1 AND d.status = 1 AND d.lease_until > ?",
        "WHERE d.token <> value ->> 1 OR d.status = 1 AND d.lease_until > ?",
        "refused or late or stale",
    ),
    Sabotage(
        "no fencing",
        "sql",
        "leases.py",
        '_IS_CURRENT = """d.id = given.id AND d.token = given.token AND d.status + 0 = 1',
        '_IS_CURRENT = """d.id = given.id AND d.status + 0 = 1',
        "refused or late or stale",
        tests="tests/stores/postgres/test_store.py",
    ),
    Sabotage(
        "no fencing where one statement settles",
        "postgres",
        "single_statement/settle.py",
        "WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1",
        "WHERE d.id = given.id AND d.status + 0 = 1",
        "refused or late or stale or reclaimed",
    ),
    Sabotage(
        "one statement claims past a gate that has changed",
        "postgres",
        "single_statement/claim.py",
        "JOIN redrive.gates g ON g.destination = q.destination AND g.document = q.gate",
        "JOIN redrive.gates g ON g.destination = q.destination",
        "pause or paused or breaker or rate or open",
    ),
    Sabotage(
        "one statement claims past an override",
        "postgres",
        "single_statement/claim.py",
        "AND (g.override_until IS NULL OR g.override_until <= (SELECT now FROM present))",
        "",
        "no_limit_can_be_given",
    ),
    Sabotage(
        "a shared rate is not charged",
        "sql",
        "claiming.py",
        "self._sharing.charge(name, len(serving.chosen))",
        "self._sharing.charge(name, 0)",
        "share_the_tokens or no_stretch",
        tests="tests/stores/sqlite/test_store.py",
    ),
    Sabotage(
        "settles after the lease has run out",
        "sqlite",
        "session.py",
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
        "yield PostgresSession(connection, self.address.schema)\n"
        '                await connection.execute("COMMIT")',
        "yield PostgresSession(connection, self.address.schema)\n"
        '                await connection.execute("ROLLBACK")',
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
        "sql",
        "leases.py",
        "log = {{log}}, attempts = attempts - 1, snoozes = snoozes + 1,",
        "log = {{log}}, snoozes = snoozes + 1,",
        "snooze",
        tests="tests/stores/postgres/test_store.py",
    ),
    Sabotage(
        "replays what has not failed",
        "sqlite",
        "session.py",
        "WHERE d.id = ANY ($1::bigint[]) AND d.status = 3 AND d.resolution IS NULL ORDER BY d.id",
        "WHERE d.id = ANY ($1::bigint[]) AND d.resolution IS NULL ORDER BY d.id",
        "replay",
    ),
    Sabotage(
        "rescues what is not overdue",
        "sql",
        "leases.py",
        'AND d.status = 1 AND d.lease_until <= $1"',
        'AND d.status = 1"',
        "rescue or rescued or overdue or lease",
        tests="tests/stores/postgres/test_store.py",
    ),
    Sabotage(
        "forgets a lane that somebody is publishing to",
        "postgres",
        "lanes.py",
        "        await link.fetch(_PUT_OFF_HELD, late_numbers, late_keys)\n",
        "        pass\n",
        "somebody_publishes_to_it",
        tests="tests/stores/postgres/test_claiming.py",
    ),
    Sabotage(
        "late events are not put behind what is in their lane",
        "postgres",
        "late_events.py",
        "WHERE head.destination = given.destination AND head.lane = given.lane",
        "WHERE false AND head.destination = given.destination AND head.lane = given.lane",
        "late_events_go_behind",
        tests="tests/stores/postgres/test_routes.py",
    ),
    Sabotage(
        "what is given back has spent an attempt",
        "sql",
        "leases.py",
        "SET status = 0, {_DONE}, attempts = attempts - 1, due = least(due, $1), is_ready = true",
        "SET status = 0, {_DONE}, due = least(due, $1), is_ready = true",
        "released",
        tests="tests/stores/postgres/test_store.py",
    ),
    Sabotage(
        "blames what a worker held that took its leave",
        "sql",
        "leases.py",
        "coalesce(w.seen_at > d.lease_until, true), w.seen_at",
        "coalesce(w.seen_at > d.lease_until, false), w.seen_at",
        "retired",
        tests="tests/stores/postgres/test_store.py",
    ),
    Sabotage(
        "a replay sends what has failed anew since it was selected",
        "sql",
        "replays.py",
        "WHERE d.status = 3 AND d.resolution IS NULL AND d.token = given.token\nORDER BY d.id FOR",
        "WHERE d.status = 3 AND d.resolution IS NULL\nORDER BY d.id FOR",
        "whoever_is_at_a_letter",
        tests="tests/stores/postgres/test_replaying.py",
    ),
    Sabotage(
        "acknowledges what is not on the disk yet",
        "sqlite",
        "connection.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        "durability",
        tests="tests/stores/sqlite/test_file.py",
    ),
    Sabotage(
        "removes dead letters that are not on the disk yet",
        "engine",
        "archive.py",
        "            os.fsync(file)\n",
        "            pass\n",
        "until_the_export_is_on_the_disk",
        tests="tests/app/test_keeping.py",
    ),
    Sabotage(
        "exports letters in the order in which they failed",
        "engine",
        "archive.py",
        "    letters.sort(key=lambda one: one.delivery.id)\n",
        "",
        "in_publish_order and memory",
        tests="tests/app/test_keeping.py",
    ),
    Sabotage(
        "forgets an applied effect before its key",
        "engine",
        "model/retention.py",
        "max(self.inbox, self.idempotency)",
        "self.inbox",
        "",
        tests="tests/unit/model/test_retention.py",
    ),
    Sabotage(
        "never forgets a crash",
        "engine",
        "policies/recovery.py",
        "return 0 if last is not None and now - last > _MEMORY else overdue.crashes",
        "return overdue.crashes",
        "",
        tests="tests/unit/policies/test_recovery.py",
    ),
    Sabotage(
        "a worker that was heard of lets its leases run out",
        "engine",
        "worker/heartbeat.py",
        "if not tells and not leases and since_noted < self._beat_every:",
        "if not tells and since_noted < self._beat_every:",
        "",
        tests="tests/unit/test_heartbeat.py",
    ),
    Sabotage(
        "what was applied before counts as an answer of the destination",
        "engine",
        "pipeline/settle.py",
        "None if outcome.is_repeat else True",
        "True",
        "says_nothing and sqlite",
        tests="tests/effects/test_effects.py",
    ),
    Sabotage(
        "a process that lived for long is started again as late as one that did not",
        "engine",
        "worker/supervisor.py",
        "            if lived >= _HEALTHY_SECONDS:\n                delay = 0.0\n",
        "",
        "",
        tests="tests/unit/test_supervisor.py",
    ),
    Sabotage(
        "two who change a gate at once undo each other",
        "sql",
        "gates.py",
        "session.fetch(_LOCK, sorted(names))",
        "session.fetch(_SOME, sorted(names))",
        "counts_on_top",
        tests="tests/stores/postgres/test_claiming.py",
    ),
    Sabotage(
        "leaves the next of a lane behind nobody",
        "sql",
        "intervention.py",
        "await session.free_lanes(await lanes_of(session, changed))",
        "await lanes_of(session, changed)",
        "nobody_waits",
        tests="tests/stores/sqlite/test_store.py",
    ),
)
