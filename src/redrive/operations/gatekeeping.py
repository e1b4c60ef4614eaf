"""Acting on gates: pause and resume destinations, set limits for a while, open breakers."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.errors import UsageError
from redrive.model.audit import Actor
from redrive.model.checks import check_instant
from redrive.model.duration import Duration, duration
from redrive.model.gate import BreakerChange, Closed, Override
from redrive.model.limits import Limits, Rate, read_rate
from redrive.observer import BreakerChanged
from redrive.operations.context import OperationContext, with_reason

__all__ = ["Gatekeeping"]

_LONGEST_OVERRIDE = timedelta(days=30)
"""What is to last longer belongs in the declaration."""


class Gatekeeping(OperationContext):
    """Act on the gates of destinations."""

    async def pause(self, destination: str, *, by: str, why: str = "") -> bool:
        """Stop a destination; its deliveries wait, and no attempt is spent."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).pause(destination, actor=actor)
        return self._acted("pause", destination, actor, is_new=is_new)

    async def resume(self, destination: str, *, by: str, why: str = "") -> bool:
        """Let a paused destination go on, at the pace of retries."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).resume(destination, actor=actor)
        return self._acted("resume", destination, actor, is_new=is_new)

    async def override(
        self,
        destination: str,
        *,
        lasts: Duration,
        by: str,
        why: str,
        rate: Rate | str | None = None,
        retry_rate: Rate | str | None = None,
        replay_rate: Rate | str | None = None,
        concurrency: int | None = None,
    ) -> Override:
        """Set limits of a destination for a while, above whatever is declared.

        What is left out stays as it is declared. Another override of the destination ends.
        """
        actor = with_reason(by, why, "set limits")
        span = duration(lasts, name="lasts", longest=_LONGEST_OVERRIDE)
        if not span:
            raise UsageError('The limits would last 0s; say for how long, such as "2h".')
        limits = Limits(
            rate=read_rate(rate, name="rate"),
            retry_rate=read_rate(retry_rate, name="retry_rate"),
            replay_rate=read_rate(replay_rate, name="replay_rate"),
            concurrency=concurrency,
        )
        if limits == Limits():
            raise UsageError("Nothing was set; give a rate or a concurrency.")
        store = await self._to_change()
        override = await store.override(destination, limits, lasts=span, actor=actor)
        self._acted("override", destination, actor, is_new=True)
        return override

    async def end_override(self, destination: str, *, by: str, why: str = "") -> bool:
        """Go back to the declared limits before an override ends by itself."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).end_override(destination, actor=actor)
        return self._acted("end_override", destination, actor, is_new=is_new)

    async def open_breaker(
        self, destination: str, *, by: str, why: str = "", until: datetime | None = None
    ) -> BreakerChange:
        """Open a breaker by hand, until an instant or until it is reset."""
        if until is not None:
            until = check_instant("until", until)
        change = await (await self._to_change()).open_breaker(
            destination, until=until, actor=Actor(by, why)
        )
        self._observer.notice(BreakerChanged(change=change, by=by))
        return change

    async def reset_breaker(self, destination: str, *, by: str, why: str = "") -> BreakerChange:
        """Close a breaker by hand; what waited goes on at the pace of retries."""
        change = await (await self._to_change()).reset_breaker(destination, actor=Actor(by, why))
        self._observer.notice(BreakerChanged(change=change, by=by))
        return change

    async def reset_breakers(self, *, by: str, why: str = "") -> list[BreakerChange]:
        """Close all breakers that are not closed, such as after an outage of your own network."""
        gates = await (await self._store()).gates()
        shut = [one.destination for one in gates if not isinstance(one.gate.breaker, Closed)]
        return [await self.reset_breaker(one, by=by, why=why) for one in shut]
