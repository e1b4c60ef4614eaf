"""Rates that several destinations share: what each may draw from them now, and whose turn it is.

Pure functions of the shared state, and a count of what one claim draws. Whoever had less than it
could have started waits in line. What there is goes to those who wait longest, one each, or to all
of them alike where there is enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from redrive.claiming.passage import SHUT, Passage
from redrive.claiming.ready import SOON
from redrive.model.gate import Bucket, Hold
from redrive.model.limits import Rate, SharedRate
from redrive.policies.buckets import awaited, taken, whole

__all__ = ["SharedBucket", "Sharing", "held", "share"]

_FORGOTTEN_AFTER = timedelta(seconds=2)
"""Nobody waits for a destination that was not asked for as long: each worker asks every second."""
_NOTED_AFTER = timedelta(milliseconds=500)


class InLine(msgspec.Struct, frozen=True, array_like=True):
    """A destination that waits for its share, by its place in line, and when it last asked."""

    destination: str
    place: int
    seen_at: datetime


class SharedBucket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens that several destinations share, and who of them waits for some."""

    bucket: Bucket = Bucket()
    waiting: tuple[InLine, ...] = ()
    last_place: int = 0


def share(shared: SharedBucket, rate: Rate, destination: str, *, now: datetime) -> int:
    """Return how many tokens a destination may take now, so that those who wait get theirs."""
    tokens = whole(shared.bucket, rate, now=now)
    others = [one for one in _waiting(shared, now) if one.destination != destination]
    if tokens > len(others):
        return tokens // (len(others) + 1)
    places = [one.place for one in _waiting(shared, now) if one.destination == destination]
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

    def held(self) -> dict[str, datetime]:
        """Return those who used all that they were offered, each with when to ask again."""
        found = {}
        for name, bound in self._bounds.items():
            if self._taken[name] < bound:
                continue
            one = self._rates[name]
            bucket = self._after[one.name].bucket
            is_anothers = whole(bucket, one.rate, now=self._now) > 0
            found[name] = (
                self._now + SOON if is_anothers else awaited(bucket, one.rate, now=self._now)
            )
        return found

    def changed(self, waiting: Collection[str]) -> dict[str, SharedBucket]:
        """Return what is different afterwards, where these destinations still have work."""
        for destination, one in self._rates.items():
            self._after[one.name] = _lined_up(
                self._after[one.name],
                destination,
                is_waiting=destination in waiting,
                is_served=self._taken[destination] > 0,
                now=self._now,
            )
        return {name: one for name, one in self._after.items() if one != self._before[name]}


def _lined_up(
    shared: SharedBucket, destination: str, *, is_waiting: bool, is_served: bool, now: datetime
) -> SharedBucket:
    """Return the line after a destination was asked: who was served goes to its end."""
    line = _waiting(shared, now)
    others = [one for one in line if one.destination != destination]
    own = [one for one in line if one.destination == destination]
    last = shared.last_place
    if is_waiting and (is_served or not own):
        last += 1
        others.append(InLine(destination, last, now))
    elif is_waiting:
        # Who asks often is not written down each time.
        is_fresh = abs(now - own[0].seen_at) < _NOTED_AFTER
        others.append(own[0] if is_fresh else InLine(destination, own[0].place, now))
    others.sort(key=lambda one: one.place)
    return msgspec.structs.replace(shared, waiting=tuple(others), last_place=last)


def _waiting(shared: SharedBucket, now: datetime) -> list[InLine]:
    return [one for one in shared.waiting if abs(now - one.seen_at) < _FORGOTTEN_AFTER]
