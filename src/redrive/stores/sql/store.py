"""How the methods of a store become transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from redrive.stores.sealed import Codec
from redrive.stores.sql.session import Either, Session

__all__ = ["PRESENT", "Job", "SqlStore", "reading", "writing"]

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="SqlStore")
Job = Callable[[Session, datetime], Awaitable[T]]
"""What runs in a transaction, and is told the present."""

PRESENT = "(SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS present"
"""The present as a table, for a statement of `SqlStore._query`."""


class SqlStore(ABC):
    """An open SQL database; the roles of the store contract are written against this."""

    codec: Codec
    """Writes and reads what carries payloads."""

    _history: int

    @abstractmethod
    async def _read(self, job: Job[T], *, is_prompt: bool = False, is_wide: bool = False) -> T:
        """Run a job that only looks, on one consistent view.

        One that is wide looks at the whole store, and what is looked for meanwhile does not wait.
        """

    @abstractmethod
    async def _write(self, job: Job[T], *, notifies: bool = False, is_prompt: bool = False) -> T:
        """Run a job in a transaction; it is committed when this returns.

        If it notifies, workers that wait are told that there may be work. A job may be run again if
        another transaction stood in its way. One that is prompt gives up before leases run out.
        """

    @abstractmethod
    def _notify(self) -> None:
        """Tell workers that wait that there may be work."""

    @abstractmethod
    def _look_anew(self) -> None:
        """Forget that there may be work, because somebody is about to look."""

    @abstractmethod
    async def _idle(self, duty: str) -> datetime | None:
        """Return the present if it is known, without looking, that a duty has nothing to do."""

    async def _query(
        self, statement: str | Either, *values: object, is_prompt: bool = False
    ) -> list[Any]:
        """Run one statement that only looks, and takes the present first."""
        return await self._read(
            lambda session, now: session.fetch(statement, now, *values), is_prompt=is_prompt
        )


def reading(
    method: Callable[Concatenate[S, Session, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run a method in a transaction that only looks; its session is not the caller's to give."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda session, _: method(self, session, *args, **kwargs))

    return run


def surveying(
    method: Callable[Concatenate[S, Session, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run a method that looks at the whole store, and keep nothing else waiting for it."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(
            lambda session, _: method(self, session, *args, **kwargs), is_wide=True
        )

    return run


def writing(
    *, notifies: bool = False, is_prompt: bool = False
) -> Callable[
    [Callable[Concatenate[S, Session, P], Awaitable[T]]],
    Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
]:
    """Run a method in a transaction of its own, which is committed when it returns."""

    def decorate(
        method: Callable[Concatenate[S, Session, P], Awaitable[T]],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
        @wraps(method)
        async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._write(
                lambda session, _: method(self, session, *args, **kwargs),
                notifies=notifies,
                is_prompt=is_prompt,
            )

        return run

    return decorate
