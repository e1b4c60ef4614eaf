"""What a store promises about the effects of handlers in its own database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from redrive.model.delivery import Leased

__all__ = [
    "ALREADY_APPLIED",
    "AppliedLane",
    "Effect",
    "Effects",
    "Ending",
    "Followed",
    "Following",
]

ALREADY_APPLIED = "already applied"
"""The result of a try that ran nothing, in the story of its delivery."""

Effect = Callable[[Any], Awaitable[bool]]
"""What a handler does with a connection; tells whether to keep it."""


class Ending(StrEnum):
    """How an effect ended.

    `APPLIED`: it is durable, and its delivery is settled. `REPEATED`: it was durable before, was
    not run, and its delivery is settled. `UNDONE`: it asked for that. `REFUSED`: the lease was not
    current, at the beginning or at the end. After the last two nothing remains of it.
    """

    APPLIED = "applied"
    REPEATED = "repeated"
    UNDONE = "undone"
    REFUSED = "refused"


class Followed(msgspec.Struct, frozen=True):
    """How many followers were run, from the first on.

    Unless it `is_clean`, one has failed: everything has to be undone, and so many of them may be
    tried again.
    """

    count: int
    is_clean: bool = True


Following = Callable[[Any, Sequence[Leased]], Awaitable[Followed]]
"""What a handler does with a connection for followers of a lane, one after the other."""


class AppliedLane(msgspec.Struct, frozen=True):
    """How the effect of the head of a lane ended, and the followers that were settled with it."""

    ending: Ending
    followers: tuple[Leased, ...] = ()


class Effects(Protocol):
    """Effects that happen exactly once, because they are committed with their delivery.

    The inbox keeps who has applied what: one record for each destination, source and idempotency
    key; of an event without a key, one for the event.
    """

    async def apply(self, leased: Leased, effect: Effect, *, at_most: timedelta) -> Ending:
        """Run an effect in a transaction, and commit it together with its delivery.

        The effect, its inbox record and the delivery settled as `Delivered` are all durable, or
        nothing of it is. Of two calls about the same record one waits for the
        other, and runs nothing if that was kept. What the effect raises passes, and undoes it;
        so does being cancelled. What the database says against it when it is committed, such as a
        constraint checked then, is raised as the driver's own error. After a `StoreError` it is
        not known whether it is durable; a later call finds out. `at_most` is how long the
        effect may take: a store may give up its transaction after that.
        """

    async def apply_lane(
        self, leased: Leased, effect: Effect, follow: Following, *, at_most: timedelta
    ) -> AppliedLane:
        """Do as `apply`, and as much of the lane behind the delivery as can be, in one commit.

        Followers that could be claimed next are handed to `follow` in their order, each as it would
        be leased. Those that it has run are settled as `Delivered` with a try of their own, and
        have their inbox records. One that fails is as it was before, and so is all behind it: it
        comes as the next head. `follow` may be called again for fewer of them, and what it did
        before is undone. A gate that counts what passes lets no followers through.
        """
