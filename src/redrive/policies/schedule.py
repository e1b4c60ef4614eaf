"""Schedules: when a cron expression comes due, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim

from redrive.model.replay import AutoReplay

__all__ = ["is_due", "next_due"]


def next_due(schedule: AutoReplay, after: datetime) -> datetime:
    """Return the first due time behind an instant.

    >>> next_due(AutoReplay(schedule="30 6 * * *"), datetime(2026, 1, 1, 6, 30, tzinfo=UTC))
    datetime.datetime(2026, 1, 2, 6, 30, tzinfo=datetime.timezone.utc)
    """
    return next(CronSim(schedule.schedule, after.astimezone(UTC)))


def is_due(schedule: AutoReplay, since: datetime, now: datetime) -> bool:
    """Tell whether a due time has come since the last run; several missed ones are one."""
    return next_due(schedule, since) <= now
