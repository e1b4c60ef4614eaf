"""What a store promises about what is kept, for how long, and what goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.letter import Letter
from redrive.model.outcome import Fault
from redrive.model.retention import Keep, Retention
from redrive.store.inspection import Query

__all__ = ["Grouping", "Housekeeping", "LetterPage", "LetterQuota", "Letters", "Pruned", "Restored"]

Grouping = Callable[[Fault, str], Fault]
"""Puts the fault of a dead letter at a destination in its group; pure, and called on any thread."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """How much was removed because it had been kept long enough.

    `keys` are idempotency keys, `inbox` records of effects that were applied, `audit` entries of
    the audit log, `replays` those that were over.
    """

    delivered: int = 0
    resolved: int = 0
    events: int = 0
    keys: int = 0
    inbox: int = 0
    audit: int = 0
    replays: int = 0

    @property
    def most(self) -> int:
        """The largest of the counts."""
        return max(int(getattr(self, name)) for name in self.__struct_fields__)

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class LetterQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The unresolved dead letters of a destination that limits them."""

    destination: str
    keep: Keep
    count: int
    oldest: datetime | None
    now: datetime


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, and where the next page begins; `None` when this was the last."""

    letters: tuple[Letter, ...]
    next_cursor: str | None = None


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The deliveries that dead letters became, and how many letters were there already."""

    deliveries: tuple[DeliveryId, ...] = ()
    known: int = 0


class Housekeeping(Protocol):
    """Removing what has been kept long enough, and nothing else.

    An event is never removed while it has a delivery, nor is what its idempotency key was used
    for. A delivery is never removed while it waits, runs or is an unresolved dead letter.
    """

    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        """Remove at most `limit` of each kind, and count them; the oldest go first.

        An event goes when `retention.events` have passed since the last of its deliveries was
        settled, or was removed by a person, or since it was stored if it had none. After that its
        idempotency key still answers with its receipt, for as long as `retention.idempotency`,
        and its effects stay known as applied for as long as `retention.inbox`; both are counted
        from that moment. Entries of the audit log, replays that are over and older names of groups
        go after `retention.audit`.
        """

    async def prunable(self, retention: Retention) -> Pruned:
        """Count what could be removed now; may read a lot, and changes nothing."""

    async def letter_quotas(self) -> Sequence[LetterQuota]:
        """Return the dead letters there are of each destination that limits them."""

    async def oldest_letters(self, destination: str, *, limit: int = 500) -> Sequence[Letter]:
        """Return unresolved dead letters of a destination, those that failed first in front."""

    async def discard(
        self, letters: Sequence[Letter], *, actor: Actor, detail: str
    ) -> Sequence[DeliveryId]:
        """Remove dead letters that were exported, and return which; they are counted.

        One that was replayed, edited, resolved or deleted since it was read is left alone. The
        next of their lanes is freed.
        """

    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        """Put dead letters whose group has an id before this one in their group; tells how many.

        Resolved ones too. A query for the old group finds all letters of the new one.
        """

    async def outdated(self, *, before: str) -> int:
        """Count the dead letters that are still to be regrouped."""

    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        """Tell whether a duty is this worker's for the next while; no two have the same turn.

        It ends after `span` unless it is taken again, and when the worker retires.
        """


class Letters(Protocol):
    """Dead letters on their way out of the store, and back."""

    async def letters(
        self, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        """Return matching dead letters whole, in publish order; pages neither repeat nor skip.

        What fails while somebody turns the pages is on the rest of them only if it was published
        after what they have seen.
        """

    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        """Put dead letters back, with their event, its idempotency key, and their history.

        They carry what they were edited to, and count how often auto-replays sent them.
        One whose event has a delivery at the destination already changes nothing. A destination
        that is not known is added as removed. In an ordered lane they come last, as they are given.
        """
