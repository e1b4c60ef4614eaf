"""The ring: which destinations a worker asks next, where it serves too many to ask all of them.

Those known to have work go round, a few in each claim. Others are found on a lap around the store,
which passes whoever has nothing due. Whoever was asked and had nothing more leaves the ring until a
lap finds it again. A turn ends with the first claim that got something, or with a whole lap after
which everybody with work has been asked in vain: only then is the worker idle.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.claiming.allowance import Allowance, Places, Room, Served
from redrive.claiming.ready import SOON
from redrive.clock import Clock
from redrive.store import Claim, DeliveryQueue, Work

__all__ = ["Ring"]

FEW = 8
"""So many destinations are asked in every claim, without a lap."""

PAGE = 256
"""So many are found by one look at the store at most."""

_MOST_ASKED = 32
_LEAST_PART = 16
"""So many each of those that are asked may give, also where there are too few places for all."""
_LOOKS_AGAIN_SECONDS = (0.02, 0.2)
"""How long those in the ring are served before others are looked for: at least, and at most."""
_LOOKING = 1 / 20
"""The share of the time that may go into looking for others, while those in the ring have work."""
_VAIN_SECONDS = (0.02, 1.0)
"""For how long who was asked in vain is not asked again: at first, and at most."""
_LONGEST_REST = timedelta(seconds=30)


class Ring:
    """Who is asked next, in the name of one worker."""

    def __init__(
        self, store: DeliveryQueue, generations: Sequence[str], places: Places, clock: Clock
    ) -> None:
        self._store = store
        self._generations = generations
        self._places = places
        self._clock = clock
        self._turns = 0
        self._known: dict[str, str] = {}
        """Those with work, in the order of their turns, each with the mark of its gate."""
        self._shut: dict[str, str] = {}
        """Those that are not asked while their gates have these marks."""
        self._alarms: list[tuple[float, str]] = []
        """When a shut gate is to be asked again, whether a lap finds it or not; a heap."""
        self._alarm_of: dict[str, float] = {}
        """The alarm of each that has one; any other of its alarms does not count."""
        self._vain: dict[str, tuple[int, float]] = {}
        """Those that had nothing that may start: how often in a row, and until when they rest."""
        self._tried: set[str] = set()
        """Those that were asked in vain in this turn."""
        self._next_due: datetime | None = None
        """When something more may start of those that were asked in this turn."""
        self._is_held = False
        """Whether somebody else had a hold of something in this turn."""
        self._asked: Sequence[Allowance] = ()
        self._width = _MOST_ASKED
        self._after = 0
        self._looks_at = -math.inf
        self._is_crowded = False

    def begin(self) -> None:
        """Begin a turn."""
        self._tried.clear()
        self._next_due = None
        self._is_held = False

    async def ask(self, served: Served, running: Mapping[str, int]) -> Sequence[Allowance] | Claim:
        """Return whom to ask now; at the end of a turn in vain, what is to be known of that."""
        room = self._places.room(served, running)
        self._is_crowded = len(served) > FEW
        if not self._is_crowded:
            self._asked = _in_turn([room.allow(one) for one in served.values()], self._turns)
            self._turns += 1
            return self._asked
        self._wake()
        self._asked = self._next(served, room)
        if not self._asked:
            work = await self._look_around(served, room)
            self._asked = self._next(served, room)
            if not self._asked:
                return self._nothing(work)
        elif self._clock.monotonic() >= self._looks_at:
            await self._look(served, spares=True)
            self._asked = self._next(served, room)
        return self._asked

    @property
    def is_crowded(self) -> bool:
        """Whether there are more than are asked in every claim."""
        return self._is_crowded

    def ask_again(self, served: Served, running: Mapping[str, int]) -> Sequence[Allowance]:
        """Return the same as the last time, with what they may have now."""
        room = self._places.room(served, running)
        names = [one.destination for one in self._asked]
        return [room.allow(served[name]) for name in names if name in served]

    def heed(self, claim: Claim, *, limit: int) -> None:
        """Learn from a claim who has more."""
        if not self._is_crowded:
            return
        now = self._clock.monotonic()
        given = Counter(one.destination for one in claim.deliveries)
        # A claim that is cut short asks to be made again soon.
        is_cut = claim.next_due is not None and claim.next_due <= claim.now + SOON
        is_full = bool(given) and (len(claim.deliveries) >= limit or is_cut)
        asked = [one.destination for one in self._asked]
        last = max((asked.index(name) for name in given), default=0)
        part = max(2, limit // max(1, len(self._asked)))
        shut = dict(claim.shut)
        for place, one in enumerate(self._asked):
            name, count = one.destination, given[one.destination]
            if is_full and place > last and name not in shut:
                continue  # its turn has not come, and is the next
            mark = self._known.pop(name, "")
            if count:
                self._vain.pop(name, None)
            if name in shut:
                self._shut[name] = mark
                opens_at = shut[name]
                rest = _LONGEST_REST if opens_at is None else opens_at - claim.now
                self._rouse(name, now, min(rest, _LONGEST_REST))
            elif count >= min(one.total, part) or (is_full and place == last):
                self._known[name] = mark
            elif not count:
                self._rest(name, now)
        if claim.next_due is not None:
            self._next_due = min(claim.next_due, self._next_due or claim.next_due)
        self._is_held = self._is_held or claim.is_held
        self._fit(len(given), is_full=is_full)

    def _nothing(self, work: Work) -> Claim:
        """Return what is to be known after a whole lap in vain."""
        times = [one for one in (work.next_due, self._next_due) if one is not None]
        return Claim(
            now=work.now,
            next_due=self._earliest(min(times, default=None), work.now),
            routes_version=work.routes_version,
            is_held=work.is_held or self._is_held,
        )

    def _fit(self, givers: int, *, is_full: bool) -> None:
        """Ask as many next time as it takes to fill the worker."""
        if not is_full:
            self._width = min(2 * self._width, _MOST_ASKED)
        elif givers < self._width:
            self._width = max(2, givers + 1)

    def _next(self, served: Served, room: Room) -> Sequence[Allowance]:
        """Return the next of those with work who have a place, no more than there are places."""
        most = min(self._width, room.free)
        chosen: list[Allowance] = []
        gone: list[str] = []
        for name in self._known:
            if len(chosen) == most:
                break
            if name not in served:
                gone.append(name)
            elif (allowance := room.allow(served[name])).total > 0:
                chosen.append(allowance)
        for name in gone:
            del self._known[name]
        return _parted(chosen, room.free)

    async def _look_around(self, served: Served, room: Room) -> Work:
        """Look for somebody who has a place and was not asked in this turn, once around."""
        is_whole = self._after == 0
        while True:
            work = await self._look(served, spares=False)
            if self._next(served, room) or (is_whole and not self._after):
                return work
            is_whole = is_whole or not self._after

    async def _look(self, served: Served, *, spares: bool) -> Work:
        """Go on with the lap; it may spare those that were often asked in vain."""
        began = self._clock.monotonic()
        work = await self._store.find_work(self._generations, after=self._after, limit=PAGE)
        self._after = work.after or 0
        now = self._clock.monotonic()
        for name, mark in work.destinations:
            if name not in served or name in self._tried or self._shut.get(name) == mark:
                continue
            if spares and self._rests(name, now):
                continue
            self._shut.pop(name, None)
            self._known.setdefault(name, mark)
        least, most = _LOOKS_AGAIN_SECONDS
        is_long = len(self._known) > self._width
        self._looks_at = now + (
            most if is_long else min(most, max(least, (now - began) / _LOOKING))
        )
        return work

    def _rest(self, name: str, now: float) -> None:
        """Let who was asked in vain rest, the longer the more often that was so."""
        self._tried.add(name)
        times, _ = self._vain.get(name, (0, now))
        first, most = _VAIN_SECONDS
        self._vain[name] = times + 1, now + min(most, first * 2**times)

    def _rests(self, name: str, now: float) -> bool:
        return name in self._vain and now < self._vain[name][1]

    def _rouse(self, name: str, now: float, after: timedelta) -> None:
        when = now + max(0.0, after.total_seconds())
        if when < self._alarm_of.get(name, math.inf):
            self._alarm_of[name] = when
            heapq.heappush(self._alarms, (when, name))

    def _wake(self) -> None:
        """Put back those whose time has come."""
        now = self._clock.monotonic()
        while self._alarms and self._alarms[0][0] <= now:
            when, name = heapq.heappop(self._alarms)
            if self._alarm_of.get(name) == when:
                del self._alarm_of[name]
                self._known.setdefault(name, self._shut.pop(name, ""))

    def _earliest(self, next_due: datetime | None, now: datetime) -> datetime | None:
        """Return when somebody is to be asked again, by the store's clock."""
        if not self._alarms:
            return next_due
        wait = max(0.0, self._alarms[0][0] - self._clock.monotonic())
        # Rounded down, the alarm might not have come by then, and the same would be told for ever.
        when = now + timedelta(microseconds=math.ceil(wait * 1e6))
        return when if next_due is None else min(next_due, when)


def _parted(allowances: Sequence[Allowance], places: int) -> Sequence[Allowance]:
    """Part the places evenly where there are too few of them.

    What was published at the same time lies side by side in a store, whoever it is for: it costs
    less to change it in the same transaction.
    """
    if sum(one.total for one in allowances) <= places:
        return allowances
    part = max(_LEAST_PART, math.ceil(places / len(allowances)))
    return [
        one if one.total <= part else msgspec.structs.replace(one, total=part) for one in allowances
    ]


def _in_turn(allowances: Sequence[Allowance], turns: int) -> Sequence[Allowance]:
    first = turns % len(allowances) if allowances else 0
    return [*allowances[first:], *allowances[:first]]
