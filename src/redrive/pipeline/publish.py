"""Publish: events in, receipts out, durable in between; concurrent calls share a commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from redrive.clock import Clock, Ids
from redrive.errors import (
    ConfigurationError,
    IdempotencyConflictError,
    KeyHeldError,
    StoreError,
    UsageError,
    VersionConflictError,
)
from redrive.model.destination import Routes
from redrive.model.event import Event, EventAttributes, EventId, NewEvent, Receipt, new_event
from redrive.observer import Observer, Published, Written
from redrive.policies.payload import check_size, encode_payload
from redrive.store import (
    AppendResult,
    Committing,
    Entry,
    EventLog,
    RoutesChanged,
    VersionConflict,
    open_transaction,
    refuse_in_transaction,
)

__all__ = ["Prepared", "Publisher"]

_MOST_PER_COMMIT = 1_000
_PARTS = 8
_PARTS_AT_ONCE = 4

T = TypeVar("T")


class Prepared(NamedTuple):
    """An event to be stored, and the version its key is expected to have."""

    event: Event[msgspec.Raw]
    expected_version: int | None


_Waiting = tuple[Prepared, asyncio.Future[AppendResult]]
"""An event to be stored with the next commit, and who waits for it."""

_Name = tuple[str, ...]
"""What an event may have to wait for: its key, or its source and idempotency key, or nothing."""


class Publisher:
    """Publishes on one event loop; calls that come while one commits go together in the next.

    Where somebody's open transaction holds a key, only the events that need it wait for its end.
    """

    def __init__(
        self,
        store: EventLog,
        *,
        clock: Clock,
        ids: Ids,
        observer: Observer,
        payload_limit: int,
        generation: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._observer = observer
        self._payload_limit = payload_limit
        self._generation = generation
        self._routes = Routes(0, ())
        self._waiting: list[_Waiting] = []
        self._is_busy = False
        self._is_alone = True
        self._under_way: set[asyncio.Task[None]] = set()
        self._behind: dict[_Name, list[_Waiting]] = {}
        # Each part may take a connection while it meets what is held; others need some, too.
        self._parts = asyncio.Semaphore(_PARTS_AT_ONCE)

    def new_event(self, event_type: str, payload: object, attributes: EventAttributes) -> NewEvent:
        """Return an event that is still to be published, checked."""
        return new_event(event_type, payload, attributes, now=self._clock.now())

    async def publish(self, event: NewEvent, *, within: object = None) -> Receipt:
        """Publish one event; returns when it is durable, or has joined the transaction."""
        _refuse_bypass(within)
        prepared = self._prepare(event, now=self._clock.now())
        if within is not None:
            (result,) = await self._append([prepared], all_or_nothing=True, within=within)
            return _receipt(event, result)
        if self._is_alone and not self._is_busy and _name(prepared.event) not in self._behind:
            return _receipt(event, await self._publish_alone(prepared))
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self._enlist([(prepared, future)])
        return _receipt(event, await future)

    async def publish_many(
        self, events: Sequence[NewEvent], *, within: object = None
    ) -> Sequence[Receipt]:
        """Publish all of the events, or none of them."""
        _refuse_bypass(within)
        events = _listed(events)
        prepared = _each(partial(self._prepare, now=self._clock.now()), events)
        if not prepared:
            return []
        results = await self._append(prepared, all_or_nothing=True, within=within)
        answers = iter(results)
        return _each(lambda event: _receipt(event, next(answers)), events)

    def _prepare(self, new: NewEvent, *, now: datetime) -> Prepared:
        payload = encode_payload(new.payload)
        check_size(payload, self._payload_limit, what=new.type)
        event = Event(
            id=EventId(self._ids.event_id()),
            type=new.type,
            payload=msgspec.Raw(payload),
            published_at=now,
            occurred_at=new.occurred_at or now,
            key=new.key,
            tenant=new.tenant,
            source=new.source,
            idempotency_key=new.idempotency_key,
            headers=new.headers,
            severity=new.severity,
            priority=new.priority,
            generation=new.generation or self._generation,
            deadline=new.deadline,
            due=new.due,
        )
        return Prepared(event, new.expected_version)

    async def _publish_alone(self, prepared: Prepared) -> AppendResult:
        """Store an event when nothing else is under way; those that come meanwhile are next."""
        self._is_busy = True
        try:
            (result,) = await self._append([prepared], all_or_nothing=False, within=None)
        except KeyHeldError:
            future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            self._divide([(prepared, future)])
        else:
            return result
        finally:
            self._is_busy = False
            self._enlist([])
        return await future

    def _enlist(self, waiting: Sequence[_Waiting]) -> None:
        """Have events stored with the next commit, or when those before them have been."""
        for one in waiting:
            self._behind.get(_name(one[0].event), self._waiting).append(one)
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._start(self._commit())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _commit(self) -> None:
        """Store what waits, batch after batch, until nothing does."""
        try:
            while batch := self._next_batch():
                # Who publishes one event after the other gains nothing by waiting for company.
                self._is_alone = len(batch) == 1
                if not await self._store_batch(batch):
                    self._divide(batch)
        finally:
            self._is_busy = False

    def _next_batch(self) -> Sequence[_Waiting]:
        if self._behind:
            waiting, self._waiting = self._waiting, []
            self._enlist(waiting)
        batch = self._waiting[:_MOST_PER_COMMIT]
        del self._waiting[:_MOST_PER_COMMIT]
        return batch

    async def _store_batch(self, batch: Sequence[_Waiting]) -> bool:
        """Store events together, and tell each caller; false if one of their keys is held."""
        try:
            results = await self._append(
                [event for event, _ in batch], all_or_nothing=False, within=None
            )
        except KeyHeldError:
            return False
        except Exception as error:  # noqa: BLE001 - every caller of the batch hears of it
            if len(batch) > 1 and not isinstance(error, StoreError):
                # One of them cannot be stored: it must fail alone.
                for one in batch:
                    is_behind = _name(one[0].event) in self._behind
                    if is_behind or not await self._store_batch([one]):
                        self._divide([one])
                return True
            _fail(batch, error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
        return True

    def _divide(self, batch: Sequence[_Waiting]) -> None:
        """Store events apart, so that in the end only those wait that need what is held."""
        groups: dict[_Name, list[_Waiting]] = {}
        for one in batch:
            name = _name(one[0].event)
            self._behind.get(name, groups.setdefault(name, [])).append(one)
        if free := groups.pop((), None):
            self._start(self._store_free(free))
        groups = {name: group for name, group in groups.items() if group}
        self._behind.update((name, []) for name in groups)
        self._split(groups)

    def _split(self, groups: Mapping[_Name, Sequence[_Waiting]]) -> None:
        names = list(groups)
        size = math.ceil(len(names) / _PARTS) or 1
        for start in range(0, len(names), size):
            part = {name: groups[name] for name in names[start : start + size]}
            self._start(self._store_part(part))

    async def _store_free(self, batch: Sequence[_Waiting]) -> None:
        """Store events without a key; one that was lost on its way may itself be in its way."""
        if not await self._store_batch(batch):
            await self._store_patiently(batch)

    async def _store_part(self, groups: Mapping[_Name, Sequence[_Waiting]]) -> None:
        """Store events while those of the same keys that come meanwhile stay behind them."""
        batch = [one for group in groups.values() for one in group]
        if len(groups) == 1:
            if error := await self._store_patiently(batch):
                # Events that came meanwhile would wait just as long for the same keys.
                for name in groups:
                    _fail(self._behind.pop(name), error)
                return
        else:
            async with self._parts:
                is_stored = await self._store_batch(batch)
            if not is_stored:
                self._split(groups)
                return
        for name in groups:
            self._enlist(self._behind.pop(name))

    async def _store_patiently(self, group: Sequence[_Waiting]) -> StoreError | None:
        """Store the events of a key one after the other, each as a call of its own.

        Returns why the store would not take them, if so.
        """
        for place, (event, future) in enumerate(group):
            try:
                (result,) = await self._append([event], all_or_nothing=True, within=None)
            except StoreError as error:
                _fail(group[place:], error)  # it would be the same for the others
                return error
            except Exception as error:  # noqa: BLE001 - its caller hears of it
                _fail([(event, future)], error)
            else:
                if not future.done():
                    future.set_result(result)
        return None

    async def _append(
        self, events: Sequence[Prepared], *, all_or_nothing: bool, within: object
    ) -> Sequence[AppendResult]:
        routes = self._routes
        while True:
            appended = await self._store.append(
                [
                    Entry(one.event, routes.destinations_for(one.event.type), one.expected_version)
                    for one in events
                ],
                routes_version=routes.version,
                all_or_nothing=all_or_nothing,
                within=within,
            )
            if not isinstance(appended, RoutesChanged):
                break
            routes = appended.routes
        if routes.version > self._routes.version:  # a transaction may see older ones than others
            self._routes = routes
        stored = tuple(
            (one.event.type, result)
            for one, result in zip(events, appended.results, strict=True)
            if isinstance(result, Receipt)
        )
        if stored and (len(stored) == len(events) or not all_or_nothing):
            self._tell(stored, within)
        return appended.results

    def _tell(self, stored: tuple[tuple[str, Receipt], ...], within: object) -> None:
        """Tell of what is stored when it is; of what may still be rolled back, only so much."""
        published = partial(self._observer.notice, Published(events=stored))
        if within is None:
            published()
        elif isinstance(within, Committing):
            within.after_commit(published)
        else:
            self._observer.notice(Written(events=stored))


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


def _name(event: Event[msgspec.Raw]) -> _Name:
    if event.key is not None:
        return (event.key,)
    if event.idempotency_key is not None:
        return (event.source, event.idempotency_key)
    return ()


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _refuse_bypass(within: object) -> None:
    if within is None and open_transaction.get() is not None:
        refuse_in_transaction("publish with within=, or")


def _receipt(event: NewEvent, result: AppendResult) -> Receipt:
    if isinstance(result, Receipt):
        return result
    if isinstance(result, VersionConflict):
        raise VersionConflictError(
            event.key or "", expected=event.expected_version or 0, actual=result.actual
        )
    raise IdempotencyConflictError(
        f"The idempotency key {event.idempotency_key!r} of source {event.source!r} was used "
        f"before, by event {result.event_id}, with another body; nothing was stored. "
        "Use a new key for a new event."
    )
