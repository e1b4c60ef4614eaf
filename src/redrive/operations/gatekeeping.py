"""Acting on gates: pause and resume destinations, open and reset breakers."""

from __future__ import annotations

from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.checks import check_instant
from redrive.model.gate import BreakerChange, Closed
from redrive.observer import BreakerChanged
from redrive.operations.context import OperationContext

__all__ = ["Gatekeeping"]


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
