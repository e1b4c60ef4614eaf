"""Whether a worker reaches its store, and for how long to leave it alone while it does not."""

from __future__ import annotations

import math
from datetime import timedelta

from redrive.errors import StoreError, StoreFullError, StoreReadOnlyError
from redrive.observer import Observer, StoreBack, StoreLost
from redrive.store import Claim

__all__ = ["FIRST_PAUSE_SECONDS", "StoreLink"]

FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_PAUSES_PER_LEASE = 4
"""Outcomes that wait for the store to be back must be settled while their leases last."""


class StoreLink:
    """Tells once that the store is lost, and once that it is back.

    A worker without work only reads, so its calls say nothing of whether the store can be written:
    unless `is_sure`, it must prove that before it calls `regain`.
    """

    def __init__(self, worker: str, observer: Observer, *, lease: timedelta) -> None:
        self._longest = min(_LONGEST_PAUSE_SECONDS, lease.total_seconds() / _PAUSES_PER_LEASE)
        self._worker = worker
        self._observer = observer
        self._is_doubted = False
        self.pause = 0.0
        """How many seconds to wait before the next try."""
        self.noted_at = -math.inf
        """When it asked for the last claim by which the store took note of the worker."""

    def lose(self, error: StoreError) -> None:
        """Hear that a call has failed; the more of them in a row, the longer the pause."""
        if not self.pause:
            self._observer.notice(_lost(self._worker, error))
        self.pause = min(self._longest, self.pause * 2 or FIRST_PAUSE_SECONDS)

    def doubt(self) -> None:
        """Hear that a heartbeat has failed, which writes. For any thread."""
        self._is_doubted = True

    @property
    def is_sure(self) -> bool:
        """Whether nothing has failed since the store was last known to be written."""
        return not (self.pause or self._is_doubted)

    def regain(self) -> None:
        """Hear that the store was written, or that there was no doubt that it can be."""
        self._is_doubted = False
        if self.pause:
            self.pause = 0.0
            self._observer.notice(StoreBack(worker=self._worker))

    def note(self, claim: Claim, *, asked: float) -> None:
        """Take note of a claim, and of the moment it was asked for."""
        if claim.is_heartbeat:
            self.noted_at = asked


def _lost(worker: str, error: StoreError) -> StoreLost:
    match error:
        case StoreReadOnlyError():
            trouble = "the store cannot be written: it is read-only"
        case StoreFullError():
            trouble = "the store cannot be written: its disk is full"
        case _:
            return StoreLost(worker=worker, error=str(error))
    return StoreLost(worker=worker, error=str(error), trouble=trouble)
