"""Replays: how fast many dead letters are sent again, when that stops, and when it begins."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.cron import check_cron
from redrive.model.duration import Duration, duration
from redrive.model.limits import Rate

__all__ = ["AutoReplay", "Pace", "ReplayState", "Wave"]


class ReplayState(StrEnum):
    """Where a replay is in its life."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    """By itself: too many letters failed again. A person may resume it."""
    CANCELLED = "cancelled"
    DONE = "done"


class Pace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a replay goes about it.

    The first wave is `canary` letters; each wave that went well is followed by one twice as large,
    up to `largest_wave`. A failure in the first wave stops the replay, and later one does in which
    more than the share `failure_limit` failed. `rate` bounds the letters sent in a time, beside
    the `replay_rate` of each destination.
    """

    canary: int = 1
    largest_wave: int = 1_000
    failure_limit: float = 0.1
    rate: Rate | None = None

    def __post_init__(self) -> None:
        _check_count("canary", self.canary, "how many letters go first")
        _check_count("largest_wave", self.largest_wave, "how many letters go at once")
        share = self.failure_limit
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
            raise ConfigurationError(
                f"failure_limit is {share!r}; it is the share of a wave that may fail again, "
                "such as 0.1 for a tenth, 0 for none, 1 for all."
            )


class Wave(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The letters that are sent before the next ones wait for what becomes of them.

    `is_canary` says that none of them may fail; `failed_before` is what the replay's count of
    failures was when the wave began.
    """

    number: int = 0
    size: int = 0
    sent: int = 0
    failed_before: int = 0
    is_canary: bool = False


class AutoReplay(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a destination's dead letters are replayed by themselves.

    `cron` is a cron expression of five fields, in UTC. A run takes at most `batch` letters,
    none whose event was published longer ago than `max_age`, and none that was sent `cycles`
    times in this way.
    """

    cron: str = msgspec.field(name="schedule")
    """Stored under the name that earlier releases read."""
    batch: int = 100
    max_age: timedelta = timedelta(days=7)
    cycles: int = 3

    if TYPE_CHECKING:
        # The age may be given as text; once here it is a timedelta.
        def __init__(
            self, *, cron: str, batch: int = 100, max_age: Duration = "7d", cycles: int = 3
        ) -> None: ...

    def __post_init__(self) -> None:
        check_cron(self.cron)
        msgspec.structs.force_setattr(self, "max_age", duration(self.max_age, name="max_age"))
        if not self.max_age:
            raise ConfigurationError(
                'max_age is 0s, so every letter would be too old; write an age, such as "7d".'
            )
        _check_count("batch", self.batch, "how many letters one run takes at most")
        _check_count("cycles", self.cycles, "how often one letter is sent again by itself")


def _check_count(name: str, value: object, meaning: str) -> None:
    if type(value) is not int or value < 1:
        raise ConfigurationError(f"{name} is {value!r}; it is {meaning}, so write 1 or more.")
