"""What a store promises about payloads that are to be gone for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.erasure import ErasureQuery, ErasureTerms
from redrive.model.event import EventId
from redrive.store.queue import Blame

__all__ = ["Erasable", "ErasableSlice", "ErasedBatch", "Erasing"]


class Erasable(msgspec.Struct, frozen=True, kw_only=True):
    """An event of which something is to erase, at a position.

    It has so many deliveries, and so many of them in each state; `is_unread` says
    that a projection has still to read it.
    """

    position: int
    event_id: EventId
    deliveries: int = 0
    pending: int = 0
    in_flight: int = 0
    dead_letters: int = 0
    is_unread: bool = False


class ErasableSlice(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to erase in a stretch of the log, and where that ends; `None` at the end.

    `looked_at` counts the events of the stretch, and `erased` those that were meant too and are
    erased already.
    """

    events: tuple[Erasable, ...] = ()
    last: int | None = None
    looked_at: int = 0
    erased: int = 0


class ErasedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The events that were erased and all their deliveries, of which some were failed for it.

    `left` were not: somebody has still to get them, or has one of them in hand just now.
    """

    events: tuple[EventId, ...] = ()
    deliveries: tuple[DeliveryId, ...] = ()
    failed: tuple[DeliveryId, ...] = ()
    left: tuple[EventId, ...] = ()


class Erasing(Protocol):
    """Takes away what events said, wherever the store has it, and keeps the rest of their story.

    An erased event is delivered to nobody any more: its dead letters are resolved, routes that are
    new do not get it, and projections pass it by. Its idempotency key still returns its receipt,
    unless that was to go too.
    """

    async def find_erasable(
        self,
        query: ErasureQuery,
        *,
        terms: ErasureTerms,
        after: int = 0,
        limit: int = 1_000,
        scope: Scope = WHOLE_STORE,
    ) -> ErasableSlice:
        """Look for events behind a position; at most `limit` of them are looked at."""

    async def erase(
        self,
        positions: Sequence[int],
        *,
        terms: ErasureTerms,
        by: str,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> ErasedBatch:
        """Erase events; those erased already, and those outside of the scope, are not there.

        The audit entry has the ids of events and deliveries, and `by`: what they were chosen by.
        """

    async def erased_of(self, ids: Sequence[DeliveryId]) -> Sequence[DeliveryId]:
        """Return those of the deliveries whose events are erased."""

    async def erase_traces(
        self, query: ErasureQuery, *, terms: ErasureTerms, scope: Scope = WHOLE_STORE
    ) -> None:
        """Take away what is kept of a tenant or a key beside its events.

        That is what went wrong in logs of requests and, where tenant or key are to go, what is
        remembered of them.
        """
