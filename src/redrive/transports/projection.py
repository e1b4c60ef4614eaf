"""Projections as the worker has them: a function for each type of event, and what they write to."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.clock import Clock
from redrive.errors import TransactionError, UsageError
from redrive.model.delivery import Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.model.pattern import matches
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import table_of
from redrive.policies.capture import capture
from redrive.policies.classify import classify
from redrive.policies.terms import Terms
from redrive.store import Effects, Followed
from redrive.transports.calls import TimedCalls
from redrive.transports.function import FunctionTransport
from redrive.transports.sessions import begin_session
from redrive.transports.transactional import carry_effect

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from redrive.transports.sessions.borrowed import Borrowed

__all__ = ["ProjectionTransport", "ReadModel"]

_ENDED = (
    "The function has ended the transaction that it was handed, so that nothing could be committed "
    "together with its checkpoint; leave commit and rollback to Redrive."
)
_CUT_OFF = 4
"""A follower is cut off after so many times what all of them should take: it goes alone then."""


class ReadModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a projection writes to: a connection with an open transaction, in the store's database.

    Leave commit and rollback to Redrive. On PostgreSQL it is one of asyncpg, on SQLite what
    `app.transaction()` gives, and `None` for a store in memory.
    """

    connection: Any
    version: int = 1
    tables: tuple[str, ...] = ()
    borrowed: Borrowed | None = None
    """What `session` has made."""

    @property
    def session(self) -> AsyncSession:
        """A session of SQLAlchemy in the same transaction, for this call of the function.

        What was added to it is written when the function returns.
        """
        borrowed = self.borrowed
        if borrowed is None:
            borrowed = begin_session(self.connection)
            msgspec.structs.force_setattr(self, "borrowed", borrowed)
        return borrowed.session

    def table(self, name: str) -> str:
        """Return the name of a table as this version has it; readers use the plain one.

        >>> ReadModel(connection=None, version=2, tables=("orders",)).table("orders")
        'orders_v2'
        """
        if name not in self.tables:
            raise UsageError(
                f"The projection has no table {name!r}; name it with tables= in @app.projection, "
                "so that readers get it when versions are swapped."
            )
        return table_of(name, self.version)


_Hook = Callable[[ReadModel], Awaitable[None]]


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
        version: int = 1,
        tables: tuple[str, ...] = (),
        partitions: int = 1,
        truncate: _Hook | None = None,
        create: _Hook | None = None,
        clock: Clock,
        long_seconds: float,
    ) -> None:
        self._clock = clock
        self._long_seconds = long_seconds
        self._parts = tuple(parts)
        self._known: dict[str, FunctionTransport | None] = {}
        self._terms = terms
        self._effects = effects
        self.types = () if refuses else tuple(pattern for pattern, _ in parts)
        self.begin = begin
        self.version = version
        self.tables = tables
        self.partitions = partitions
        self.truncate = self._on_connection(truncate)
        self.create = self._on_connection(create)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        (leased,) = deliveries
        if self._effects is None:
            with self.calls(None) as calls:
                return (await calls.apply(deliveries),)
        try:
            return (
                await carry_effect(
                    leased,
                    lambda connection: self._attempt(deliveries, connection),
                    effects=self._effects,
                    at_most=self._terms.timeout,
                    follow=_Follower(self, within=self._long_seconds, clock=self._clock),
                ),
            )
        except Exception as error:  # noqa: BLE001 - what the database says against the effect
            return (self.fault(error),)

    def together(self, deliveries: Sequence[Leased]) -> Sequence[Sequence[Leased]]:
        """Divide events, in their order, into what is applied at once.

        Those that follow each other go together if they are for one function that takes many.
        """
        found: list[list[Leased]] = []
        before: FunctionTransport | None = None
        for one in deliveries:
            part = self._part_for(one.event.type)
            if part is not None and part is before and part.takes_batch:
                found[-1].append(one)
            else:
                found.append([one])
            before = part
        return found

    def calls(self, connection: object) -> TimedCalls:
        return TimedCalls(self._attempt, connection, timeout=self._terms.timeout, fault=self.fault)

    def fault(self, error: BaseException) -> Faulted:
        """Return what it means that the database has refused what was written for an event."""
        terms = self._terms
        verdict = classify(error, terminal=terms.terminal, transient=terms.transient)
        return Faulted(fault=capture(error, rule=verdict.rule), nature=verdict.nature)

    async def _attempt(self, deliveries: Sequence[Leased], connection: object) -> Outcome:
        first = deliveries[0]
        part = self._part_for(first.event.type)
        model = self._model(connection)
        if part is not None:
            try:
                outcome = await (
                    part.attempt_all(deliveries, model)
                    if part.takes_batch
                    else part.attempt(first, model)
                )
                if model.borrowed is not None and isinstance(outcome, Succeeded):
                    await model.borrowed.finish()
            except Exception as error:  # noqa: BLE001 - what a session writes may be refused
                outcome = self.fault(error)
            finally:
                if model.borrowed is not None:
                    model.borrowed.leave()
            # What came after it would be written past the transaction, and never be undone.
            is_done = isinstance(outcome, Succeeded) and connection is not None
            if is_done and not model.connection.is_in_transaction():
                return self.fault(TransactionError(_ENDED))
            return outcome
        fault = Fault(
            error_class="NoHandler",
            message=f"The projection {first.destination} has no function for {first.event.type}.",
            rule="unknown types are refused",
        )
        return Faulted(fault=fault, nature=Nature.TERMINAL)

    def _model(self, connection: object) -> ReadModel:
        return ReadModel(connection=connection, version=self.version, tables=self.tables)

    def _on_connection(self, hook: _Hook | None) -> Callable[[object], Awaitable[None]] | None:
        if hook is None:
            return None

        async def run(connection: object) -> None:
            model = self._model(connection)
            try:
                await hook(model)
                if model.borrowed is not None:
                    await model.borrowed.finish()
            finally:
                if model.borrowed is not None:
                    model.borrowed.leave()

        return run

    def _part_for(self, kind: str) -> FunctionTransport | None:
        try:
            return self._known[kind]
        except KeyError:
            fitting = (part for pattern, part in self._parts if matches(pattern, kind))
            part = self._known[kind] = next(fitting, None)
            return part


class _Follower:
    """Applies what stands behind an event in its lane, as long as nobody waits long for it."""

    def __init__(self, transport: ProjectionTransport, *, within: float, clock: Clock) -> None:
        self._transport = transport
        self._within = within
        self._now = clock.monotonic
        self._until = math.inf

    async def __call__(self, connection: object, followers: Sequence[Leased]) -> Followed:
        begun = self._now()
        self._until = min(self._until, begun + self._within * _CUT_OFF)
        place = 0
        readable = list(takewhile(lambda one: not one.unreadable, followers))
        with self._transport.calls(connection) as calls:
            for some in self._transport.together(readable):
                if self._now() - begun > self._within:
                    break
                outcome = await calls.apply(some, within=self._until - self._now())
                if not isinstance(outcome, Succeeded):  # of several, look in the first half of them
                    return Followed(place + len(some) // 2, is_clean=False)
                place += len(some)
        return Followed(place)
