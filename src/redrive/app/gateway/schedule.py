"""Documents of schedules: every key checked, and made into what is published by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from redrive.app.gateway.secrets import refuse_written_payload
from redrive.app.scheduling import ScheduleOptions, declare_schedule
from redrive.errors import ConfigurationError, RedriveError, refuse_unknown
from redrive.model.schedule import Schedule, check_schedule_name

__all__ = ["KEYS_OF_SCHEDULES", "read_schedule"]

_OPTIONS = tuple(name for name in ScheduleOptions.__annotations__ if name != "name")
_TEXTS = ("event", "cron", "timezone", "key", "tenant", "missed", "overlap", "description")
KEYS_OF_SCHEDULES = ("event", "cron", "every", "timezone", *_OPTIONS, "description")


def read_schedule(name: str, document: Mapping[str, object], *, version: int = 1) -> Schedule:
    """Read a document; a mistake in it names the schedule and the key."""
    check_schedule_name(name)
    try:
        return _read(name, dict(document), version)
    except RedriveError as error:
        raise ConfigurationError(f"The schedule {name!r}: {error}") from error


def _read(name: str, given: dict[str, Any], version: int) -> Schedule:
    refuse_unknown(given, KEYS_OF_SCHEDULES, what="key of a schedule")
    for key in _TEXTS:
        if key in given and not isinstance(given[key], str):
            raise ConfigurationError(f"{key} is {given[key]!r}; it is text.")
    if "event" not in given:
        raise ConfigurationError(
            'event is missing; write the type of the events, such as event = "report.due".'
        )
    refuse_written_payload("payload", given.get("payload"))
    options: Any = {"name": name, **{key: given[key] for key in _OPTIONS if key in given}}
    planned = declare_schedule(
        given["event"],
        options,
        cron=given.get("cron"),
        every=given.get("every"),
        timezone=given.get("timezone", "UTC"),
    )
    return msgspec.structs.replace(planned.schedule, stored=version)
