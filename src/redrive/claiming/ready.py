"""What a claim asks a store about: the tenants with due work, and the first of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, takewhile
from typing import Protocol

import msgspec

from redrive.claiming.round_robin import Served, affordable, spent
from redrive.model.delivery import Kind
from redrive.model.fairness import Fairness
from redrive.model.gate import Bucket
from redrive.model.instant import from_micros, maybe_micros

__all__ = [
    "KINDS",
    "NOBODY",
    "SOON",
    "Account",
    "Candidate",
    "Ready",
    "Sort",
    "TenantState",
    "accounts",
    "fitting",
]

SOON = timedelta(milliseconds=100)
"""When to ask again for what there was no room for, or what somebody else had a hold of."""


KINDS = (Kind.FIRST, Kind.RETRY, Kind.REPLAY, Kind.FIRST)
"""By number; a store may keep first attempts that never waited apart from the others."""


Sort = tuple[str, int]
"""A generation and the number of a kind: within it, what is ready is sorted by tenant."""

Account = tuple[str, int, int, int, float | None, int | None]
"""A tenant, its round, how many it got, how many in a row, and its bucket: tokens and instant."""


class Candidate(msgspec.Struct, array_like=True, frozen=True, order=True, gc=False):
    """A delivery that may be claimed; they sort by priority, then in publish order."""

    precedence: int
    id: int
    kind: int
    due: int
    destination: int
    tenant: str = ""


def fitting(sizes: Iterable[int], most_bytes: int) -> int:
    """Return how many of these, from the first on, fit into so many bytes; one always does."""
    within = takewhile(lambda taken: taken <= most_bytes, accumulate(sizes))
    return max(1, sum(1 for _ in within))


class TenantState(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of one tenant."""

    tenant: str
    tokens: float | None
    refilled_at: int | None
    is_paused: int

    @property
    def bucket(self) -> Bucket:
        """The tokens of its own rate."""
        if self.tokens is None or self.refilled_at is None:
            return Bucket()
        return Bucket(self.tokens, from_micros(self.refilled_at))

    def affordable(self, fairness: Fairness, *, now: datetime) -> int:
        """Return how many attempts it may have now."""
        if self.is_paused:
            return 0
        return affordable(self.bucket, fairness.rate_of(self.tenant), now=now)


NOBODY = TenantState("", None, None, 0)
"""The events without a tenant, of which nothing is kept."""


class Ready(Protocol):
    """What one destination has ready at an instant.

    A store that never waits is asked in the same words: what it defines with `async` ends at once.
    """

    async def promote(self, *, start: str, most: int, turn: int) -> None:
        """Make ready what the next tenants need for a turn, of what is due and waits to be."""

    async def survey(self, sorts: Sequence[Sort], *, tenant: str) -> tuple[list[Sort], bool]:
        """Return the sorts there is work of, and whether some is of other tenants than this."""

    async def state_of(self, tenant: str) -> TenantState:
        """Return what is kept of one tenant."""

    async def tenants(self, sorts: Sequence[Sort], *, start: str, most: int) -> list[TenantState]:
        """Return the next tenants with work, in the order of their names, from `start` on."""

    async def lines(self, asked: Sequence[tuple[str, Sort, int]]) -> list[list[Candidate]]:
        """Return the first deliveries of each tenant and sort, so many at most."""


def accounts(
    fairness: Fairness,
    served: Sequence[Served],
    states: Mapping[str, TenantState],
    *,
    now: datetime,
) -> list[Account]:
    """Return what to keep of the tenants that were served."""
    rows = []
    for one in served:
        rate = fairness.rate_of(one.tenant)
        bucket = spent(states[one.tenant].bucket, rate, one.count, now=now)
        tokens = None if bucket.at is None else bucket.tokens
        rows.append(
            (one.tenant, one.round, one.count, one.in_a_row, tokens, maybe_micros(bucket.at))
        )
    return rows
