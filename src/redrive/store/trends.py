"""What a store promises about trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.trend import Measure, TrendPoint

__all__ = ["EVERYWHERE", "KeptTrends", "Trends"]

EVERYWHERE = ""
"""Stands for all destinations together; none has this name."""


class KeptTrends(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of some destinations, each in the order of time, and the store's present.

    Each point stands for the minute that it begins with, for ten or for an hour: the older, the
    longer.
    """

    now: datetime
    points: Mapping[str, Sequence[TrendPoint]]


class Trends(Protocol):
    """What became of deliveries lately: by the minute, by ten minutes, by the hour.

    They are for people to look at. Nothing is decided by them, and nothing else is counted by them.
    """

    async def add_trends(self, measures: Mapping[str, Measure]) -> None:
        """Add what became of deliveries to these destinations to the present minute.

        It is added to what is kept of all destinations together, too, as `EVERYWHERE`.
        """

    async def trends(self, names: Sequence[str], *, back: timedelta) -> KeptTrends:
        """Return what is kept of these destinations, at least of the last while.

        A destination of which nothing is kept has no points.
        """

    async def roll_up_trends(self, *, limit: int = 500) -> int:
        """Add up what is old; tells how much it did, which is `limit` if there may be more.

        A minute is kept for three hours, ten minutes are for two days, an hour for a week. Nothing
        that is kept is lost or counted twice, whoever writes or rolls up at the same time.
        """
