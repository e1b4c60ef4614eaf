"""Auto-replays: when one comes due, by a cron expression in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim

from redrive.model.replay import AutoReplay

__all__ = ["is_due", "next_due"]


def next_due(auto_replay: AutoReplay, after: datetime) -> datetime:
    """Return the first due time behind an instant.

    >>> next_due(AutoReplay(cron="30 6 * * *"), datetime(2026, 1, 1, 6, 30, tzinfo=UTC))
    datetime.datetime(2026, 1, 2, 6, 30, tzinfo=datetime.timezone.utc)
    """
    return next(CronSim(auto_replay.cron, after.astimezone(UTC)))


def is_due(auto_replay: AutoReplay, since: datetime, now: datetime) -> bool:
    """Tell whether a due time has come since the last run; several missed ones are one."""
    return next_due(auto_replay, since) <= now
