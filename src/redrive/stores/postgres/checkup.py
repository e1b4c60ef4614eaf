"""Whether the PostgreSQL server is well: durable, writable, vacuumed, in time, with room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from redrive.model.duration import rough_duration
from redrive.store import Finding, Level
from redrive.stores.postgres.connection import Address
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.schema import LATEST

__all__ = ["check_up"]

_CLOCK_SLACK = timedelta(seconds=5)
_LONG = timedelta(minutes=1)
_MANY_DEAD_ROWS = 10_000
_MOST_NAMED = 5

_SERVER = """
SELECT current_setting('server_version') AS version,
       (SELECT version FROM redrive.schema) AS schema_version,
       pg_is_in_recovery() AS is_standby,
       current_setting('default_transaction_read_only')::boolean AS is_read_only,
       current_setting('fsync')::boolean AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum')::boolean
           AND current_setting('track_counts')::boolean AS autovacuum,
       current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer AS places,
       (SELECT count(*) FROM pg_stat_activity
        WHERE coalesce(backend_type, 'client backend') = 'client backend'
          AND datname IS NOT NULL) AS taken
"""
_RIGHTS = """
SELECT current_user AS "user",
       array(SELECT relname FROM pg_class
             WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')
               AND relname <> 'schema'
               AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                        AND has_table_privilege(oid, 'UPDATE')
                        AND has_table_privilege(oid, 'DELETE'))
             ORDER BY relname) AS tables,
       array(SELECT relname FROM pg_class
             WHERE relnamespace = to_regnamespace($1) AND relkind = 'S'
               AND NOT (has_sequence_privilege(oid, 'SELECT')
                        AND has_sequence_privilege(oid, 'USAGE')
                        AND has_sequence_privilege(oid, 'UPDATE'))
             ORDER BY relname) AS sequences,
       array(SELECT proname FROM pg_proc
             WHERE pronamespace = to_regnamespace($1)
               AND NOT has_function_privilege(oid, 'EXECUTE') ORDER BY proname) AS functions
"""
# Of other users' connections one without pg_read_all_stats sees only that they are there.
_HIDDEN = """
SELECT count(*) AS number, current_user AS "user" FROM pg_stat_activity
WHERE datname IS NOT NULL AND backend_type IS NULL
"""
# One that writes keeps the log from being read on wherever it is: numbers are the whole server's.
_TRANSACTIONS = """
SELECT pid, state, usename, application_name, clock_timestamp() - xact_start AS age,
       datname <> current_database() AS is_elsewhere, datname
FROM pg_stat_activity
WHERE (datname = current_database() OR backend_xid IS NOT NULL) AND backend_type = 'client backend'
  AND pid <> pg_backend_pid() AND clock_timestamp() - xact_start > $1
ORDER BY xact_start LIMIT $2
"""
_PREPARED = """
SELECT gid, owner, clock_timestamp() - prepared AS age FROM pg_prepared_xacts
WHERE database = current_database() AND clock_timestamp() - prepared > $1
ORDER BY prepared LIMIT $2
"""
_TABLES = """
SELECT s.relname, s.n_live_tup, s.n_dead_tup,
       coalesce(c.reloptions @> ARRAY['autovacuum_enabled=false'], false) AS is_exempt
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = $1 ORDER BY s.relname
"""


async def check_up(
    link: Link, address: Address, *, ahead: timedelta, is_proxied: bool
) -> Sequence[Finding]:
    """Ask the server, and the schema; `ahead` is how far our clock is before the server's."""
    [server] = await link.fetch(_SERVER)
    transactions = await link.fetch(_TRANSACTIONS, _LONG, _MOST_NAMED)
    prepared = await link.fetch(_PREPARED, _LONG, _MOST_NAMED)
    [hidden] = await link.fetch(_HIDDEN)
    [rights] = await link.fetch(_RIGHTS, address.schema)
    tables = await link.fetch(_TABLES, address.schema)
    return (
        *_schema(server, address),
        *_writing(server),
        *_rights(rights, address),
        *_durability(server),
        *_clock(ahead),
        *_connections(server, address, is_proxied=is_proxied),
        *_transactions(transactions, prepared, hidden),
        *_vacuum(server, tables, address),
    )


def _schema(server: Any, address: Address) -> Iterator[Finding]:  # noqa: ANN401 - a driver row
    version = server["schema_version"]
    is_newer = version > LATEST
    age = f"newer than this Redrive's {LATEST}, and it can work with it" if is_newer else "current"
    yield _ok(
        f"The store {address.name} answers, on PostgreSQL {server['version'].split()[0]}; its "
        f"schema version {version} is {age}."
    )


def _writing(server: Any) -> Iterator[Finding]:  # noqa: ANN401 - as above
    if server["is_standby"]:
        yield Finding(
            level=Level.ERROR,
            what="The server is a standby, where nothing can be published or delivered.",
            advice="Point the store URL at the primary.",
        )
    elif server["is_read_only"]:
        yield Finding(
            level=Level.ERROR,
            what="The server is set to read only, so nothing can be published or delivered.",
            advice="Set default_transaction_read_only to off, for the server, database and user.",
        )


def _rights(rights: Any, address: Address) -> Iterator[Finding]:  # noqa: ANN401 - as above
    """Tell what a user lacks who may read all of it and yet not do the work."""
    kinds = ("tables", "sequences", "functions")
    lacking = [f"{kind} {', '.join(rights[kind])}" for kind in kinds if rights[kind]]
    if lacking:
        yield Finding(
            level=Level.ERROR,
            what=f"The user {rights['user']} may not read and change all of the schema "
            f"{address.schema}, so it can neither publish nor deliver; it lacks rights on the "
            f"{'; the '.join(lacking)}.",
            advice=f"Let the owner of the schema run: {address.grants(rights['user'])}",
        )


def _durability(server: Any) -> Iterator[Finding]:  # noqa: ANN401 - as above
    if not server["fsync"]:
        yield Finding(
            level=Level.ERROR,
            what="fsync is off: when the machine crashes, the database may be damaged.",
            advice="Set fsync = on in postgresql.conf and reload.",
        )
    if server["synchronous_commit"] == "off":
        yield Finding(
            level=Level.ERROR,
            what="synchronous_commit is off: a crash of the server loses events that were "
            "acknowledged a moment before.",
            advice="Set synchronous_commit = on, at least for this user: "
            "ALTER ROLE … SET synchronous_commit = on",
        )
    if server["fsync"] and server["synchronous_commit"] != "off":
        yield _ok("What is acknowledged survives a crash of the server.")


def _clock(ahead: timedelta) -> Iterator[Finding]:
    if abs(ahead) <= _CLOCK_SLACK:
        yield _ok("The clocks here and at the server agree.")
        return
    where = "ahead of" if ahead > timedelta(0) else "behind"
    yield Finding(
        level=Level.WARNING,
        what=f"The clock of this machine is {rough_duration(abs(ahead))} {where} the server's. "
        "Leases and retries go by the server's, but `in 5m` and the like are reckoned here.",
        advice="Set the clock right, and keep it so with NTP.",
    )


def _connections(server: Any, address: Address, *, is_proxied: bool) -> Iterator[Finding]:  # noqa: ANN401 - as above
    free = max(0, server["places"] - server["taken"])
    if is_proxied:
        yield _ok(
            "A proxy that pools connections is between here and the server; workers find new work "
            "by polling."
        )
    elif free < address.pool:
        yield Finding(
            level=Level.WARNING,
            what=f"Only {free} of the server's {server['places']} connections are free, and each "
            f"process may open {address.pool}.",
            advice="Raise max_connections, lower `?pool=` in the store URL, or put a pooling "
            "proxy in front.",
        )
    else:
        yield _ok(f"{free} of the server's {server['places']} connections are free.")


def _transactions(
    transactions: Sequence[Any],
    prepared: Sequence[Any],
    hidden: Any,  # noqa: ANN401 - as above
) -> Iterator[Finding]:
    """Tell of what keeps the log from being read on, and dead rows from being removed."""
    for one in transactions:
        name = f", {one['application_name']}" if one["application_name"] else ""
        is_elsewhere = one["is_elsewhere"]
        where = f"in the database {one['datname']} " if is_elsewhere else ""
        rows = "" if is_elsewhere else "dead rows pile up, and "
        yield Finding(
            level=Level.WARNING,
            what=f"Process {one['pid']} of the server ({one['usename']}{name}; {one['state']}) has "
            f"had a transaction open {where}for {rough_duration(one['age'])}. Until it ends, "
            f"{rows}what is published is not yet read from the log.",
            advice=f"End it where it was begun, or with: SELECT pg_terminate_backend({one['pid']})",
        )
    for one in prepared:
        yield Finding(
            level=Level.WARNING,
            what=f"The transaction {one['gid']!r} of {one['owner']} was prepared "
            f"{rough_duration(one['age'])} ago and never ended; until it is, dead rows pile up.",
            advice=f"COMMIT PREPARED or ROLLBACK PREPARED '{one['gid']}'",
        )
    if hidden["number"]:
        others = "another connection"
        if hidden["number"] > 1:
            others = f"{hidden['number']} other connections"
        yield Finding(
            level=Level.WARNING,
            what=f"How long transactions of {others} have been open cannot be seen by the user "
            f"{hidden['user']}; one left open would let dead rows pile up, and keep what is "
            "published from being read from the log.",
            advice=f'Let it see them: GRANT pg_read_all_stats TO "{hidden["user"]}"',
        )
    elif not transactions and not prepared:
        yield _ok(f"No transaction has been open for longer than {rough_duration(_LONG)}.")


def _vacuum(server: Any, tables: Sequence[Any], address: Address) -> Iterator[Finding]:  # noqa: ANN401 - as above
    if not server["autovacuum"]:
        yield Finding(
            level=Level.ERROR,
            what="autovacuum is off, or track_counts, which it needs: dead rows are never removed, "
            "and claims grow slower and slower.",
            advice="Set autovacuum = on and track_counts = on in postgresql.conf and reload.",
        )
    for one in tables:
        table = f"{address.schema}.{one['relname']}"
        if one["is_exempt"]:
            yield Finding(
                level=Level.ERROR,
                what=f"autovacuum is off for {table}.",
                advice=f"ALTER TABLE {table} RESET (autovacuum_enabled)",
            )
        if one["n_dead_tup"] > max(_MANY_DEAD_ROWS, one["n_live_tup"]):
            yield Finding(
                level=Level.WARNING,
                what=f"{table} has {one['n_dead_tup']:,} dead rows to {one['n_live_tup']:,} live "
                "ones, and claims have to step over them.",
                advice=f"See what keeps autovacuum from removing them, such as a long transaction; "
                f"then: VACUUM {table}",
            )


def _ok(what: str) -> Finding:
    return Finding(level=Level.OK, what=what)
