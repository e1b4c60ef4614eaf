"""Erasing: what events said goes for good, wherever it is, and their story stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from redrive.errors import UsageError
from redrive.journal.erasing import Journaled, erase_drained, look_through
from redrive.model.erasure import ErasurePart, ErasureQuery, ErasureTerms, ErasureWaiting
from redrive.model.event import Event, EventId
from redrive.model.outcome import Fault
from redrive.operations.context import OperationContext, with_reason
from redrive.policies.fingerprint import grouped
from redrive.store import ErasableSlice, Store

__all__ = ["Erasing", "Erasure", "ErasurePlan"]

Progress = Callable[[int], None]
_BATCH = 200
_SLICE = 2_000
_MOST_NAMED = 100


class ErasurePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure would be about if it was begun now, counted without changing anything.

    `erased` are events that are erased already. Of the events still to be erased, `waiting` are
    those with a pending delivery, `running` those of which a try is under way, `unread` those that
    a projection has still to read; `dead_letters` are deliveries. `archived` are letters in the
    archive of the machine that was asked, `journaled` records in drained files of its journal, and
    `to_drain` those that wait there: they are to be drained first. `unreadable` are its files
    that may have some, and nobody can tell. `read_models` are projections whose tables are yours.
    `looked_at` counts the events of the log that were looked at, and `next` is where to go on.
    """

    events: int = 0
    erased: int = 0
    deliveries: int = 0
    dead_letters: int = 0
    waiting: int = 0
    running: int = 0
    unread: int = 0
    archived: int = 0
    journaled: int = 0
    to_drain: int = 0
    unreadable: tuple[str, ...] = ()
    read_models: tuple[str, ...] = ()
    looked_at: int = 0
    next: int | None = None

    def __add__(self, other: ErasurePlan) -> ErasurePlan:
        return _added(self, other)


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased: events with all their deliveries, of which some were `failed` for it.

    `left` are events that somebody has still to get, or has in hand, and `named` the first of
    them: erase again when they have settled. The rest is as in a plan.
    """

    events: int = 0
    deliveries: int = 0
    failed: int = 0
    left: int = 0
    named: tuple[EventId, ...] = ()
    archived: int = 0
    journaled: int = 0
    to_drain: int = 0
    unreadable: tuple[str, ...] = ()
    read_models: tuple[str, ...] = ()
    looked_at: int = 0
    next: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left that could be reached."""
        return not (self.left or self.to_drain)

    def __add__(self, other: Erasure) -> Erasure:
        return _added(self, other)


class Erasing(OperationContext):
    """Erase what events said. Long work is done in batches, each with an entry in the audit log."""

    async def plan_erase(
        self,
        *,
        event_ids: Sequence[str] = (),
        key: str | None = None,
        tenant: str | None = None,
        parts: Sequence[ErasurePart] = (),
        after: int = 0,
        stretches: int | None = None,
        progress: Progress | None = None,
    ) -> ErasurePlan:
        """Count what an erasure of some events, of a key or of a tenant would be about.

        It begins behind a position of the log, and looks at so many stretches of 2,000 events, or
        at all there are.
        """
        query = _query(event_ids, key, tenant)
        terms = ErasureTerms(parts=tuple(map(ErasurePart, parts)))
        store, plan = await self._store(), ErasurePlan()
        async for found in self._slices(store, query, terms, after, stretches):
            plan += _counted(found)
            if progress is not None:
                progress(found.looked_at)
        if plan.next is not None:
            return plan
        beside = await self._beside(query)
        return plan + ErasurePlan(
            archived=beside.archived,
            journaled=beside.journal.drained,
            to_drain=beside.journal.waiting,
            unreadable=beside.journal.unreadable,
            read_models=await _read_models(store),
        )

    async def erase(
        self,
        *,
        event_ids: Sequence[str] = (),
        key: str | None = None,
        tenant: str | None = None,
        by: str,
        why: str,
        parts: Sequence[ErasurePart] = (),
        waiting: ErasureWaiting = ErasureWaiting.DELIVER,
        after: int = 0,
        stretches: int | None = None,
        progress: Progress | None = None,
    ) -> Erasure:
        """Erase what some events, those of a key or those of a tenant said; it cannot be undone.

        Payloads go, with all that could hold a piece of them; so do `parts`, if they are named.
        What waits is delivered first, or with `waiting` failed; what could not be erased yet is
        counted as `left`. Erased events are passed over, so to do it again goes on where it ended.
        """
        query = _query(event_ids, key, tenant)
        terms = ErasureTerms(parts=tuple(map(ErasurePart, parts)), waiting=ErasureWaiting(waiting))
        actor = with_reason(by, why, "erase what events said")
        _refuse_repeating(query, terms, by, why)
        store, done = await self._to_change(), Erasure()
        async for found in self._slices(store, query, terms, after, stretches):
            for begin in range(0, len(found.events), _BATCH):
                places = [one.position for one in found.events[begin : begin + _BATCH]]
                batch = await store.erase(
                    places, terms=terms, by=query.by, blame=_blame, actor=actor, scope=self._scope
                )
                self._done("erase", batch.deliveries, actor)
                done += Erasure(
                    events=len(batch.events),
                    deliveries=len(batch.deliveries),
                    failed=len(batch.failed),
                    left=len(batch.left),
                    named=batch.left,
                )
            done += Erasure(looked_at=found.looked_at, next=found.last)
            if progress is not None:
                progress(found.looked_at)
        if done.next is not None:
            return done
        await store.erase_traces(query, terms=terms, scope=self._scope)
        return done + await self._erase_beside(query, store)

    async def _slices(
        self,
        store: Store,
        query: ErasureQuery,
        terms: ErasureTerms,
        after: int,
        stretches: int | None,
    ) -> AsyncIterator[ErasableSlice]:
        """Go through the log; the last slice has nowhere to go on to."""
        while stretches is None or stretches > 0:
            found = await store.find_erasable(
                query, terms=terms, after=after, limit=_SLICE, scope=self._scope
            )
            yield found
            if found.last is None:
                return
            after = found.last
            stretches = None if stretches is None else stretches - 1

    def _is_meant(self, query: ErasureQuery) -> Callable[[Event[msgspec.Raw]], bool]:
        """Return what tells whether an event is one of them, within the scope."""
        return lambda event: query.fits(event) and self._scope.tenant in (None, event.tenant)

    async def _beside(self, query: ErasureQuery) -> _Beside:
        archive, journal, is_meant = self._archive, self._journal, self._is_meant(query)
        archived = 0
        if archive is not None:
            archived = len(await self._executor.submit(lambda: archive.find(is_meant)))
        journaled = Journaled()
        if journal is not None:
            place = journal()
            journaled = await self._executor.submit(
                lambda: look_through(place.folder, is_meant, place.seal)
            )
        return _Beside(archived, journaled)

    async def _erase_beside(self, query: ErasureQuery, store: Store) -> Erasure:
        """Erase in the files of this machine, and tell what of them is out of reach."""
        beside, is_meant = await self._beside(query), self._is_meant(query)
        archive, journal, journaled = self._archive, self._journal, 0
        if archive is not None and beside.archived:
            await self._executor.submit(lambda: archive.blank(archive.find(is_meant)))
        if journal is not None and beside.journal.drained:
            place = journal()
            journaled = await self._executor.submit(
                lambda: erase_drained(place.folder, is_meant, place.seal)
            )
        return Erasure(
            archived=beside.archived,
            journaled=journaled,
            to_drain=beside.journal.waiting,
            unreadable=beside.journal.unreadable,
            read_models=await _read_models(store),
        )


class _Beside(NamedTuple):
    """What the files of this machine have of some events."""

    archived: int
    journal: Journaled


def _query(event_ids: Sequence[str], key: str | None, tenant: str | None) -> ErasureQuery:
    if isinstance(event_ids, str):
        raise UsageError(f"event_ids is {event_ids!r}; pass a list of ids.")
    return ErasureQuery(
        event_ids=tuple(dict.fromkeys(EventId(one) for one in event_ids)), key=key, tenant=tenant
    )


def _refuse_repeating(query: ErasureQuery, terms: ErasureTerms, by: str, why: str) -> None:
    """Refuse to write down in the audit log what is to be gone."""
    key = query.key if terms.has(ErasurePart.KEY) else None
    tenant = query.tenant if terms.has(ErasurePart.TENANT) else None
    for name, value in (("key", key), ("tenant", tenant)):
        if value and (value in why or value in by):
            raise UsageError(
                f"The {name} that is to be erased stands in who acts or why, and the audit log "
                "keeps that; say it without, such as by the number of the request."
            )


def _blame(destination: str) -> Fault:
    message = "its payload was erased before it was delivered"
    return grouped(Fault(error_class="Erased", message=message, rule="operator"), destination)


def _counted(found: ErasableSlice) -> ErasurePlan:
    return ErasurePlan(
        events=len(found.events),
        erased=found.erased,
        deliveries=sum(one.deliveries for one in found.events),
        dead_letters=sum(one.dead_letters for one in found.events),
        waiting=sum(one.pending > 0 for one in found.events),
        running=sum(one.in_flight > 0 for one in found.events),
        unread=sum(one.is_unread for one in found.events),
        looked_at=found.looked_at,
        next=found.last,
    )


async def _read_models(store: Store) -> tuple[str, ...]:
    return tuple(one.checkpoint.projection for one in await store.projections())


P = TypeVar("P", ErasurePlan, Erasure)


def _added(one: P, other: P) -> P:
    """Return the sum of two counts; where to go on is what the later one says."""
    sums: dict[str, object] = {}
    for name in one.__struct_fields__:
        before: Any = getattr(one, name)
        after: Any = getattr(other, name)
        if name == "next":
            sums[name] = after
        elif isinstance(before, tuple):
            sums[name] = tuple(dict.fromkeys((*before, *after)))[:_MOST_NAMED]
        else:
            sums[name] = before + after
    return msgspec.structs.replace(one, **sums)
