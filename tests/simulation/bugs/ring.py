"""Planted bugs of the ring, which finds those with work among many destinations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.model.gate import Closed
from redrive.store import Claim, ClaimRequest, Work
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


def _forget_who_is_left(self: Ring, claim: Claim, *, limit: int) -> None:
    """Who was asked last and was not reached leaves the ring, and no lap brings it back."""
    asked, known = [one.destination for one in self._asked], set(self._known)
    _heed(self, claim, limit=limit)
    if self._is_crowded and len(asked) > 1 and asked[-1] in known:
        self._known.pop(asked[-1], None)
        self._shut[asked[-1]] = _Anything()


class GatePassedInTheCrowd(MemoryStore):
    async def claim(self, request: ClaimRequest) -> Claim:
        """Ask the last of several as if its gate were open."""
        if len(request.allowances) < _SEVERAL:
            return await super().claim(request)
        name = request.allowances[-1].destination
        gate = self._gate(name)
        self._gates[name] = msgspec.structs.replace(gate, pause=None, breaker=Closed())
        try:
            return await super().claim(request)
        finally:
            self._gates[name] = gate


class _Anything(str):
    """A mark that no gate ever changes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


_SEVERAL = 3
_heed = Ring.heed

BUGS: tuple[Bug, ...] = (
    Bug("a lap skips somebody", LapSkips),
    Bug("a lap passes what was scheduled", LapPassesWhatHasComeDue),
    Bug("a shut gate is never asked again", patches=((Ring, "_rouse", _forget_the_alarm),)),
    Bug("a destination is never visited again", patches=((Ring, "heed", _leave_for_good),)),
    Bug("a shut gate is passed in a crowd", GatePassedInTheCrowd, is_crowded=True),
    Bug(
        "who was not reached leaves the ring",
        patches=((Ring, "heed", _forget_who_is_left),),
        is_crowded=True,
    ),
)
