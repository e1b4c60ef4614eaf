"""The port by which operations try a service out."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from redrive.model.event import NewEvent
from redrive.model.outcome import Exchange, Fault

__all__ = ["ServiceTest", "Testing"]


class ServiceTest(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test: what was sent and answered, without secrets, and how long that took.

    Without a `status` nothing was answered. With a `hold` nothing was sent: the gate of the service
    lets nothing through. `fault` says what is wrong.
    """

    service: str
    is_success: bool
    rule: str = ""
    status: int | None = None
    latency: timedelta = timedelta(0)
    hold: str = ""
    fault: Fault | None = None
    exchange: Exchange | None = None


class Testing(Protocol):
    """Sends a request in the way of real sending, through the gate, once."""

    async def test(self, service: str, event: NewEvent, rule: str) -> ServiceTest:
        """Send an event in the shape of a version of a rule, if one is named."""
