"""Publishing: events go into the log in one statement, in steps, or in the caller's transaction.

Most events have no key, so nobody has to be waited for, and their ids and idempotency keys are new.
Such ones go into the log in a single trip to the server. Where that is not so, the statement stores
nothing, and they are appended step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TypeVar

import asyncpg

from redrive.errors import StoreError, StoreUnavailableError
from redrive.model.event import Receipt
from redrive.store import Append, Appended, Entry, RoutesChanged
from redrive.stores.codec import from_micros
from redrive.stores.postgres.append import append, read_numbers
from redrive.stores.postgres.codec import array_text, columns
from redrive.stores.postgres.connection import LOST, translated
from redrive.stores.postgres.core import BEGIN, Core, Job
from redrive.stores.postgres.facts import Numbers
from redrive.stores.postgres.held_keys import HeldKeys, KeyHeldError
from redrive.stores.postgres.joining import adopt
from redrive.stores.postgres.joining.identity import Acquaintances, Identity, read_identity
from redrive.stores.postgres.joining.savepoint import savepoint
from redrive.stores.postgres.pool import CONNECT_SECONDS, Link
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sealed import Codec
from redrive.stores.sql.log import read_routes

__all__ = ["PublishingRole"]

T = TypeVar("T")
_MANY = 2_000

# Where somebody holds a key, one wait is shorter than the second after which the server looks for
# a deadlock: in the end of it all is let go, so that nobody who waits for us is ever its victim.
_BRIEFLY = f"{BEGIN}; SET LOCAL lock_timeout = '100ms'"
_PATIENTLY = f"{BEGIN}; SET LOCAL lock_timeout = '500ms'"
_WAITS = 20
_LONGEST_WAIT_SECONDS = 10.0
# A call of its own first looks whether it has to wait at all, as most of them have not.
_HARDLY = f"{BEGIN}; SET LOCAL lock_timeout = '10ms'"

# As a number, because drivers disagree about the time zone that an instant has.
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# The driver takes longer for the elements of an array than the server does. So ids and documents
# come as one text each, and the other columns twice: as an array, which is empty when all values
# of the column are alike, and as that value. `unnest` fills up what is shorter with NULL.
_APPEND = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
           pg_current_xact_id()::text::bigint + log.value AS xid{brief}
    FROM redrive.counters log JOIN redrive.counters routes ON routes.name = 'routes_version'
    WHERE log.name = 'log_offset' AND routes.value = $2
), numbers AS MATERIALIZED (
    SELECT array_agg(nextval('redrive.events_position_seq')) AS positions
    FROM generate_series(1, $3::integer)
), stored AS (
    INSERT INTO redrive.events
        (position, id, document, type, destinations, xid, routes_version, counted)
    SELECT given.position, given.id, given.document, coalesce(given.type, $7),
           coalesce(given.destinations, $9)::text[], present.xid, $2, false
    FROM present CROSS JOIN unnest(
        (SELECT positions FROM numbers), (SELECT string_to_array($4, ',')::uuid[]),
        (SELECT string_to_array($5, E'\\x1e')), (SELECT $6::text[]), (SELECT $8::text[])
    ) AS given (position, id, document, type, destinations)
), late AS (
    INSERT INTO redrive.late_events (position, routes_version)
    SELECT position, latest.version
    FROM present CROSS JOIN LATERAL (
        -- Read when this transaction has its number: who changes the routes now, sees it.
        SELECT last_value AS version FROM redrive.route_versions
        WHERE is_called AND present.xid IS NOT NULL
    ) AS latest CROSS JOIN unnest((SELECT positions FROM numbers)) AS position
    WHERE latest.version > $2
), sent AS (
    INSERT INTO redrive.deliveries
        (position, enqueued_at, is_ready, kind, due, destination, priority, generation, tenant,
         deadline, counted)
    SELECT numbers.positions[given.place], present.now, asked.due <= present.now,
           CASE WHEN asked.due <= present.now AND asked.priority = 0 THEN 3 ELSE 0 END,
           asked.due, coalesce(given.destination, $12), asked.priority,
           coalesce(given.generation, $16), coalesce(given.tenant, $18),
           coalesce(given.deadline, $22), false
    FROM present CROSS JOIN numbers CROSS JOIN unnest(
        (SELECT coalesce($10::integer[], ARRAY(SELECT generate_series(1, $3::integer)))),
        (SELECT $11::integer[]), (SELECT $13::smallint[]),
        (SELECT $15::text[]), (SELECT $17::text[]), (SELECT $19::timestamptz[]),
        (SELECT $21::timestamptz[])
    ) AS given (place, destination, priority, generation, tenant, due, deadline)
    CROSS JOIN LATERAL (
        SELECT coalesce(given.due, $20, present.now) AS due,
               coalesce(given.priority, $14::smallint) AS priority
    ) AS asked
    RETURNING destination, is_ready, generation
), counted AS (
    INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
    SELECT destination, 1 - is_ready::integer, generation, '', count(*) FROM sent GROUP BY 1, 2, 3
    UNION ALL
    SELECT 0, 40, '', '', $3 - {idle} FROM present WHERE $3 > {idle}
){more}
SELECT FROM present
"""
_IDLE = """, idle AS (
    INSERT INTO redrive.idle (position, since)
    SELECT numbers.positions[given.place], present.now
    FROM present CROSS JOIN numbers CROSS JOIN unnest((SELECT $23::integer[])) AS given (place)
), unrouted AS (
    INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
    SELECT 0, 41, '', '', cardinality($23) FROM present
)"""
_IDLE_COUNT = "cardinality($23::integer[])"
_KEYED = """, keyed AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT given.source, given.key, given.event
    FROM present CROSS JOIN unnest(
        (SELECT ${0}::text[]), (SELECT ${1}::text[]), (SELECT ${2}::uuid[])
    ) AS given (source, key, event)
)"""
# Somebody's open transaction may have published with the same idempotency key. Whoever is in the
# same statement is not to wait for it.
_BRIEF = """,
           set_config('lock_timeout', '100ms', true)"""
_PLAIN = _APPEND.format(brief="", more="", idle="0")
_WITH_IDLE = _APPEND.format(brief="", more=_IDLE, idle=_IDLE_COUNT)
_WITH_KEYED = _APPEND.format(brief=_BRIEF, more=_KEYED.format(23, 24, 25), idle="0")
_WITH_BOTH = _APPEND.format(brief=_BRIEF, more=_IDLE + _KEYED.format(24, 25, 26), idle=_IDLE_COUNT)


# One event for one destination, as most calls have it: no arrays, and half the steps.
_APPEND_ONE = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
           pg_current_xact_id()::text::bigint + log.value AS xid,
           nextval('redrive.events_position_seq') AS position{brief}
    FROM redrive.counters log JOIN redrive.counters routes ON routes.name = 'routes_version'
    WHERE log.name = 'log_offset' AND routes.value = $2
), stored AS (
    INSERT INTO redrive.events
        (position, id, document, type, destinations, xid, routes_version, counted)
    SELECT position, $3::uuid, $4, $5, ARRAY[$6], xid, $2, false FROM present
), late AS (
    INSERT INTO redrive.late_events (position, routes_version)
    SELECT position, version
    FROM (
        -- Read when this transaction has its number: who changes the routes now, sees it.
        SELECT position, (
            SELECT last_value FROM redrive.route_versions
            WHERE is_called AND present.xid IS NOT NULL
        ) AS version
        FROM present
    ) AS latest
    WHERE version > $2
), counted AS (
    INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
    SELECT $9, (coalesce($7::timestamptz, now) > now)::integer, $10, '', 1 FROM present
    UNION ALL
    SELECT 0, 40, '', '', 1 FROM present
){more}
INSERT INTO redrive.deliveries
    (position, enqueued_at, is_ready, kind, due, destination, priority, generation, tenant,
     deadline, counted)
SELECT position, now, coalesce($7::timestamptz, now) <= now,
       CASE WHEN coalesce($7, now) <= now AND $8::smallint = 0 THEN 3 ELSE 0 END,
       coalesce($7, now), $9, $8, $10, $11, $12, false
FROM present
RETURNING 1
"""
_ONE_KEYED = """, keyed AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT $13, $14, $3::uuid FROM present
)"""
_ONE_PLAIN = _APPEND_ONE.format(brief="", more="")
_ONE_WITH_KEY = _APPEND_ONE.format(brief=_BRIEF, more=_ONE_KEYED)


_BETWEEN = "\x1e"
"""What stands between two documents: a character that JSON does not have."""


class PublishingRole(Core):
    """What is written of `EventLog`, also within transactions of the caller's."""

    _acquaintances: Acquaintances | None = None

    @cached_property
    def _held(self) -> HeldKeys:
        return HeldKeys(self._append)

    async def open(self) -> None:
        await super().open()
        if self._acquaintances is None:
            self._acquaintances = Acquaintances(self.address, await self._identity())

    async def close(self) -> None:
        await super().close()
        self.__dict__.pop("_held", None)  # it belongs to the event loop

    async def _identity(self) -> Identity:
        try:
            return await self._read(lambda link, _: read_identity(link, with_server=True))
        except StoreError:
            return await self._read(lambda link, _: read_identity(link, with_server=False))

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        if within is not None:
            job = _steps(entries, routes_version=routes_version, all_or_nothing=all_or_nothing)
            return await self._join(within, job)
        if all_or_nothing:
            return await self._append(entries, routes_version=routes_version, is_patient=True)
        if not self._held.queues:
            with suppress(KeyHeldError):
                return await self._append(entries, routes_version=routes_version, is_patient=False)
        return await self._held.append(entries, routes_version=routes_version)

    async def _append(
        self, entries: Sequence[Entry], *, routes_version: int, is_patient: bool
    ) -> Append:
        """Append together; who is patient waits for held keys, and wants all or nothing."""
        appended = None
        try:
            appended = await self._append_in_one_statement(entries, routes_version)
        except KeyHeldError:
            if not is_patient:
                raise
        if appended is None:
            self.facts.went("append", "steps")
            append = self._append_patiently if is_patient else self._append_in_steps
            job = _steps(entries, routes_version=routes_version, all_or_nothing=is_patient)
            appended = await append(job)
        if not isinstance(appended, RoutesChanged):
            self._notifications.notify()
        return appended

    async def _append_in_one_statement(
        self, entries: Sequence[Entry], routes_version: int
    ) -> Append | None:
        """Append in one trip to the server; `None` if more is needed, or it failed on the way.

        Who then appends step by step sees by the ids whether it took effect all the same, and
        hears what is wrong if it still is.
        """
        if self.facts.numbers.version != routes_version:
            self.facts.numbers = await self._read(lambda link, _: read_numbers(link))
        numbers = self.facts.numbers
        if numbers.version != routes_version or not _is_simple(entries, numbers):
            return None
        text, values = _append_statement(entries, numbers, now=self._given_now, codec=self.codec)
        try:
            rows = await self._statement_once(text, *values, within=_patience(len(entries)))
        except TimeoutError as error:
            with translated(self.address):
                raise error from None
        except asyncpg.LockNotAvailableError as error:
            raise KeyHeldError from error
        except (asyncpg.PostgresError, *LOST):
            return None
        if not rows:
            return None
        self.facts.went("append", "statement")
        return Appended(
            tuple(Receipt(event_id=one.event.id, destinations=one.destinations) for one in entries)
        )

    async def _append_patiently(self, job: Job[Append]) -> Append:
        """Append in steps; wait for keys that somebody holds, but not for ever.

        A wait keeps a connection. However many have to wait, others find one that is free.
        """
        with suppress(KeyHeldError):
            return await self._append_in_steps(job, begin=_HARDLY)
        end = self._clock.monotonic() + _LONGEST_WAIT_SECONDS
        for _ in range(_WAITS):
            async with self._patient:
                if self._clock.monotonic() > end:
                    break
                with suppress(KeyHeldError):
                    return await self._append_in_steps(job, begin=_PATIENTLY)
        raise StoreUnavailableError(
            f"Somebody has published in {self.address.name} with the same key, idempotency key "
            "or unique key, and has left that transaction open; nothing was stored. Commit it or "
            "roll it back, and publish again."
        )

    async def _append_in_steps(self, job: Job[Append], *, begin: str = _BRIEFLY) -> Append:
        """Append in steps; raises if a key is held for longer than the transaction waits."""
        try:
            return await self._run_with_now(job, begin=begin)
        except StoreUnavailableError as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise KeyHeldError from error
            raise

    async def _join(self, within: object, job: Job[T]) -> T:
        """Run a job as a part of the caller's own transaction, without any I/O of ours.

        With a driver that is not async this never really waits, so that any thread may run it.
        """
        caller = await adopt(within)
        link = PostgresSession(caller, self.address.schema, self.codec)
        async with savepoint(link, self.address):
            if self._acquaintances is not None:
                await self._acquaintances.check(caller.connection, link)
            link.now = await self._now_within(link)
            result = await job(link, link.now)
        if isinstance(result, Appended):
            caller.after_commit(self.wake)
        return result

    async def _now_within(self, link: Link) -> datetime:
        if not self._uses_server_clock:
            return self._clock.now()
        return from_micros(await link.value(_NOW))


def _steps(entries: Sequence[Entry], *, routes_version: int, all_or_nothing: bool) -> Job[Append]:
    async def job(link: PostgresSession, now: datetime) -> Append:
        appended = await append(
            link,
            entries,
            routes_version=routes_version,
            all_or_nothing=all_or_nothing,
            now=now,
        )
        return RoutesChanged(await read_routes(link)) if appended is None else appended

    return job


def _patience(entries: int) -> float:
    """Return for how many seconds to wait: a line that is dead is to be noticed soon."""
    return CONNECT_SECONDS * max(1, entries / _MANY)


def _is_simple(entries: Sequence[Entry], numbers: Numbers) -> bool:
    """Tell whether nothing stands against appending these at once."""
    known = numbers.of.keys()  # none of which is a recipient by a rule
    return all(entry.event.key is None and entry.unique is None for entry in entries) and all(
        known >= set(destinations) and numbers.expiring.isdisjoint(destinations)
        for destinations in dict.fromkeys(one.destinations for one in entries)
    )


def _append_statement(
    entries: Sequence[Entry], numbers: Numbers, *, now: datetime | None, codec: Codec
) -> tuple[str, list[object]]:
    """Return a statement and its values; without an instant, it is the server's present.

    It stores all of the entries and returns a row, or nothing when the routes are others by now.
    """
    if len(entries) == 1 and len(entries[0].destinations) == 1:
        return _statement_for_one(entries[0], numbers, now=now, codec=codec)
    events = [entry.event for entry in entries]
    values: list[object] = [now, numbers.version, len(events)]
    values.append(",".join([one.id for one in events]))
    values.append(_BETWEEN.join([codec.event_text(one) for one in events]))
    values += _given([one.type for one in events])
    values += _given([array_text(one.destinations) for one in entries])
    sent = [
        (place, numbers.of[name], entry.event)
        for place, entry in enumerate(entries, 1)
        for name in entry.destinations
    ]
    # Left out when each event has one destination.
    has_one_each = all(len(entry.destinations) == 1 for entry in entries)
    values.append(None if has_one_each else [place for place, _, _ in sent])
    values += _given([number for _, number, _ in sent])
    values += _given([event.priority for _, _, event in sent])
    values += _given([event.generation for _, _, event in sent])
    values += _given([event.tenant for _, _, event in sent])
    values += _given([event.due for _, _, event in sent])
    values += _given([event.deadline for _, _, event in sent])
    idle = [place for place, entry in enumerate(entries, 1) if not entry.destinations]
    keyed = [
        (one.source, one.idempotency_key, one.id)
        for one in events
        if one.idempotency_key is not None
    ]
    if idle:
        values.append(idle)
    if keyed:  # whoever takes the same keys meanwhile takes them in the same order
        values += columns(sorted(keyed), 3)
    text = (_WITH_BOTH if idle else _WITH_KEYED) if keyed else (_WITH_IDLE if idle else _PLAIN)
    return text, values


def _statement_for_one(
    entry: Entry, numbers: Numbers, *, now: datetime | None, codec: Codec
) -> tuple[str, list[object]]:
    event, (name,) = entry.event, entry.destinations
    values: list[object] = [
        now,
        numbers.version,
        event.id,
        codec.event_text(event),
        event.type,
        name,
    ]
    values += event.due, event.priority, numbers.of[name]
    values += event.generation, event.tenant, event.deadline
    if event.idempotency_key is None:
        return _ONE_PLAIN, values
    values += event.source, event.idempotency_key
    return _ONE_WITH_KEY, values


def _given(column: list[object]) -> tuple[list[object], object]:
    """Return the values of a column as an array, or the one value that all of them have."""
    if not column:
        return [], None
    if column.count(column[0]) == len(column):
        return [], column[0]
    return column, None
