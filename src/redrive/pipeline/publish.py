"""Publish: events in, receipts out, durable in between; concurrent calls share a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from redrive.clock import Clock, Ids
from redrive.conditions.routing import recipients
from redrive.errors import (
    ConfigurationError,
    IdempotencyConflictError,
    StoreError,
    UsageError,
    VersionConflictError,
)
from redrive.model.destination import Routes
from redrive.model.duration import duration
from redrive.model.event import (
    Event,
    EventAttributes,
    EventId,
    NewEvent,
    Receipt,
    Severity,
    new_event,
)
from redrive.model.rule import RuleRoute
from redrive.observer import EventSkipped, Observer, Published, Written
from redrive.policies.payload import check_size, encode_payload, encode_payloads
from redrive.store import (
    Append,
    AppendResult,
    Committing,
    Entry,
    EventLog,
    Later,
    RoutesChanged,
    Unique,
    VersionConflict,
    open_transaction,
    refuse_in_transaction,
)

__all__ = ["Prepared", "Preparer", "Publisher"]

_MOST_PER_COMMIT = 1_000
_NO_VERSION = -1
"""Routes never have it: whoever publishes by it is told the current ones, and stores nothing."""

T = TypeVar("T")


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """An event to be stored, the version its key is expected to have, and if it is to be unique."""

    event: Event[msgspec.Raw]
    expected_version: int | None
    unique: Unique | None


Write = Callable[[Sequence[Entry], int], Awaitable[Append | None]]
"""Stores entries that were routed by a version of the routes, with something else, or nothing."""

_Waiting = tuple[Prepared, Later]
"""An event to be stored with the next commit, and who waits for it."""


class Preparer:
    """Makes events to be stored of what callers give."""

    def __init__(self, *, clock: Clock, ids: Ids, payload_limit: int, generation: str) -> None:
        self._clock = clock
        self._ids = ids
        self._payload_limit = payload_limit
        self._generation = generation

    def new_event(self, event_type: str, payload: object, attributes: EventAttributes) -> NewEvent:
        """Return an event that is still to be published, checked."""
        return new_event(event_type, payload, attributes, now=self._clock.now())

    def prepare(self, new: NewEvent) -> Prepared:
        """Return an event as it would be stored, checked; nothing is stored."""
        return self._prepare(new, now=self._clock.now())

    def prepare_all(self, events: Sequence[NewEvent]) -> list[Prepared]:
        """Do the same for many, at one time; an error says for which of them."""
        now = self._clock.now()
        payloads = encode_payloads([one.payload for one in events])
        if payloads is None or any(len(one) > self._payload_limit for one in payloads):
            return _each(partial(self._prepare, now=now), events)
        made = zip(events, payloads, strict=True)
        return [self._prepared(new, payload, now=now) for new, payload in made]

    def _prepare(self, new: NewEvent, *, now: datetime) -> Prepared:
        payload = encode_payload(new.payload)
        check_size(payload, self._payload_limit, what=new.type)
        return self._prepared(new, payload, now=now)

    def _prepared(self, new: NewEvent, payload: bytes, *, now: datetime) -> Prepared:
        event = Event(
            id=EventId(self._ids.event_id()),
            type=new.type,
            payload=msgspec.Raw(payload),
            published_at=now,
            occurred_at=new.occurred_at or now,
            key=new.key,
            tenant=new.tenant,
            source=new.source,
            generation=new.generation or self._generation,
        )
        if _says_more(new):  # an argument that is as if left out costs as much as another
            event = msgspec.structs.replace(
                event,
                idempotency_key=new.idempotency_key,
                headers=new.headers,
                severity=new.severity,
                priority=new.priority,
                deadline=new.deadline,
                due=new.due,
                to=() if new.to is None else tuple(new.to),
            )
        unique = None
        if new.unique_for is not None:
            unique = Unique(duration(new.unique_for), new.unique_by)
        return Prepared(event, new.expected_version, unique)


class Publisher:
    """Publishes on one event loop; calls that come while one commits go together in the next."""

    def __init__(self, store: EventLog, *, preparer: Preparer, observer: Observer) -> None:
        self._store = store
        self._preparer = preparer
        self._observer = observer
        self._routes = Routes(0, ())
        self._waiting: list[_Waiting] = []
        self._is_busy = False
        self._is_alone = True
        self._under_way: set[asyncio.Task[None]] = set()

    def new_event(self, event_type: str, payload: object, attributes: EventAttributes) -> NewEvent:
        """Return an event that is still to be published, checked."""
        return self._preparer.new_event(event_type, payload, attributes)

    async def publish(self, event: NewEvent, *, within: object = None) -> Receipt:
        """Publish one event; returns when it is durable, or has joined the transaction."""
        return await self.publish_prepared(event, self._preparer.prepare(event), within=within)

    async def publish_prepared(
        self, event: NewEvent, prepared: Prepared, *, within: object = None
    ) -> Receipt:
        """Publish an event under the id that it was given before."""
        _refuse_bypass(within)
        if within is not None:
            (result,) = await self._append([prepared], all_or_nothing=True, within=within)
            return self._receipt(event, await _ready(result))
        if self._is_alone and not self._is_busy:
            return self._receipt(event, await self._publish_alone(prepared))
        future: Later = asyncio.get_running_loop().create_future()
        self._enlist([(prepared, future)])
        return self._receipt(event, await future)

    async def publish_many(
        self, events: Sequence[NewEvent], *, within: object = None
    ) -> Sequence[Receipt]:
        """Publish all of the events, or none of them."""
        _refuse_bypass(within)
        events = _listed(events)
        prepared = self._preparer.prepare_all(events)
        if not prepared:
            return []
        results = await self._append(prepared, all_or_nothing=True, within=within)
        receipts = [one for one in results if isinstance(one, Receipt)]
        if len(receipts) == len(results):  # each says all it has to
            return receipts
        answers = iter([await _ready(one) for one in results])
        return _each(lambda event: self._receipt(event, next(answers)), events)

    async def publish_by(
        self, events: Sequence[NewEvent], write: Write
    ) -> Sequence[AppendResult | Later] | None:
        """Publish events together with what else is written; `None` if they are not wanted now."""
        prepared = self._preparer.prepare_all(events)
        routes = self._routes
        while True:
            appended = await write(
                [Entry(one.event, recipients(routes, one.event)) for one in prepared],
                routes.version,
            )
            if not isinstance(appended, RoutesChanged):
                break
            self._routes = routes = appended.routes
        if appended is None:
            return None
        if stored := self._stored(prepared, appended.results):
            self._tell(stored, None)
        return appended.results

    async def _publish_alone(self, prepared: Prepared) -> AppendResult:
        """Store an event when nothing else is under way; those that come meanwhile are next."""
        self._is_busy = True
        try:
            (result,) = await self._append([prepared], all_or_nothing=False, within=None)
        finally:
            self._is_busy = False
            self._enlist([])
        return await _ready(result)

    def _enlist(self, waiting: Sequence[_Waiting]) -> None:
        """Have events stored with the next commit."""
        self._waiting += waiting
        if self._waiting and not self._is_busy:
            self._is_busy = True
            task = asyncio.create_task(self._commit())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _commit(self) -> None:
        """Store what waits, batch after batch, until nothing does."""
        try:
            while batch := self._waiting[:_MOST_PER_COMMIT]:
                del self._waiting[:_MOST_PER_COMMIT]
                # Who publishes one event after the other gains nothing by waiting for company.
                self._is_alone = len(batch) == 1
                await self._store_batch(batch)
        finally:
            self._is_busy = False

    async def _store_batch(self, batch: Sequence[_Waiting]) -> None:
        """Store events together, and tell each caller."""
        try:
            results = await self._append(
                [event for event, _ in batch], all_or_nothing=False, within=None
            )
        except Exception as error:  # noqa: BLE001 - every caller of the batch hears of it
            if len(batch) > 1 and not isinstance(error, StoreError):
                for one in batch:  # one of them cannot be stored: it must fail alone
                    await self._store_batch([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if isinstance(result, asyncio.Future):
                    result.add_done_callback(partial(_hand_on, future))
                elif not future.done():
                    future.set_result(result)

    async def _append(
        self, events: Sequence[Prepared], *, all_or_nothing: bool, within: object
    ) -> Sequence[AppendResult | Later]:
        routes, is_current = self._routes, False
        while True:
            skipped: list[EventSkipped] = []
            note = partial(_note, skipped)
            wrong = _first_misaddressed(events, routes)
            if wrong is not None and is_current:
                raise wrong
            appended = await self._store.append(
                [
                    Entry(
                        one.event,
                        recipients(routes, one.event, note),
                        one.expected_version,
                        one.unique,
                    )
                    for one in events
                ],
                routes_version=routes.version if wrong is None else _NO_VERSION,
                all_or_nothing=all_or_nothing,
                within=within,
            )
            if not isinstance(appended, RoutesChanged):
                break
            routes, is_current = appended.routes, True
        if routes.version > self._routes.version:  # a transaction may see older ones than others
            self._routes = routes
        for fact in skipped:
            self._observer.notice(fact)
        stored = self._stored(events, appended.results)
        if stored and (len(stored) == len(events) or not all_or_nothing):
            self._tell(stored, within)
        if len(stored) < len(events):
            for one, result in zip(events, appended.results, strict=True):
                if isinstance(result, asyncio.Future):
                    result.add_done_callback(partial(self._tell_later, one.event.type))
        return appended.results

    def _tell_later(self, event_type: str, result: Later) -> None:
        if result.cancelled() or result.exception() is not None:
            return
        if isinstance(receipt := result.result(), Receipt):
            self._tell(((event_type, self._with_readers(event_type, receipt)),), None)

    def _tell(self, stored: tuple[tuple[str, Receipt], ...], within: object) -> None:
        """Tell of what is stored when it is; of what may still be rolled back, only so much."""
        published = partial(self._observer.notice, Published(events=stored))
        if within is None:
            published()
        elif isinstance(within, Committing):
            within.after_commit(published)
        else:
            self._observer.notice(Written(events=stored))

    def _stored(
        self, events: Sequence[Prepared], results: Sequence[AppendResult | Later]
    ) -> tuple[tuple[str, Receipt], ...]:
        return tuple(
            (one.event.type, self._with_readers(one.event.type, result))
            for one, result in zip(events, results, strict=True)
            if isinstance(result, Receipt)
        )

    def _with_readers(self, event_type: str, receipt: Receipt) -> Receipt:
        """Say in a receipt who reads an event that no destination wants."""
        if not receipt.destinations and (readers := self._routes.readers_of(event_type)):
            receipt.__dict__["readers"] = readers
        return receipt

    def _receipt(self, event: NewEvent, result: AppendResult) -> Receipt:
        if isinstance(result, Receipt):
            return self._with_readers(event.type, result)
        if isinstance(result, VersionConflict):
            raise VersionConflictError(
                event.key or "", expected=event.expected_version or 0, actual=result.actual
            )
        raise IdempotencyConflictError(
            f"The idempotency key {event.idempotency_key!r} of source {event.source!r} was used "
            f"before, by event {result.event_id}, with another body; nothing was stored. "
            "Use a new key for a new event.",
            event_id=result.event_id,
        )


def _says_more(new: NewEvent) -> bool:
    """Tell whether an event has any of the attributes that few have."""
    return (
        new.idempotency_key is not None
        or bool(new.headers)
        or new.severity is not Severity.INFO
        or new.priority != 0
        or new.deadline is not None
        or new.due is not None
        or new.to is not None
    )


def _first_misaddressed(events: Sequence[Prepared], routes: Routes) -> UsageError | None:
    for place, one in enumerate(events):
        if one.event.to and (wrong := routes.misaddressed(one.event)) is not None:
            return wrong.about(f"events[{place}] ({one.event.type})") if len(events) > 1 else wrong
    return None


def _each(work: Callable[[NewEvent], T], events: Sequence[NewEvent]) -> list[T]:
    """Do the same for each event; an error says for which of them."""
    done: list[T] = []
    try:
        for event in events:
            done.append(work(event))  # noqa: PERF401 - to know how far it came
    except (UsageError, VersionConflictError) as error:
        raise error.about(f"events[{len(done)}] ({events[len(done)].type})") from error
    return done


def _listed(events: Iterable[NewEvent]) -> list[NewEvent]:
    try:
        listed = list(events)
    except TypeError:
        listed = [events]  # type: ignore[list-item]  # not events at all, as is said below
    for number, one in enumerate(listed):
        if not isinstance(one, NewEvent):
            raise ConfigurationError(
                f"publish_many got {one!r:.200} as events[{number}]; pass events to publish, "
                'such as NewEvent(type="order.paid", payload={"order": 42}).'
            )
    return listed


async def _ready(result: AppendResult | Later) -> AppendResult:
    return await result if isinstance(result, asyncio.Future) else result


def _hand_on(future: Later, result: Later) -> None:
    """Tell a caller its result, which has come later."""
    if future.done():
        return
    if (error := result.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(result.result())


def _refuse_bypass(within: object) -> None:
    if within is None and open_transaction.get() is not None:
        refuse_in_transaction("publish with within=, or")


def _note(
    skipped: list[EventSkipped], route: RuleRoute, event: Event[msgspec.Raw], why: str
) -> None:
    fact = EventSkipped(rule=route.pin, event_id=event.id, event_type=event.type, why=why)
    skipped.append(fact)
