"""Storing: makes the stores that an app's settings name."""

from __future__ import annotations

from redrive.clock import Clock
from redrive.config import Settings, parse_store
from redrive.observer import Observer
from redrive.store import Store

__all__ = ["StoreMaker"]


class StoreMaker:
    """Makes an app's stores, one for each event loop; one in memory is made once and shared."""

    def __init__(self, settings: Settings, *, clock: Clock, observer: Observer) -> None:
        self._settings = settings
        self._address = parse_store(settings.store)
        self._clock = clock
        self._observer = observer
        self._memory: Store | None = None

    def make(self) -> Store:
        """Return a store that is still to be opened."""
        address, history = self._address, self._settings.history
        if address.scheme == "postgresql":
            return self._postgres()
        if address.path is not None:
            from redrive.stores.sqlite import SqliteStore  # noqa: PLC0415 - only who uses it pays

            return SqliteStore(address.path, clock=self._clock, history=history)
        if self._memory is None:
            from redrive.stores.memory import MemoryStore  # noqa: PLC0415 - only who uses it pays

            self._memory = MemoryStore(self._clock, history)
        return self._memory

    def forget_parent(self) -> None:
        """After a fork: the file is still open, and locked, in the parent."""
        path = self._address.path
        if path is not None:
            from redrive.stores.sqlite.forking import disown  # noqa: PLC0415 - only SQLite pays

            disown(path)

    def _postgres(self) -> Store:
        from redrive.stores.postgres import PostgresStore  # noqa: PLC0415 - only who uses it pays

        return PostgresStore(
            self._settings.store,
            clock=self._clock,
            history=self._settings.history,
            observer=self._observer,
        )
