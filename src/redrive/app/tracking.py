"""The door of tracking: events of application code that are sent past the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from redrive.app.config import Settings
from redrive.app.declaration import BoundToStore, Declaration, Ports
from redrive.app.importing import unforked
from redrive.app.store_factory import import_store, store_name
from redrive.errors import StoreFullError, StoreUnavailableError, TransactionError
from redrive.journal.folder import FileState, JournalPlace, JournalSize, size_of
from redrive.journal.line import PublishedRecord
from redrive.model.duration import Duration
from redrive.model.event import NewEvent, Receipt, Severity
from redrive.observer import Observer
from redrive.pipeline.publish import Preparer, Publisher
from redrive.store import LineSeal, Store

if TYPE_CHECKING:
    from redrive.model.tracked import Tracked, TrackingFigures
    from redrive.tracking.terms import Tracking
    from redrive.tracking.tracker import Tracker
    from redrive.transport import Endpoint

__all__ = ["AppParts", "TrackingDesk", "TrackingDoor", "make_preparer"]


class AppParts(msgspec.Struct, frozen=True, kw_only=True):
    """What tracking has of an app, as it is when it is needed: tests connect apps elsewhere."""

    settings: Settings
    ports: Ports
    declared: Mapping[str, Declaration]
    observer: Observer
    seal: LineSeal | None = None


class TrackingDesk:
    """The tracker of an app, made when it is first needed, and its journal.

    `open_store` gives a store that knows the app's destinations.
    """

    def __init__(
        self,
        terms: Tracking | None,
        *,
        parts: Callable[[], AppParts],
        open_store: Callable[[], Awaitable[Store]],
    ) -> None:
        self._terms = terms
        self._parts = parts
        self._open_store = open_store
        self._tracker: Tracker | None = None
        self._making = Lock()

    @property
    def tracker(self) -> Tracker:
        """The tracker of this process."""
        return self._tracker or self._make_tracker()

    def place(self) -> JournalPlace:
        """Return where the journal of this process is."""
        parts = self._parts()
        return JournalPlace(
            host=parts.ports.host,
            folder=self._folder,
            store=store_name(parts.settings.store),
            keep=parts.settings.keep_journal,
            seal=parts.seal,
        )

    @cached_property
    def _folder(self) -> Path:
        """Where it is from now on: the working directory of a process may change."""
        parts = self._parts()
        return (parts.ports.journal or Path(parts.settings.journal)).absolute()

    def figures(self) -> TrackingFigures | None:
        """Return what became of all that was tracked; nothing if nothing was."""
        return None if self._tracker is None else self._tracker.figures()

    def journal_sizes(self) -> Mapping[FileState, JournalSize]:
        """Return how much there is in the journal's folder."""
        return size_of(self.place().folder)

    def anew(self) -> TrackingDesk:
        """Return the same without a tracker, for an app that is connected elsewhere."""
        return TrackingDesk(self._terms, parts=self._parts, open_store=self._open_store)

    async def publish_or_journal(
        self, event: NewEvent, publisher: Callable[[], Awaitable[Publisher]], within: object
    ) -> Receipt:
        """Publish an event, or have the journal keep it under the same id."""
        if within is not None:
            raise TransactionError(
                "journal=True and within= do not go together: what joins your transaction is "
                "durable when you commit, what is in the journal at once. Leave one of them out."
            )
        parts = self._parts()
        prepared = make_preparer(parts.settings, parts.ports).prepare(event)
        try:
            return await (await publisher()).publish_prepared(event, prepared)
        except (StoreUnavailableError, StoreFullError):
            record = PublishedRecord(prepared.event, prepared.expected_version, prepared.unique)
            await self.tracker.journal(record)
        return Receipt(event_id=prepared.event.id, is_journaled=True)

    async def close(self) -> None:
        """Send what is left, within the limit."""
        if self._tracker is not None:
            await self._tracker.close_async()

    def forget_parent(self) -> None:
        """After a fork: the child has another tracker, with nothing in it."""
        self._making = Lock()
        if self._tracker is not None:
            self._tracker.forget()
            self._tracker = None

    def _make_tracker(self) -> Tracker:
        with unforked():
            from redrive.journal.writer import JournalWriter, check_sync  # noqa: PLC0415 - only who tracks pays
            from redrive.tracking.terms import Tracking  # noqa: PLC0415 - as above
            from redrive.tracking.tracker import Tracker  # noqa: PLC0415 - as above

        with self._making:
            if self._tracker is None:
                parts = self._parts()
                settings, ports, place = parts.settings, parts.ports, self.place()
                import_store(settings)  # here, since its thread may be importing it at a fork
                self._tracker = Tracker(
                    self._terms or Tracking.preset(settings.environment),
                    _Connection(self._parts, self._open_store),
                    JournalWriter(
                        place.folder,
                        clock=ports.clock,
                        host=place.host,
                        store=place.store,
                        sync=check_sync(settings.journal_sync),
                        size=settings.journal_size,
                        keep=place.keep,
                        seal=place.seal,
                    ),
                    clock=ports.clock,
                    ids=ports.ids,
                    rng=ports.rng,
                    executor=ports.executor,
                    observer=parts.observer,
                    redaction=settings.redaction,
                    payload_limit=settings.payload_limit,
                    generation=settings.generation,
                    is_inline=ports.tracks_inline,
                    on_tracked=ports.on_tracked,
                )
            return self._tracker


class TrackingDoor:
    """What an app tracks by; `Redrive` is one."""

    _tracking_desk: TrackingDesk

    def track(
        self,
        event_type: str,
        payload: object = None,
        *,
        severity: Severity | None = None,
        key: str | None = None,
        tenant: str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> Tracked:
        """Send an event soon, past the store; returns at once, from any thread and any loop.

        What sits in the buffer dies with the process; what cannot be sent is kept in the store, or
        in the journal, and goes on from there. Use `publish` for what must not be lost.
        """
        return self._tracking_desk.tracker.track(
            event_type, payload, severity=severity, key=key, tenant=tenant, to=to
        )

    async def flush(self, timeout: Duration = "5s") -> TrackingFigures:  # noqa: ASYNC109 - as asked
        """Wait until all that was tracked so far is sent or kept, for so long at most.

        The figures tell what became of it; what is still `waiting` took too long.
        """
        return await self.tracking.flush(timeout)

    @property
    def tracking(self) -> Tracker:
        """What becomes of all that is tracked: `figures()`, and `flush_blocking` without a loop."""
        return self._tracking_desk.tracker


def make_preparer(settings: Settings, ports: Ports) -> Preparer:
    """Return what makes events of what callers of an app give."""
    return Preparer(
        clock=ports.clock,
        ids=ports.ids,
        payload_limit=settings.payload_limit,
        generation=settings.generation,
    )


class _Connection:
    """What the sender has of an app."""

    def __init__(
        self, parts: Callable[[], AppParts], open_store: Callable[[], Awaitable[Store]]
    ) -> None:
        self._parts = parts
        self._open_store = open_store
        self._store: Store | None = None

    async def open_store(self) -> Store:
        self._store = await self._open_store()
        return self._store

    async def close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    def endpoints(self) -> Mapping[str, Endpoint]:
        parts, store = self._parts(), self._store
        if store is None:
            return {}
        lease = parts.settings.lease
        return {
            name: one.endpoint(parts.ports, store, lease=lease)
            for name, one in parts.declared.items()
            if not isinstance(one.make_transport, BoundToStore)
        }
