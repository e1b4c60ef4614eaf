"""Publishing: events go into the log in one statement, in steps, or in the caller's transaction."""

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
from redrive.stores.postgres import log
from redrive.stores.postgres.connection import LOST, Link, translated
from redrive.stores.postgres.core import BEGIN, Core, Job
from redrive.stores.postgres.held_keys import HeldKeys, KeyHeldError
from redrive.stores.postgres.joining import adopt
from redrive.stores.postgres.joining.identity import Acquaintances, Identity, read_identity
from redrive.stores.postgres.joining.savepoint import savepoint
from redrive.stores.postgres.pool import CONNECT_SECONDS
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.append import append_statement, is_simple
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
        if not all_or_nothing:
            return await self._held.append(entries, routes_version=routes_version)
        return await self._append(entries, routes_version=routes_version, is_patient=True)

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
            self.facts.numbers = await self._read(lambda link, _: log.read_numbers(link))
        numbers = self.facts.numbers
        if numbers.version != routes_version or not is_simple(entries, numbers):
            return None
        text, values = append_statement(entries, numbers, now=self._given_now)
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
            f"Somebody has published in {self.address.name} with the same key or idempotency key, "
            "and has left that transaction open; nothing was stored. Commit it or roll it back, "
            "and publish again."
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
        link = PostgresSession(caller, self.address.schema)
        async with savepoint(link, self.address):
            if self._acquaintances is not None:
                await self._acquaintances.check(caller, link)
            link.now = await self._now_within(link)
            return await job(link, link.now)

    async def _now_within(self, link: Link) -> datetime:
        if not self._uses_server_clock:
            return self._clock.now()
        return from_micros(await link.value(_NOW))


def _steps(entries: Sequence[Entry], *, routes_version: int, all_or_nothing: bool) -> Job[Append]:
    async def job(link: PostgresSession, now: datetime) -> Append:
        appended = await log.append(
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
