"""What a store promises about deliveries that wait, run and are settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.claiming.allowance import Allowance
from redrive.model.delivery import Attempt, Delivery, Lease, Leased
from redrive.model.event import EventId
from redrive.model.gate import BreakerChange
from redrive.model.outcome import Addressees, Exchange, Fault
from redrive.model.settlement import FailureReason, Recovery, Settlement

__all__ = [
    "FORGOTTEN_AFTER",
    "Allowance",
    "Blame",
    "Claim",
    "ClaimRequest",
    "DeliveryQueue",
    "Left",
    "Overdue",
    "Rescue",
    "Serving",
    "Settled",
    "ShedBlame",
    "Work",
]


FORGOTTEN_AFTER = timedelta(days=1)
"""How long a worker that was never heard of again stays in the figures."""


Blame = Callable[[str], Fault]
"""Builds the fault of a delivery to this destination that failed; pure, called on any thread."""


ShedBlame = Callable[[str, FailureReason], Fault]
"""Builds the fault of a delivery that failed instead of waiting for its gate; pure as well."""


MOST_BYTES = 32 * 2**20
"""How much of what is due a worker takes into its memory at once."""


class Serving(msgspec.Struct, frozen=True):
    """What a worker claims: deliveries to these destinations, of these generations."""

    destinations: tuple[str, ...]
    generations: tuple[str, ...]


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which work a worker asks for: at most `limit` in all, serving the allowances in turn.

    What it is given has at most `most_bytes` of JSON, but for a single delivery that has more by
    itself; `next_due` of the claim then says to ask again soon. With `alone` it asks for one
    suspect and nothing else.
    """

    worker: str
    allowances: tuple[Allowance, ...]
    generations: tuple[str, ...]
    lease: timedelta
    limit: int
    alone: bool = False
    most_bytes: int = MOST_BYTES


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What was leased, by the store's clock `now`, and what will want attention next.

    `next_due` is when the next delivery of the asked destinations comes due that is not due yet;
    `suspects` counts due deliveries that must be claimed alone and have an allowance.
    `is_heartbeat` says that the claim counts as a heartbeat of the worker. `routes_version` is
    the version of the routes, if it was looked at: always where a destination that was asked for
    may have changed. `shut` names those asked for that may have nothing until the instant it
    names, or until somebody changes their gate: because it is paused or open, or because their
    turn at a rate that they share has not come. `is_held` says that somebody else has a hold of
    something that is due: it may be free again in a moment.
    """

    now: datetime
    deliveries: tuple[Leased, ...] = ()
    next_due: datetime | None = None
    suspects: int = 0
    changes: tuple[BreakerChange, ...] = ()
    is_heartbeat: bool = False
    routes_version: int | None = None
    shut: tuple[tuple[str, datetime | None], ...] = ()
    is_held: bool = False


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Who has work that may start, as found on a part of a lap around all destinations.

    Each destination comes with a mark that changes when its gate does. `after` is where the lap
    goes on, `None` at its end. `next_due` is when more work comes due, whoever has it. `is_held`
    is as in a claim.
    """

    now: datetime
    destinations: tuple[tuple[str, str], ...]
    after: int | None
    next_due: datetime | None
    routes_version: int
    is_held: bool = False


class Settled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one lease, with the try it came from for the delivery's story.

    `exchange` is what was sent and answered; only that of the last failed try is kept, or what a
    handler returned, if that is to be. `addressees` are kept with the delivery for as long as it
    is, over replays too; none leaves those that are kept.
    """

    lease: Lease
    settlement: Settlement
    attempt: Attempt | None = None
    exchange: Exchange | None = None
    addressees: Addressees | None = None


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery whose lease ran out: what is needed to decide about it.

    `owner_is_alive` says that its worker was heard of after the lease had ended, or has retired.
    `seen_at` is when it was last heard of.
    """

    lease: Lease
    destination: str
    event_id: EventId
    worker: str
    attempt: int
    crashes: int
    last_crash_at: datetime | None
    was_alone: bool
    owner_is_alive: bool
    seen_at: datetime | None = None
    now: datetime


class Left(msgspec.Struct, frozen=True):
    """A try that goes on after its worker has left, as the story of its delivery tells it."""

    lease: Lease
    attempt: Attempt


class Rescue(msgspec.Struct, frozen=True):
    """The decision about one overdue lease."""

    lease: Lease
    recovery: Recovery


class DeliveryQueue(Protocol):
    """Deliveries that wait, run and are settled. Every write after the claim needs the lease.

    A lease is current while its token is the delivery's latest, the delivery is in flight, and
    the lease has not run out. Any other is refused and changes nothing; `settle` counts those.
    """

    async def claim(self, request: ClaimRequest) -> Claim:
        """Lease due deliveries within the allowances; two calls never lease the same one.

        Never before its due time, past its deadline, of a foreign generation, behind another of its
        lane, or above the allowance. The tenants of a destination take turns; of one tenant the
        higher priority goes first, then publish order. At a half-open breaker deliveries that were
        no probe yet in this outage go first, then those that were one longest ago. The try is
        recorded with the lease. A delivery with two crashes is a suspect: only a request with
        `alone` leases it, one at a time.
        """

    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        """Find destinations with due work of these generations, open or not; a lap begins after 0.

        Costs as much as it looks at, at most `limit` destinations: it passes those without due work
        without a look at them. Leaves alone what is behind another of its lane.
        """

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        """Carry out the settlements whose lease is current; return the refused leases.

        `Delivered`, `RetryAt` and `Failed` keep the try recorded by the claim; `Snoozed`, and a
        `RetryAt` that does not spend it, take it back. Settling the head of a lane as `Delivered`
        frees the next one.
        """

    async def release(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Give back what was not finished: pending again, due now, the try taken back.

        Returns the refused leases.
        """

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        """Tell that the worker lives and extend its current leases; return the refused ones.

        `serving` is what it claims; once told, it is remembered until told otherwise, or until the
        worker is forgotten. Forgets workers that have been silent for `FORGOTTEN_AFTER`.
        """

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        """Extend current leases without a word of their worker; return the refused ones.

        For what still runs when its worker has retired. Once its process has ended, these leases
        run out, and nobody has crashed.
        """

    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        """Forget a worker that has stopped in good order.

        What it has `left` joins the stories of the deliveries whose lease is current; a repeat,
        after an answer that was lost, adds nothing.
        """

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        """Return leases that have run out, the oldest first."""

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        """Carry out decisions about leases that are still overdue; return the refused ones.

        `Requeued` makes the delivery pending with its try taken back, and sets its crash counter
        and the instant of its last crash as it says. `Failed` makes it a dead letter and counts
        the crash.
        """

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        """Fail pending deliveries past their deadline as `expired`; return them."""

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        """Fail due deliveries that must not wait for their gate; return them.

        As `circuit_open` while a breaker with `on_open="dead_letter"` is open; as
        `retry_rate_limited` the retries of a destination with `over_retry_rate="dead_letter"` whose
        rate is used up. Leaves alone what is behind another of its lane, and everything while the
        destination is paused or blocked.
        """

    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        """Return when there may be work since the last claim or look, or after `at_most`.

        With `since`, when anything may have changed since that `mark`, whoever has looked
        meanwhile.
        """

    def mark(self) -> object:
        """Return what `wait` counts from; whoever reads the log takes it before they look."""

    def wake(self) -> None:
        """Have whoever waits look for work, here and in other processes; any thread may call it.

        For work that was committed past this store. What is lost of it costs time only.
        """
