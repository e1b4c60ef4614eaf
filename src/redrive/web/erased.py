"""What is asked of erasures: which events, what goes with them, and what becomes of what waits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from redrive.model.erasure import ErasurePart, ErasureWaiting
from redrive.operations.context import MOST_PER_PAGE
from redrive.web.requests import LARGEST, Given, Text

__all__ = ["PlanErasure", "RunErasure"]


class PlanErasure(Given, frozen=True, kw_only=True):
    """Which events are meant, of some ids, a key or a tenant, and what goes with their payloads.

    `after` is the `next` of the answer before.
    """

    event_ids: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_PER_PAGE)] = ()
    key: Text | None = None
    tenant: Text | None = None
    parts: tuple[ErasurePart, ...] = ()
    after: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] = 0

    @property
    def given(self) -> dict[str, Any]:
        """Return it as keywords of the operation."""
        return {
            "event_ids": self.event_ids,
            "key": self.key,
            "tenant": self.tenant,
            "parts": self.parts,
            "after": self.after,
        }


class RunErasure(PlanErasure, frozen=True, kw_only=True):
    """Why they are erased, and what becomes of what waits."""

    why: Text
    waiting: ErasureWaiting = ErasureWaiting.DELIVER
