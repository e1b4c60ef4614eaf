"""Projections as the worker has them: a function for each type of event, and what they write to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import msgspec

from redrive.model.delivery import Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome
from redrive.model.pattern import matches
from redrive.model.position import LOG_START, LogPosition
from redrive.policies.capture import capture, timed_out
from redrive.policies.classify import classify
from redrive.policies.terms import Terms
from redrive.store import Effects
from redrive.transports.function import FunctionTransport
from redrive.transports.transactional import carry_effect

__all__ = ["ProjectionTransport", "ReadModel"]


class ReadModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a projection writes to: a connection with an open transaction, in the store's database.

    Leave commit and rollback to Redrive. On PostgreSQL it is one of asyncpg, on SQLite what
    `app.transaction()` gives, and `None` for a store in memory.
    """

    connection: Any


class ProjectionTransport:
    """Applies an event by the first function whose pattern fits its type.

    `types` are what is read for it of the log; with `refuses`, that is everything, and an event
    that no function is for has failed.
    """

    batch = 1

    def __init__(
        self,
        parts: Sequence[tuple[str, FunctionTransport]],
        *,
        terms: Terms,
        effects: Effects | None,
        refuses: bool = False,
        begin: LogPosition | None = LOG_START,
        truncate: Callable[[ReadModel], Awaitable[None]] | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._known: dict[str, FunctionTransport | None] = {}
        self._terms = terms
        self._effects = effects
        self.types = () if refuses else tuple(pattern for pattern, _ in parts)
        self.begin = begin
        self.truncate = None if truncate is None else _on_connection(truncate)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        (leased,) = deliveries
        if self._effects is None:
            return (await self.apply(leased, None),)
        try:
            return (
                await carry_effect(
                    leased,
                    lambda connection: self._attempt(leased, connection),
                    effects=self._effects,
                    at_most=self._terms.timeout,
                ),
            )
        except Exception as error:  # noqa: BLE001 - what the database says against the effect
            return (self.fault(error),)

    async def apply(self, leased: Leased, connection: object) -> Outcome:
        """Apply an event that comes straight from the log, within the time it may take."""
        running = self._attempt(leased, connection).__await__()
        try:
            first = next(running)
        except StopIteration as end:  # it never waited, so that no time-out could have ended it
            outcome: Outcome = end.value
            return outcome
        timeout = self._terms.timeout
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await _Rest(first, running)
        except TimeoutError:
            return Faulted(fault=timed_out(timeout), nature=Nature.TRANSIENT)

    def fault(self, error: BaseException) -> Faulted:
        """Return what it means that the database has refused what was written for an event."""
        terms = self._terms
        verdict = classify(error, terminal=terms.terminal, transient=terms.transient)
        return Faulted(fault=capture(error, rule=verdict.rule), nature=verdict.nature)

    async def _attempt(self, leased: Leased, connection: object) -> Outcome:
        kind = leased.event.type
        if kind not in self._known:
            fitting = (part for pattern, part in self._parts if matches(pattern, kind))
            self._known[kind] = next(fitting, None)
        part = self._known[kind]
        if part is not None:
            return await part.attempt(leased, ReadModel(connection=connection))
        fault = Fault(
            error_class="NoHandler",
            message=f"The projection {leased.destination} has no function for {kind}.",
            rule="unknown types are refused",
        )
        return Faulted(fault=fault, nature=Nature.TERMINAL)


class _Rest:
    """What is left of a call that has begun, and waits for something."""

    def __init__(self, first: object, running: Generator[object, None, Outcome]) -> None:
        self._first = first
        self._running = running

    def __await__(self) -> Generator[object, None, Outcome]:
        try:
            yield self._first
        except BaseException as error:  # noqa: BLE001 - a cancellation goes to where it waits
            waits_for: object = None
            try:
                waits_for = self._running.throw(error)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            return (yield from _Rest(waits_for, self._running).__await__())
        return (yield from self._running)


def _on_connection(
    truncate: Callable[[ReadModel], Awaitable[None]],
) -> Callable[[object], Awaitable[None]]:
    async def empty(connection: object) -> None:
        await truncate(ReadModel(connection=connection))

    return empty
