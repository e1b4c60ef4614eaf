"""What a store promises about the tenants that share a destination."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.gate import Hold, Pause

__all__ = ["TenantFigures", "Tenants"]


class TenantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant at one destination; `tenant` is `None` for the events without one.

    `processed` counts the attempts it got, and `consecutive` how many of them in a row when it was
    served last. `rounds_waited` is how many times the turns have begun anew since then, while it
    has work. `hold` is what keeps it from its turn, `until` an instant if that is known.
    `destination` is `None` for a tenant that is paused everywhere and known nowhere yet.
    """

    tenant: str | None
    destination: str | None
    pending: int = 0
    in_flight: int = 0
    processed: int = 0
    consecutive: int = 0
    last_served_at: datetime | None = None
    rounds_waited: int = 0
    urgency: int = 5
    turn: int = 0
    hold: Hold | None = None
    until: datetime | None = None
    pause: Pause | None = None
    is_paused_everywhere: bool = False


class Tenants(Protocol):
    """Whose turn it is. `claim` deals out its allowance among the tenants with due work.

    It goes on behind the tenant that was served last, by whichever worker. Each gets a turn before
    anybody gets a second one, so one with a single delivery starts within one round. A tenant that
    is paused or has used up its rate is passed over.
    """

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        """Return the tenants with work or a past, those with the most pending first.

        `Housekeeping.prune` forgets a tenant without work once it was not served for as long as
        events are kept.
        """

    async def pause_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        """Let nothing of a tenant start, at one destination or at all; tells whether that is new.

        Others go on. Survives restarts.
        """

    async def resume_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        """End a pause of the same extent; tells whether there was one."""
