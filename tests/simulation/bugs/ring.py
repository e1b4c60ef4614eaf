"""Planted bugs of the ring, which finds those with work among many destinations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.store import Claim, Work
from redrive.stores.memory import MemoryStore
from redrive.worker.ring import Ring
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class LapSkips(MemoryStore):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        return await super().find_work(generations, after=max(1, after), limit=limit)


class LapPassesWhatHasComeDue(MemoryStore):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        work = await super().find_work(generations, after=after, limit=limit)
        fresh = {row.destination for row in self._rows.values() if row.due <= row.enqueued_at}
        found = tuple(one for one in work.destinations if one[0] in fresh)
        return msgspec.structs.replace(work, destinations=found)


def _forget_the_alarm(self: Ring, name: str, now: float, after: timedelta) -> None:
    pass


def _leave_for_good(self: Ring, claim: Claim, *, limit: int) -> None:
    asked = [one.destination for one in self._asked]
    _heed(self, claim, limit=limit)
    for name in asked:
        if self._is_crowded and name not in self._known:
            self._shut[name] = _Anything()


class _Anything(str):
    """A mark that no gate ever changes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


_heed = Ring.heed

BUGS: tuple[Bug, ...] = (
    Bug("a lap skips somebody", LapSkips),
    Bug("a lap passes what was scheduled", LapPassesWhatHasComeDue),
    Bug("a shut gate is never asked again", patches=((Ring, "_rouse", _forget_the_alarm),)),
    Bug("a destination is never visited again", patches=((Ring, "heed", _leave_for_good),)),
)
