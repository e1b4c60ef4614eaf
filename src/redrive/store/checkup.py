"""What a look at the system can show: findings, each with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from redrive.model.delivery import DeliveryId

__all__ = ["Checkup", "Finding", "Level", "Miscount", "Topic"]


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Topic(StrEnum):
    """What a finding is about, where something can be done about it."""

    WORKERS = "workers"
    PAUSE = "pause"
    BREAKER = "breaker"
    DEAD_LETTERS = "dead_letters"
    DESTINATION = "destination"
    TENANT = "tenant"
    SCHEDULE = "schedule"
    PROJECTION = "projection"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at, how it is, and what to do about it.

    `name` is that of the one it is about, be it a destination, a tenant or whatever its topic is.
    """

    level: Level
    what: str
    advice: str = ""
    topic: Topic | None = None
    name: str = ""


class Miscount(msgspec.Struct, frozen=True, kw_only=True):
    """A count that is kept, and that there is another number of; of events if at no destination."""

    destination: str | None
    what: str
    kept: int
    counted: int


class Checkup(Protocol):
    """Whether the store itself is well."""

    schema_version: int
    """The version of the schema, once open; 0 where there is none."""

    async def stuck(self, *, limit: int = 100) -> Sequence[DeliveryId]:
        """Return pending deliveries that wait behind nobody, which nothing would ever free.

        There are none, unless something is wrong. May read all that is in lanes.
        """

    async def miscounts(self) -> Sequence[Miscount]:
        """Compare the counts that are kept with a recount, which reads everything.

        None differs, unless something is wrong.
        """

    async def recount(self) -> Sequence[Miscount]:
        """Correct the counts that are kept, and return those that were wrong."""

    async def check(self) -> Sequence[Finding]:
        """Look for what is wrong with the store; may read all of it, and changes nothing."""
