"""Plans: what was suggested, to be carried out once, soon, and by who asked for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from redrive.clock import Clock, Entropy
from redrive.errors import UsageError

__all__ = ["LASTS", "KeptPlan", "Plans"]

LASTS = timedelta(minutes=10)
_MOST = 1_000
_ID_BYTES = 16


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with all that it takes, and for whom it was planned."""

    operation: str
    by: str
    path: dict[str, Any]
    given: msgspec.Struct
    made_at: float


class Plans:
    """The plans of one process; those of nobody are the oldest, and go first when it is full."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._kept: dict[str, KeptPlan] = {}

    def keep(self, operation: str, *, by: str, path: dict[str, Any], given: msgspec.Struct) -> str:
        """Keep a plan, and return by what it is called for."""
        self._forget_old()
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        name = f"plan_{self._entropy.random_bytes(_ID_BYTES).hex()}"
        self._kept[name] = KeptPlan(
            operation=operation, by=by, path=path, given=given, made_at=self._clock.monotonic()
        )
        return name

    def take(self, name: str, operation: str, *, by: str) -> KeptPlan:
        """Return a plan, which is gone with that; what is another's is as if it were not there."""
        self._forget_old()
        plan = self._kept.get(name)
        if plan is None or (plan.operation, plan.by) != (operation, by):
            raise UsageError(
                "There is no such plan of yours for this: it was carried out, or is older than "
                "10 minutes, or was made for something else. Suggest it again."
            )
        return self._kept.pop(name)

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - LASTS.total_seconds()
        for name in [name for name, one in self._kept.items() if one.made_at <= oldest]:
            del self._kept[name]
