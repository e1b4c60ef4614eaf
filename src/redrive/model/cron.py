"""Cron expressions, checked before anybody waits for them."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from redrive.errors import ConfigurationError

__all__ = ["check_cron"]

_FIELDS = 5
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def check_cron(value: object) -> None:
    """Refuse what is no cron expression of five fields, or names a day that never comes."""
    complaint = "it has five fields: minute, hour, day, month, day of the week"
    try:
        if isinstance(value, str) and len(value.split()) == _FIELDS:
            next(CronSim(value, _LONG_AGO))
            return
    except CronSimError as error:
        complaint = str(error).lower()
    except StopIteration:
        complaint = "there is no such day"
    raise ConfigurationError(
        f"cron is {value!r}: {complaint}. Write a cron expression such as "
        '"*/15 * * * *" for every quarter of an hour.'
    )
