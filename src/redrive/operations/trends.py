"""Trends: what became of deliveries over the last hour, day or week."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import UsageError, not_found
from redrive.model.trend import Trend, Window
from redrive.operations.looking import Looking
from redrive.policies.trend import drawn
from redrive.store import EVERYWHERE

__all__ = ["MOST_TRENDS", "Trending", "window_of"]

MOST_TRENDS = 100
"""How many are read at once, at most."""


class Trending(Looking):
    """Look at what became of deliveries over time."""

    async def trends(
        self, destinations: Sequence[str] = (), *, over: Window | str = Window.HOUR
    ) -> Sequence[Trend]:
        """Return what became of deliveries to each of the destinations, point by point.

        If none is named, to all of them together. What a worker has settled in the last ten seconds
        may not be in it yet.
        """
        window = window_of(over)
        if isinstance(destinations, str) or len(destinations) > MOST_TRENDS:
            raise UsageError(
                f"The destinations are {destinations!r:.300}; name at most {MOST_TRENDS}, in a "
                "list."
            )
        store = await self._store()
        kept = await store.trends(destinations or [EVERYWHERE], back=window.span)
        if unseen := {name for name in destinations if not kept.points[name]}:
            unseen -= {one.name for one in (await store.routes()).destinations}
        if unseen:  # those that were removed have figures as long as they have deliveries
            known = [one.name for one in (await self.status()).destinations]
            for name in sorted(unseen.difference(known)):
                raise not_found(name, known, what="destination")
        return [
            Trend(
                destination=name or None,
                window=window,
                step=window.step,
                now=kept.now,
                points=drawn(kept.points[name], window, now=kept.now),
            )
            for name in destinations or [EVERYWHERE]
        ]


def window_of(over: Window | str) -> Window:
    """Read how far back to look."""
    try:
        return Window(over)
    except ValueError:
        known = ", ".join(Window)
        raise UsageError(f"A trend goes over one of: {known}; not over {over!r:.100}.") from None
