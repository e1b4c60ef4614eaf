"""What a store promises about requests, which are made past the deliveries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.destination import Destination
from redrive.model.gate import BreakerChange, Failure, Hold

__all__ = ["Calls", "Entrance"]


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate of a destination says to a request.

    With a `hold` it is kept out, perhaps until `until`, and `why` is what a person said of that.
    Else it has begun in a `generation` of the breaker, and may make some `retries`. If it
    `is_counted`, the gate has to be told when it ends. `failure` is the last that the gate knows.
    """

    destination: Destination
    generation: int = 0
    is_probe: bool = False
    is_counted: bool = False
    retries: int = 0
    hold: Hold | None = None
    until: datetime | None = None
    why: str = ""
    failure: Failure | None = None
    changes: tuple[BreakerChange, ...] = ()


class Calls(Protocol):
    """Requests pass the gates that deliveries pass, and are charged as first attempts."""

    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        """Let a request with an id of its own pass, or say what keeps it out; it never waits.

        It is a probe where the breaker lets those through. Where attempts at one time or probes
        are counted, it counts until a report with its id, for as long as its `lease` at most. A
        service that is disabled, and a tenant that is paused, keep it out as `PAUSED`. Raises
        `NotFoundError` for a destination that is not there, or was removed.
        """
