"""What an open PostgreSQL store remembers between calls: all of it, and nothing that it needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from redrive.clock import Clock
from redrive.model.gate import BreakerState
from redrive.stores.postgres.scan_bounds import ScanBounds
from redrive.stores.sealed import Codec

__all__ = ["Duties", "Facts", "KnownGate", "Numbers"]

_LONGEST_TURN_SECONDS = 60.0


class KnownGate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate and its destination as the last claim in steps has left them.

    A plain one lets a first attempt pass and stays as it is: no limit, no override, no outage, no
    pause, no order, no tenants who take turns.
    """

    number: int
    description: str
    """The destination's document."""
    gate: str | None
    """The gate's own document, if it is plain."""
    breaker: BreakerState
    reopened_at: datetime | None
    keeps_order: bool
    counts_leases: bool
    """Whether what it lets through depends on how much is in flight."""
    read_at: datetime


class Numbers(msgspec.Struct, frozen=True):
    """The numbers of the destinations in one version of the routes."""

    version: int
    of: Mapping[str, int]
    expiring: frozenset[str] = frozenset()
    """Those whose deliveries have a life time of their own."""


class Duties(NamedTuple):
    """Which duties may have something to do, and whether destinations have changed."""

    now: datetime
    has_expired: bool
    has_overdue: bool
    may_shed: bool
    has_late: bool
    has_replays: bool
    has_auto_replays: bool
    is_misjudged: bool
    routes_version: int


class Facts:
    """Every fact that spares a trip to the server; each may be old, and all may be forgotten.

    No answer of the store depends on one of them. Whoever goes by a fact lets the server compare
    it in the same statement, or loses no more than a trip, a moment or an even share.

    - `gates`: lets a turn go by single statements. A claim and a report compare the documents, a
      settlement refuses what is in a lane, and an idle poll leaves alone what is ready.
    - `worker`: who was seen on record, so that a claim need not put it there. A worker that others
      have forgotten is brought back by its heartbeat.
    - `served`: the destinations of the last claim, whose gates say how its settlements go.
    - `is_idle`: whether the last claim found nothing, so that the next one brings along what the
      duties ask. If it is wrong, they ask by themselves.
    - `is_busy`: whether it got all it asked for, so that the next one need not wait for lanes that
      are just being freed. If it then finds nothing, it waits all the same.
    - `asked`, `taken`: how a limit was shared by several destinations, to share the next better.
    - `misses`, `rest`: how often single statements claimed in vain, and how many claims still go
      by steps at once.
    - `bounds`: where fresh deliveries begin, so that a claim need not read past what is gone; see
      `ScanBounds` for why nothing is ever before them.
    - `numbers`: what the routes call the destinations. Whoever appends by them has the version
      compared.
    - `duties`: what the duties have asked just now. It serves them for a moment, unless this
      process has changed something; what others do they see a moment later.
    - `patience`: for how long a worker waits for an answer, which is how long its leases last.

    `ways` counts which way each act took, and `last` names the last of each: they are told, and
    never asked.
    """

    def __init__(self, clock: Clock, codec: Codec) -> None:
        self._clock = clock
        self.codec = codec
        self.bounds = ScanBounds(clock)
        self.ways: Counter[str] = Counter()
        """By act and way, such as `"claim: statement"` and `"claim: steps"`."""
        self.last: dict[str, str] = {}
        self.forget()

    def forget(self) -> None:
        """Know nothing, as when the store was opened; what was counted stays."""
        self.bounds.forget()
        self.gates: dict[str, KnownGate] = {}
        self.worker = ""
        self.served: frozenset[str] = frozenset()
        self.is_idle = self.is_busy = False
        self.asked: Mapping[str, int] = {}
        self.taken: Counter[str] = Counter()
        self.misses = self.rest = 0
        self.numbers = Numbers(-1, {})
        self.patience = _LONGEST_TURN_SECONDS
        self._duties: Duties | None = None
        self._duties_end = -math.inf
        self._changed_at = self._clock.monotonic()

    def went(self, act: str, way: str) -> None:
        """Count which way an act took."""
        self.last[act] = way
        self.ways[f"{act}: {way}"] += 1

    def known(self, destinations: Collection[str]) -> list[KnownGate] | None:
        """Return the gates of these destinations, if all are known."""
        gates = [self.gates[one] for one in destinations if one in self.gates]
        return gates if len(gates) == len(destinations) else None

    @property
    def keeps_order(self) -> bool:
        """Whether some of those who are served may be in lanes, which a settlement is to free."""
        return any(one.keeps_order for one in self.known(self.served) or ())

    @property
    def awaits_settlements(self) -> bool:
        """Whether a claim has to see what is settled in its turn.

        A lane that is freed can wait while there is more than can be started.
        """
        gates = self.known(self.served)
        return (
            not gates
            or any(one.counts_leases for one in gates)
            or (self.keeps_order and not self.is_busy)
        )

    def changed(self) -> None:
        """Let the duties ask again: this process changes something."""
        self._duties, self._changed_at = None, self._clock.monotonic()

    def keep_duties(self, duties: Duties, *, since: float, lasts: float) -> None:
        """Answer with it for a while, unless this process has changed something meanwhile."""
        if self._changed_at < since:
            self._duties, self._duties_end = duties, since + lasts

    @property
    def duties(self) -> Duties | None:
        """What the duties have asked just now."""
        return self._duties if self._clock.monotonic() < self._duties_end else None
