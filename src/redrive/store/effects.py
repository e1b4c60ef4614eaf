"""What a store promises about the effects of handlers in its own database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from redrive.model.delivery import Leased

__all__ = ["ALREADY_APPLIED", "Effect", "Effects", "Ending"]

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
