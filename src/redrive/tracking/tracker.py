"""The tracker: what application code calls, from any thread and any loop."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

from redrive.clock import Clock, Ids, Rng
from redrive.errors import BufferFullError, JournalError, RedriveError
from redrive.executor import Executor
from redrive.journal.folder import FileState, JournalSize, size_of
from redrive.journal.line import EventRecord, Record
from redrive.journal.writer import JournalWriter
from redrive.model.checks import check_text
from redrive.model.duration import Duration, duration
from redrive.model.event import Event, NewEvent, Severity
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.model.tracked import Tracked, TrackingFigures
from redrive.observer import Observer
from redrive.policies.capture import capture
from redrive.policies.filter import Saved, Saving
from redrive.policies.payload import check_size, encode_payload
from redrive.policies.redact import Redaction
from redrive.tracking.admittance import Admittance
from redrive.tracking.buffer import Buffer
from redrive.tracking.figures import End
from redrive.tracking.item import Item
from redrive.tracking.quiet import is_quiet
from redrive.tracking.sender import Connection, Sender
from redrive.tracking.terms import Tracking

__all__ = ["Tracker", "close_all"]

_log = logging.getLogger("redrive.tracking")
_UNREADABLE = 2_000
_END_MARGIN_SECONDS = 5.0
_AGAIN_SECONDS = 0.01
_LIMITED = Fault(
    error_class="RateLimited",
    message="More was tracked than its rate allows; it was kept without a try.",
    rule="tracking rate",
)


_Given = tuple[Severity | None, str | None, str | None, str | Sequence[str] | None]
"""The severity, key, tenant and destinations that somebody gave."""


class Tracker:
    """Tracks for one app in one process; a fork makes another."""

    def __init__(
        self,
        terms: Tracking,
        connection: Connection,
        journal: JournalWriter,
        *,
        clock: Clock,
        ids: Ids,
        rng: Rng,
        executor: Executor,
        observer: Observer,
        redaction: Redaction,
        payload_limit: int,
        generation: str,
        is_inline: bool = False,
        on_tracked: Callable[[Event[msgspec.Raw]], None] | None = None,
    ) -> None:
        self.terms = terms
        self._connection = connection
        self._journal = journal
        self._clock = clock
        self._new_id = ids.event_id
        self._now = clock.now
        self._rng = rng
        self._executor = executor
        self._observer = observer
        self._redaction = redaction
        self._payload_limit = payload_limit
        self._generation = generation
        self._is_inline = is_inline
        self._on_tracked = on_tracked
        self._decide = terms.filter.ready()
        self._admittance = Admittance(terms, clock=clock, rng=rng)
        self._buffer = Buffer(terms.capacity)
        self._lock = self._buffer.lock
        self._books = self._buffer.books
        self._items = self._buffer.items
        self._capacity = terms.capacity
        defaults = terms.defaults
        self._severity = Severity(defaults.get("severity", Severity.INFO))
        self._tenant: str | None = defaults.get("tenant")
        self._source: str = defaults.get("source", "")
        self._headers: dict[str, str] = dict(defaults.get("headers", {}))
        self._known_types: set[str] = set()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], None] | None = None
        self._is_up = threading.Event()
        self._process = os.getpid()
        _trackers.add(self)

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
        """Take an event, to be sent soon; returns at once, and never waits for anything."""
        try:
            return self._track(event_type, payload, (severity, key, tenant, to))
        except Exception as error:
            if not is_quiet():
                raise
            given = (severity, key, tenant, to)
            return self._keep_failed(error, event_type, payload, given)

    def figures(self) -> TrackingFigures:
        """Return what became of all that was tracked."""
        return self._buffer.figures()

    def journal_sizes(self) -> Mapping[FileState, JournalSize]:
        """Return how much there is in the journal's folder."""
        return size_of(self._journal.folder)

    async def flush(self, timeout: Duration = "5s") -> TrackingFigures:  # noqa: ASYNC109 - as asked
        """Wait until all that was tracked so far is sent or kept, for so long at most."""
        limit = duration(timeout, name="timeout").total_seconds()
        if self._is_inline:
            await self._make_sender().run_until_idle()
            return self.figures()
        self._ensure_running()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await asyncio.wrap_future(self._buffer.await_all())
        return self.figures()

    def flush_blocking(self, timeout: Duration = "5s") -> TrackingFigures:
        """Do as `flush`, for code without an event loop."""
        limit = duration(timeout, name="timeout").total_seconds()
        if self._is_inline:
            asyncio.run(self._make_sender().run_until_idle())
            return self.figures()
        self._ensure_running()
        with suppress(FutureTimeoutError):
            self._buffer.await_all().result(limit)
        return self.figures()

    def close(self, *, is_exit: bool = False) -> None:
        """Send what is left, or write it into the journal, within the limit; then end.

        What is tracked later begins anew. At the exit of the interpreter a thread that has only
        just begun may get no other that it needs, so that the journal has what it was to send.
        """
        limit, thread = self.terms.flush_limit.total_seconds(), self._thread
        if thread is not None and thread.is_alive() and not is_exit:
            self._is_up.wait(limit)
        stop = self._stop
        if thread is not None and thread.is_alive() and stop is not None:
            stop()
            thread.join(limit + _END_MARGIN_SECONDS)
            if thread.is_alive():
                _log.error("The thread that sends tracked events does not end; it is left behind.")
        self._write_rest()

    async def close_async(self) -> None:
        """Do as `close`, without holding up the event loop."""
        if self._is_inline:
            await self.flush()
            return
        if self._thread is not None or self._buffer.has_more:
            await asyncio.to_thread(self.close)

    async def journal(self, record: Record) -> None:
        """Write a record into the journal, durable on return, and see that it is drained."""
        await self._executor.submit(lambda: self._journal.append([record]))
        self._ensure_running()

    @property
    def is_within(self) -> bool:
        """Whether the thread that asks is within `track`, as a signal handler may be."""
        owned: bool = self._lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - as `Condition` asks
        return owned

    def forget(self) -> None:
        """After a fork: leave everything to the parent."""
        self._journal.forget_parent()

    def _track(self, event_type: str, payload: object, given: _Given) -> Tracked:
        severity, key, tenant, to = given
        if severity is None:
            severity = self._severity
        if tenant is None:
            tenant = self._tenant
        names: tuple[str, ...] = ()
        # What was seen before is known to be right.
        if (
            event_type not in self._known_types
            or key is not None
            or tenant is not None
            or to is not None
            or type(severity) is not Severity
        ):
            severity, names = self._check(event_type, severity, key, tenant, to)
        if self.terms.enrich is not None:
            payload = self._enriched(event_type, payload)
        encoded = encode_payload(payload)
        if len(encoded) > self._payload_limit:
            check_size(encoded, self._payload_limit, what=event_type)
        item = Item(
            0,
            self._new_id(),
            event_type,
            encoded,
            self._now(),
            severity,
            key,
            tenant,
            names,
            self._source,
            self._headers,
            self._generation,
        )
        if self._on_tracked is not None:
            self._on_tracked(item.event())
        return self._take(item)

    def _take(self, item: Item) -> Tracked:
        """Put an event into the buffer, or say why not."""
        with self._lock:
            books = self._books
            books.tracked += 1
            item.number = books.tracked
            if item.reason is None:
                refusal = self._admittance.refusal(item.type, item.severity, item.key, item.tenant)
                if refusal and self._is_kept_out(item, refusal):
                    books.end(End.DROPPED, why=refusal)
                    return Tracked(item.id, refusal)
            if len(self._items) >= self._capacity:
                if self.terms.on_full == "raise" and is_quiet():
                    return self._keep_without_room(item)
                if not self._make_room():
                    return Tracked(item.id, "full")
            self._items.append(item)
            if self._buffer.is_asleep:
                self._rouse()
        return Tracked(item.id)

    def _is_kept_out(self, item: Item, refusal: str) -> bool:
        """Tell whether it is dropped; if not, it becomes a dead letter."""
        if refusal != "rate_limited":
            return True
        self._books.limited += 1
        if not self._is_worth(item, "rate_limited"):
            return True
        item.reason, item.fault = FailureReason.RATE_LIMITED, _LIMITED
        return False

    def _is_worth(self, item: Item, reason: str) -> bool:
        saved = self._decide(
            Saving(
                reason=reason,
                type=item.type,
                severity=item.severity,
                key=item.key,
                tenant=item.tenant,
            )
        )
        self._books.doubled += saved is Saved.DROP_TWICE
        return saved is Saved.KEEP

    def _keep_without_room(self, item: Item) -> Tracked:
        """Have the journal keep what a job tracks into a full buffer, as a dead letter."""
        item.reason = FailureReason.TRACKING_FAILED
        item.fault = capture(BufferFullError(_full(self._capacity)), rule="tracking")
        is_kept = self._spill(item)
        if is_kept and self._buffer.is_asleep:
            self._rouse()
        return Tracked(item.id, "" if is_kept else "full")

    def _make_room(self) -> bool:
        """Find room in a full buffer; tells whether there is some now.

        What is spilled is the oldest, so that nothing in the journal is newer than what is sent.
        """
        match self.terms.on_full:
            case "drop_oldest":
                self._items.popleft()
                self._books.end(End.DROPPED, why="full")
                return True
            case "raise":
                self._books.end(End.DROPPED, why="full")
                raise BufferFullError(_full(self._capacity))
            case _:
                if self._spill(self._items[0]):
                    self._items.popleft()
                    return True
                return False

    def _spill(self, item: Item) -> bool:
        """Have an event written into the journal; not if that is behind as well."""
        overflow = self._buffer.overflow
        if len(overflow) < self._capacity:
            overflow.append(item)
            return True
        self._books.end(End.DROPPED, why="full")
        return False

    def _rouse(self) -> None:
        if self._buffer.is_attended:
            self._buffer.rouse()
        else:
            self._ensure_running()

    def _check(
        self,
        event_type: str,
        severity: Severity,
        key: str | None,
        tenant: str | None,
        to: str | Sequence[str] | None,
    ) -> tuple[Severity, tuple[str, ...]]:
        if event_type in self._known_types and to is None and type(severity) is Severity:
            for name, text in (("key", key), ("tenant", tenant)):
                if text is not None:
                    check_text(name, text)
            return severity, ()
        new = NewEvent(type=event_type, key=key, tenant=tenant, to=to, severity=severity)
        if len(self._known_types) < 10_000:  # noqa: PLR2004 - somebody puts ids into types
            self._known_types.add(event_type)
        return Severity(severity), tuple(new.to or ())

    def _enriched(self, event_type: str, payload: object) -> Any:  # noqa: ANN401 - as payloads are
        assert self.terms.enrich is not None  # noqa: S101 - the caller has looked
        return self.terms.enrich(event_type, payload)

    def _keep_failed(
        self, error: Exception, event_type: str, payload: object, given: _Given
    ) -> Tracked:
        """Keep what could not be tracked as a dead letter; never raises."""
        severity, key, tenant, _ = given
        item = Item(0, self._new_id(), "tracking.failed", b"null", self._now(), self._severity)
        with suppress(Exception):
            self._check(event_type, severity or self._severity, key, tenant, None)
            item.type, item.severity = event_type, Severity(severity or self._severity)
            item.key, item.tenant = key, tenant or self._tenant
        item.source, item.headers, item.generation = self._source, self._headers, self._generation
        item.payload = self._shown(payload)
        item.reason = FailureReason.TRACKING_FAILED
        item.fault = capture(error, rule="tracking")
        try:
            with self._lock:
                if not self._is_worth(item, "tracking_failed"):
                    self._books.tracked += 1
                    self._books.end(End.DROPPED, why="filtered")
                    return Tracked(item.id, "filtered")
            return self._take(item)
        except Exception:  # noqa: BLE001 - nothing of this may reach a job
            _log.exception("A tracked event of type %r is lost.", item.type)
            return Tracked(item.id, "tracking_failed")

    def _shown(self, payload: object) -> bytes:
        """Return what can be kept of a payload that could not be tracked.

        What a hook was to remove fields from is not kept at all.
        """
        if self.terms.enrich is None:
            try:
                encoded = encode_payload(payload)
                if len(encoded) <= self._payload_limit:
                    return encoded
            except RedriveError:
                with suppress(Exception):
                    return encode_payload({"unreadable": repr(payload)[:_UNREADABLE]})
        return b'{"unreadable":"It was left out, because it could not be tracked."}'

    def _make_sender(self) -> Sender:
        return Sender(
            self._buffer,
            self._connection,
            self._journal,
            terms=self.terms,
            clock=self._clock,
            rng=self._rng,
            executor=self._executor,
            observer=self._observer,
            redaction=self._redaction,
            decide=self._decide,
        )

    def _ensure_running(self) -> None:
        """Start the thread that sends, unless it runs; one that died is replaced."""
        if self._is_inline:
            return
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self._buffer.reclaim()
            self._buffer.is_asleep = False
            self._is_up = threading.Event()
            thread = threading.Thread(target=self._run, name="redrive-tracking", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # none can be had: what is in the buffer is spilled at the end
                return
            self._thread = thread
        _watch_signals()

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except Exception:  # noqa: BLE001 - whatever it is, what was on its way is taken back
            _log.exception("The thread that sends tracked events has failed; it is replaced.")
        self._is_up.set()
        with self._lock:
            self._stop = None
            self._buffer.reclaim()
            # Whoever tracks next finds that nobody would be woken, and starts another.
            self._buffer.detach()

    async def _send(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def stop_soon() -> None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(stop.set)

        self._stop = stop_soon
        self._is_up.set()
        await self._make_sender().run(stop)

    def _write_rest(self) -> None:
        """Write into the journal what nobody sends any more."""
        while True:
            items, overflow = self._buffer.take(self._capacity)
            if not (rest := [*items, *overflow]):
                return
            records = [
                EventRecord(event=one.event(), reason=one.reason, fault=one.fault) for one in rest
            ]
            try:
                self._journal.append(records)
                self._journal.let_go()
            except JournalError as error:
                _log.error("%d tracked events are lost: %s", len(rest), error)
                self._buffer.end([(one.number, End.DROPPED, "journal") for one in rest])
            else:
                self._buffer.end([(one.number, End.SPILLED, "") for one in rest])


def _full(capacity: int) -> str:
    return (
        f"{capacity:,} tracked events wait to be sent, as many as there is room for, so this one "
        'was not taken. Track less, or let Tracking have more capacity, or on_full="spill".'
    )


_trackers: weakref.WeakSet[Tracker] = weakref.WeakSet()
_watched: list[int] = []


def close_all(*, is_exit: bool = False) -> None:
    """Send what every app of this process has tracked, or write it into the journal."""
    for one in list(_trackers):
        if one._process == os.getpid():  # noqa: SLF001 - this module's own
            one.close(is_exit=is_exit)


atexit.register(close_all, is_exit=True)


def _watch_signals() -> None:
    """See to it that SIGTERM lets the process end in order, where nobody else does."""
    if _watched or threading.current_thread() is not threading.main_thread():
        return
    _watched.append(os.getpid())
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are
        # Within `track` this thread holds what the sender needs to end: it comes again in a moment.
        if any(one.is_within for one in list(_trackers)):
            again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        close_all()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
