"""How much a worker carries at once, and how long it holds on to things."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.claiming.allowance import LARGEST_SHARE
from redrive.policies.redact import Redaction
from redrive.worker.maintenance import Upkeep

__all__ = ["WorkerSettings"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a worker carries at once, and how long it holds on to things."""

    concurrency: int = 100
    threads: int = 10
    largest_share: float = LARGEST_SHARE
    lease: timedelta = timedelta(seconds=15)
    grace: timedelta = timedelta(seconds=10)
    poll: timedelta = timedelta(seconds=1)
    generations: tuple[str, ...] = ("default",)
    upkeep: Upkeep = Upkeep()
    host: str = ""
    """The machine it runs on, for whoever reads of what it has declared."""
    redaction: Redaction = Redaction()
