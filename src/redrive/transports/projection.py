"""Projections as the worker has them: a function for each type of event, and what they write to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import takewhile
from types import coroutine
from typing import TYPE_CHECKING, Any, Self

import msgspec

from redrive.clock import Clock
from redrive.errors import TransactionError, UsageError
from redrive.model.delivery import Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.model.pattern import matches
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import table_of
from redrive.policies.capture import capture, timed_out
from redrive.policies.classify import classify
from redrive.policies.terms import Terms
from redrive.store import Effects, Followed
from redrive.transports.function import FunctionTransport
from redrive.transports.sessions import begin_session
from redrive.transports.transactional import carry_effect

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from redrive.transports.sessions.borrowed import Borrowed

__all__ = ["ProjectionTransport", "ReadModel", "is_being_cancelled"]

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
        self._watch: _Watch | None = None
        self._parts = tuple(parts)
        self._known: dict[str, FunctionTransport | None] = {}
        self._terms = terms
        self._seconds = terms.timeout.total_seconds()
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
            return (await self.apply(deliveries, None),)
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

    async def apply(
        self, deliveries: Sequence[Leased], connection: object, *, within: float = math.inf
    ) -> Outcome:
        """Apply events that go together within the time of a call, and within so many seconds."""
        running = self._attempt(deliveries, connection).__await__()
        try:
            first = next(running)
        except StopIteration as end:  # it never waited, so that no time-out could have ended it
            outcome: Outcome = end.value
            return outcome
        except BaseException as error:  # noqa: BLE001 - as below
            return self._broken_off(error)
        try:
            with self._watching().over(min(self._seconds, within)):
                return await _rest(first, running)
        except TimeoutError:
            return Faulted(fault=timed_out(self._terms.timeout), nature=Nature.TRANSIENT)
        except BaseException as error:  # noqa: BLE001 - a function may raise any of its own
            return self._broken_off(error)

    def _broken_off(self, error: BaseException) -> Outcome:
        """Return what it means that a call was broken off, unless whoever runs it was."""
        if isinstance(error, GeneratorExit) or is_being_cancelled():
            raise error
        return self.fault(error)

    def _watching(self) -> _Watch:
        """Return what watches over the running task: the one of the last call, or a new one."""
        watch, task = self._watch, asyncio.current_task()
        if watch is None or watch.task is not task:
            if watch is not None:
                watch.leave()
            if task is None:
                raise RuntimeError("an event is applied within a task")
            watch = self._watch = _Watch(task)
        return watch

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
        for some in self._transport.together(readable):
            if self._now() - begun > self._within:
                break
            left = self._until - self._now()
            outcome = await self._transport.apply(some, connection, within=left)
            if not isinstance(outcome, Succeeded):  # of several, look in the first half of them
                return Followed(place + len(some) // 2, is_clean=False)
            place += len(some)
        return Followed(place)


def is_being_cancelled() -> bool:
    """Tell whether the running task is to end, rather than something that it has waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Watch:
    """Ends calls of a task that take too long, as `asyncio.timeout` does.

    Calls follow each other by the thousand, so they share a timer: one that goes off while a later
    call runs is set anew for that.
    """

    __slots__ = ("_before", "_due", "_is_late", "_is_left", "_loop", "_timer", "_until", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self._loop = task.get_loop()
        self._until = self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = self._is_left = False

    def over(self, seconds: float) -> Self:
        """Watch over a call."""
        self._until = until = self._loop.time() + seconds
        self._before = self.task.cancelling()
        if self._due > until:
            self._set(until)
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._until = math.inf
        if self._is_left:
            self.leave()
        if not self._is_late:
            return
        self._is_late = False
        if self.task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def leave(self) -> None:
        """Watch over no other call than the one that is under way."""
        self._is_left = True
        if self._until == math.inf and self._timer is not None:
            self._timer.cancel()

    def _set(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = until
        self._timer = self._loop.call_at(until, self._look)

    def _look(self) -> None:
        self._timer, self._due = None, math.inf
        if self._until == math.inf:
            return
        if self._loop.time() < self._until:
            self._set(self._until)
            return
        self._is_late = True
        self.task.cancel()


@coroutine
def _rest(
    first: object, running: Generator[object, None, Outcome]
) -> Generator[object, None, Outcome]:
    """Return what comes of a call that has begun, and waits for something."""
    try:
        yield first
    except BaseException as error:  # noqa: BLE001 - a cancellation goes to where it waits
        waits_for: object = None
        try:
            waits_for = running.throw(error)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        return (yield from _rest(waits_for, running))
    return (yield from running)
