"""What `within=` takes in a kit that keeps its events in memory: any transaction that tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from redrive.errors import TransactionError
from redrive.store import Append, Appended, Entry, RoutesChanged
from redrive.stores.deduplicate import is_refused
from redrive.stores.memory import MemoryStore

__all__ = ["FakeTransaction", "TransactionalMemory", "Unpublished"]


class FakeTransaction:
    """A transaction without a database: `publish(within=...)` takes it where the kit is in memory.

    What was published within it is there when its block ends, and not at all if that fails.

    >>> with FakeTransaction() as transaction:
    ...     transaction.after_commit(lambda: print("committed"))
    committed
    """

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def commit(self) -> None:
        """Publish what was published within it; what comes next is another transaction."""
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def rollback(self) -> None:
        """Forget what was published within it."""
        self._waiting.clear()

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it when the transaction has committed, and never if it has not."""
        self._waiting.append(then)

    def waiting(self) -> Iterable[Callable[[], None]]:
        """Return what waits for the commit."""
        return tuple(self._waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)


class _Joined(Protocol):
    """A transaction that is open, with what waits for its commit."""

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it when the transaction has committed, and never if it has not."""

    def waiting(self) -> Iterable[Callable[[], None]]:
        """Return what waits for the commit, in its order."""


class Unpublished:
    """Entries that are stored when they are called."""

    def __init__(self, store: TransactionalMemory, entries: Sequence[Entry]) -> None:
        self.store = store
        self.entries = entries

    def __call__(self) -> None:
        """Store them, as their transaction has committed."""
        entries, self.entries = self.entries, ()
        self.store.store_now(entries)


class TransactionalMemory(MemoryStore):
    """A store in memory that joins transactions of SQLAlchemy's and Django's, and fake ones.

    Their databases know nothing of it: entries wait here for the commit, and are stored after it.
    """

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        """Store entries, or keep them until the transaction commits."""
        if within is None:
            return await super().append(
                entries, routes_version=routes_version, all_or_nothing=all_or_nothing
            )
        transaction = await _adopted(within)
        before = [
            entry
            for one in transaction.waiting()
            if isinstance(one, Unpublished) and one.store is self
            for entry in one.entries
        ]
        with self._lock:
            if not self._is_current_version(routes_version):
                return RoutesChanged(self._routes())
            self._check_destinations(entries)
            sifted, _ = self._sift([*before, *entries], now=self._clock.now())
            results = sifted[len(before) :]
        if not is_refused(results):
            transaction.after_commit(Unpublished(self, entries))
        return Appended(results)

    def store_now(self, entries: Sequence[Entry]) -> None:
        """Store what was published in a transaction that has committed."""
        with self._lock:
            now = self._clock.now()
            _, fresh = self._sift(entries, now=now)
            self._store_fresh(entries, fresh, now=now)


async def _adopted(within: object) -> _Joined:
    """Return what `within=` got; a library is imported only if the caller has done so."""
    if isinstance(within, FakeTransaction):
        return within
    packages = [cls.__module__.partition(".")[0] for cls in type(within).__mro__]
    if "sqlalchemy" in packages:
        from redrive.stores.postgres.joining import sqlalchemy  # noqa: PLC0415 - see above

        if (found := await sqlalchemy.beneath(within)) is not None:
            return sqlalchemy.Commits(found).begun()
    if "django" in packages:
        from redrive.stores.postgres.joining import django  # noqa: PLC0415 - see above

        if (connection := django.beneath(within)) is not None:
            return django.Commits(django.in_transaction(connection))
    raise TransactionError(
        f"within= got {type(within).__name__}, which does not tell this kit when it commits; pass "
        "a SQLAlchemy or Django connection or a redrive.testing.FakeTransaction, or let the kit "
        'keep its events in a database: Kit(app, store="postgresql:///test").'
    )
