"""Rates that several destinations share: what each may draw from them now, and whose turn it is.

Pure functions of the shared state, and a count of what one claim draws. Whoever had less than it
could have started waits in line, and is told when its turn is. What there is goes to those who wait
longest, one each, or to all of them alike where there is enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from redrive.claiming.passage import SHUT, Passage
from redrive.model.gate import Bucket, Hold
from redrive.model.limits import Rate, SharedRate
from redrive.policies.buckets import awaited, refilled, taken, whole

__all__ = ["SharedBucket", "Sharing", "held", "share"]

_FORGOTTEN_AFTER = timedelta(seconds=2)
"""Nobody waits for a destination that has not asked for as long since its turn."""
_NOTED_AFTER = timedelta(milliseconds=500)
_LONGEST_REST = timedelta(seconds=10)
"""Whoever waits asks as often, however far its turn is: others may have left the line meanwhile."""


class InLine(msgspec.Struct, frozen=True, array_like=True):
    """A destination that waits for its share, by its place in line, and when it is to ask again."""

    destination: str
    place: int
    turn: datetime


class SharedBucket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens that several destinations share, and who of them waits for some."""

    bucket: Bucket = Bucket()
    waiting: tuple[InLine, ...] = ()
    last_place: int = 0


def share(shared: SharedBucket, rate: Rate, destination: str, *, now: datetime) -> int:
    """Return how many tokens a destination may take now, so that those who wait get theirs."""
    tokens = whole(shared.bucket, rate, now=now)
    line = _waiting(shared, now)
    others = [one for one in line if one.destination != destination]
    if tokens > len(others):
        return tokens // (len(others) + 1)
    places = [one.place for one in line if one.destination == destination]
    first = places[0] if places else shared.last_place + 1
    return int(sum(one.place < first for one in others) < tokens)


def held(passage: Passage, shared: SharedBucket, rate: Rate, *, now: datetime) -> Passage:
    """Return what a gate lets through, where there may be no token of a rate that is shared."""
    if whole(shared.bucket, rate, now=now) or (passage.holds and passage.holds[0] in SHUT):
        return passage
    again_at = awaited(shared.bucket, rate, now=now)
    return msgspec.structs.replace(
        passage,
        holds=(*passage.holds, Hold.SHARED_RATE),
        again_at=min(again_at, passage.again_at or again_at),
    )


class Sharing:
    """What the destinations of one claim draw from the rates that they share.

    `rates` are by the destinations, `buckets` by the names of the rates; their owner holds them.
    """

    def __init__(
        self,
        rates: Mapping[str, SharedRate],
        buckets: Mapping[str, SharedBucket],
        *,
        now: datetime,
    ) -> None:
        self._rates = rates
        self._before = buckets
        self._after = dict(buckets)
        self._now = now
        self._offers = {
            name: share(buckets[one.name], one.rate, name, now=now) for name, one in rates.items()
        }
        self._bounds: dict[str, int] = {}
        self._taken: Counter[str] = Counter()

    def bound(self, destination: str, room: int) -> int:
        """Return how many may start, of as many as there is room for."""
        one = self._rates.get(destination)
        if one is None:
            return room
        tokens = whole(self._after[one.name].bucket, one.rate, now=self._now)
        bound = max(0, min(self._offers[destination], tokens))
        if bound >= room:
            return room
        self._bounds[destination] = bound
        return bound

    def charge(self, destination: str, count: int) -> None:
        """Take tokens for so many that start."""
        one = self._rates.get(destination)
        if one is None or not count:
            return
        self._taken[destination] += count
        shared = self._after[one.name]
        bucket = taken(shared.bucket, one.rate, count, now=self._now)
        self._after[one.name] = msgspec.structs.replace(shared, bucket=bucket)

    def held(self) -> list[str]:
        """Return those who used all that they were offered: they wait, if they have more work."""
        return [name for name, bound in self._bounds.items() if self._taken[name] >= bound]

    def line_up(self, waiting: Collection[str]) -> dict[str, datetime]:
        """Line up those of the claim that still have work; returns when each is to ask again."""
        turns: dict[str, datetime] = {}
        for name, shared in self._after.items():
            asked = {who: one.rate for who, one in self._rates.items() if one.name == name}
            line = [
                one
                for one in _waiting(shared, self._now)
                if one.destination not in asked
                or (one.destination in waiting and not self._taken[one.destination])
            ]
            stayed, last = {one.destination for one in line}, shared.last_place
            joining = [who for who in asked if who in waiting and who not in stayed]
            for who in sorted(joining, key=lambda who: self._taken[who] > 0):
                last += 1
                line.append(InLine(who, last, self._now))
            for ahead, one in enumerate(line):
                if (rate := asked.get(one.destination)) is not None:
                    turn = _turn(shared.bucket, rate, ahead, now=self._now)
                    turns[one.destination] = turn
                    # Who is told nearly the same again is not written down each time.
                    if abs(turn - one.turn) >= _NOTED_AFTER:
                        line[ahead] = msgspec.structs.replace(one, turn=turn)
            self._after[name] = msgspec.structs.replace(
                shared, waiting=tuple(line), last_place=last
            )
        return turns

    def step_back(self) -> None:
        """Send who was served to the end of the line, if it waits: it was for something else."""
        self.line_up([who.destination for one in self._after.values() for who in one.waiting])

    def changed(self) -> dict[str, SharedBucket]:
        """Return what is different afterwards."""
        return {name: one for name, one in self._after.items() if one != self._before[name]}


def _turn(bucket: Bucket, rate: Rate, ahead: int, *, now: datetime) -> datetime:
    """Return when who has so many others ahead is to ask: once there is a token for each."""
    latest, wanted = now + _LONGEST_REST, ahead + 1.0
    missing = wanted - refilled(bucket, rate, now=now)
    if missing > rate.per_second * _LONGEST_REST.total_seconds():
        return latest  # what is computed might lie beyond the last of all years
    return min(latest, awaited(bucket, rate, wanted=wanted, now=now))


def _waiting(shared: SharedBucket, now: datetime) -> list[InLine]:
    # A turn that is further off than anybody's was told before the clock was set back.
    return [
        one
        for one in shared.waiting
        if -_FORGOTTEN_AFTER < one.turn - now < _LONGEST_REST + _FORGOTTEN_AFTER
    ]
