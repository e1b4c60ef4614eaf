"""Fairness between tenants: whose deliveries go next when a destination cannot take all of them.

Tenants take turns in the order of their names, from where the last claim stopped: a weighted
deficit round robin in which nobody saves up what it did not use. Pure functions, called by a store
within its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from redrive.model.gate import Bucket, Rotation
from redrive.model.limits import Rate
from redrive.policies.buckets import awaited, taken, whole

__all__ = [
    "PLENTY",
    "Line",
    "Served",
    "Share",
    "affordable",
    "begin",
    "in_turn",
    "keeps_account",
    "next_token",
    "rounds_waited",
    "serve",
    "spent",
    "urgency",
]

T = TypeVar("T")
PLENTY = 1_000_000
_LEAST_URGENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Generic[T]):
    """One tenant's due work, in the order it would go.

    `turn` is how much of it may follow each other, `tokens` how much its own rate allows.
    `is_cut` says that there may be more work than is known here.
    """

    tenant: str
    turn: int
    work: Sequence[T]
    tokens: int = PLENTY
    is_cut: bool = False


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant got: how many, how many in a row at the end, and in which round."""

    tenant: str
    count: int
    in_a_row: int
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Generic[T]):
    """Who gets what, in this order, and how the turns stand afterwards.

    `longing` are the tenants that could take more than was read of their line; `spent` are those
    held back by their own rate, not by the room.
    """

    chosen: Sequence[T]
    served: Sequence[Served]
    rotation: Rotation
    longing: Sequence[str] = ()
    spent: Sequence[str] = ()


def in_turn(tenants: Iterable[str], rotation: Rotation) -> list[str]:
    """Return the tenants in the order of their turns, each once."""
    names = sorted(dict.fromkeys(tenants))
    start, is_included = begin(rotation)
    ahead = [name for name in names if name > start or (is_included and name == start)]
    return ahead + names[: len(names) - len(ahead)]


def begin(rotation: Rotation) -> tuple[str, bool]:
    """Return the name at which the turns go on, and whether it may have the next one itself."""
    if rotation.behind is not None:
        return rotation.behind, False
    if rotation.tenant is None:
        return "", True
    return rotation.tenant, rotation.left > 0


def keeps_account(lines: Sequence[Line[T]], rotation: Rotation) -> bool:
    """Tell whether there are tenants at all; without any, nothing about them is kept."""
    return rotation.tenant is not None or any(line.tenant or line.tokens < PLENTY for line in lines)


def serve(
    lines: Sequence[Line[T]],
    rotation: Rotation,
    *,
    room: int,
    admit: Callable[[T], bool] | None = None,
    is_exhausted: Callable[[T], bool] | None = None,
    is_everybody: bool = True,
) -> Share[T]:
    """Deal out the room among the tenants, who are given in the order of their turns.

    `admit` asks the destination's gate for each piece of work and takes the token; `is_exhausted`
    says whether the tokens for such work are used up. Without them everything passes. Where some
    kind of token was the limit and not the room, the next turn is behind whoever got the last of
    them: otherwise the one who happens to come first would have them all. Unless these tenants
    are everybody, none of them gets a second turn.
    """
    if not keeps_account(lines, rotation):
        work = lines[0].work if lines else ()
        chosen = work[:room] if admit is None else [one for one in work if admit(one)]
        longing = [line.tenant for line in lines if line.is_cut and len(chosen) < room]
        return Share(chosen=chosen, served=(), rotation=rotation, longing=longing)
    dealing = _Dealing(lines, rotation, room=room, admit=admit, is_exhausted=is_exhausted)
    return dealing.take(rounds=PLENTY if is_everybody else 1)


class _Dealing(Generic[T]):
    """The turns of one claim, one after the other."""

    def __init__(
        self,
        lines: Sequence[Line[T]],
        rotation: Rotation,
        *,
        room: int,
        admit: Callable[[T], bool] | None,
        is_exhausted: Callable[[T], bool] | None,
    ) -> None:
        self._places = [_Progress(line) for line in lines]
        self._admit = admit
        self._is_exhausted = is_exhausted
        self._room = room
        self._tenant = rotation.tenant
        self._left = rotation.left
        self._in_a_row = rotation.in_a_row
        self._round = rotation.round
        self._before = rotation
        self._chosen: list[T] = []
        self._owners: list[str] = []

    def take(self, *, rounds: int) -> Share[T]:
        """Let the tenants take turns until the room is used up, or nothing is left to do."""
        active = [place for place in self._places if not place.is_done]
        while active and self._room > 0 and rounds > 0:
            rounds -= 1
            for place in active:
                if self._room > 0:
                    self._take_turn(place)
            active = [place for place in active if not place.is_done]
        return Share(
            chosen=self._chosen,
            served=[place.served for place in self._places if place.served is not None],
            rotation=self._rotation(),
            longing=[place.line.tenant for place in self._places if place.longs_for_more],
            spent=[place.line.tenant for place in self._places if self._room and place.is_spent],
        )

    def _take_turn(self, place: _Progress[T]) -> None:
        line = place.line
        goes_on = line.tenant == self._tenant and self._left > 0
        allowed = min(self._left, line.turn) if goes_on else line.turn
        most = min(allowed, self._room, line.tokens - place.count)
        got = place.take(most, self._admit)
        is_short = len(got) < most
        place.is_done = is_short or place.count >= line.tokens
        place.longs_for_more = is_short and line.is_cut
        if not got:
            return
        if not goes_on and self._tenant is not None and line.tenant <= self._tenant:
            self._round += 1
        self._in_a_row = len(got) + (self._in_a_row if line.tenant == self._tenant else 0)
        self._tenant = line.tenant
        # A tenant with nothing left ends its turn; one that lacked a token does not.
        self._left = 0 if place.is_done and not place.was_refused else allowed - len(got)
        self._room -= len(got)
        self._chosen += got
        self._owners += [line.tenant] * len(got)
        place.served = Served(
            tenant=line.tenant, count=place.count, in_a_row=self._in_a_row, round=self._round
        )

    def _rotation(self) -> Rotation:
        if not self._chosen:
            return self._before
        return Rotation(
            tenant=self._tenant,
            left=self._left,
            in_a_row=self._in_a_row,
            round=self._round,
            behind=self._last_of_the_scarce() if self._room > 0 else None,
        )

    def _last_of_the_scarce(self) -> str | None:
        """Return who got the last token of a kind, if others got more of another kind since."""
        if self._is_exhausted is None or self._is_exhausted(self._chosen[-1]):
            return None
        pairs = zip(reversed(self._chosen), reversed(self._owners), strict=True)
        return next((owner for one, owner in pairs if self._is_exhausted(one)), None)


class _Progress(Generic[T]):
    """How far one line has come."""

    def __init__(self, line: Line[T]) -> None:
        self.line = line
        self.count = 0
        self.served: Served | None = None
        self.is_done = line.tokens <= 0
        self.longs_for_more = False
        self.was_refused = False
        self._position = 0

    @property
    def is_spent(self) -> bool:
        """Whether its own rate is what keeps it from more."""
        has_more = self._position < len(self.line.work) or self.line.is_cut
        return self.count >= self.line.tokens and has_more

    def take(self, most: int, admit: Callable[[T], bool] | None) -> Sequence[T]:
        """Return the next that pass, so many at most."""
        got: list[T] = []
        if admit is None:
            got += self.line.work[self._position : self._position + most]
            self._position += len(got)
        while admit is not None and len(got) < most and self._position < len(self.line.work):
            one = self.line.work[self._position]
            self._position += 1
            if admit(one):
                got.append(one)
            else:
                self.was_refused = True
        self.count += len(got)
        return got


def affordable(bucket: Bucket, rate: Rate | None, *, now: datetime) -> int:
    """Return how many attempts a tenant's rate allows now."""
    return PLENTY if rate is None else whole(bucket, rate, now=now)


def next_token(bucket: Bucket, rate: Rate, *, now: datetime) -> datetime:
    """Return when a tenant has a whole token again."""
    return awaited(bucket, rate, now=now)


def spent(bucket: Bucket, rate: Rate | None, count: int, *, now: datetime) -> Bucket:
    """Return the bucket after so many attempts."""
    return taken(bucket, rate, count, now=now)


def rounds_waited(rotation: Rotation, last_round: int | None, *, pending: int) -> int:
    """Return how many times the turns have begun anew since a tenant with work was served.

    A worker of an earlier release forgets the rotation, so the rounds may have begun from zero.
    """
    if last_round is None or not pending:
        return 0
    return max(0, rotation.round - last_round)


def urgency(rounds: int) -> int:
    """Return how urgent a turn is after so many rounds: from 5, just served, to 1, most urgent."""
    return max(1, _LEAST_URGENT - rounds)
