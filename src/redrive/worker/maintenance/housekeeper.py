"""Housekeeping: what was kept long enough goes, limits are kept to, neglected work is told of."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec

from redrive.archive import Archive, export_overflow
from redrive.clock import Clock
from redrive.errors import SecretError
from redrive.executor import Executor
from redrive.model.retention import Retention
from redrive.model.trend import Measure
from redrive.observer import (
    DestinationOrphaned,
    EncryptionStuck,
    ExportFailed,
    Fact,
    HistoryPruned,
    LettersExported,
    LettersNearLimit,
    LettersRegrouped,
    Observer,
    WorkStranded,
)
from redrive.policies.attention import SILENT_AFTER, near_limit, stranded
from redrive.policies.fingerprint import GROUPING, grouped
from redrive.store import Encrypting, Housekeeping, Inspection, Trends, Workload

__all__ = ["HouseStore", "Housekeeper", "Upkeep"]

_DUTY = "keeping"
_WATCH = timedelta(seconds=60)
_LOOK_SECONDS = 15.0
_MEASURE_SECONDS = 60.0
"""How often it is written down for how long due work has waited."""
_BATCH = 200
_SHARE = 4
_SHARE_WHEN_BEHIND = 1
"""For each second a batch took it rests this many, so that workers get by far the most turns."""
_BEHIND_AFTER = 500
"""So many full batches without a gap: more is settled than goes, and the file would grow."""
_OUTDATED_LOOK_SECONDS = 600.0
"""Outdated groups come from workers of an older version, and from imports: seldom."""
_SHORTEST_REST_SECONDS = 0.02
_LONGEST_REST_SECONDS = 1.0


_PATIENCE_SECONDS = 60.0
"""Workers that are started again leave gaps; work that nobody claims for longer is neglected."""
_NEGLECT = (WorkStranded, DestinationOrphaned)

_Matter = tuple[str, ...]


class HouseStore(Housekeeping, Inspection, Trends, Encrypting, Protocol):
    """What housekeeping needs of a store."""


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are kept, and where dead letters go that are too many."""

    retention: Retention = Retention()
    archive: Archive | None = None


class Housekeeper:
    """Does the housekeeping of the whole store while it has the turn, in small batches."""

    def __init__(
        self,
        store: HouseStore,
        worker: str,
        upkeep: Upkeep,
        *,
        clock: Clock,
        executor: Executor,
        observer: Observer,
    ) -> None:
        self._store = store
        self._worker = worker
        self._upkeep = upkeep
        self._clock = clock
        self._executor = executor
        self._observer = observer
        self._next = self._next_look = clock.monotonic()
        self._next_regrouping = self._next_report = self._next
        self._next_measure = self._next + _MEASURE_SECONDS
        self._regrouped = 0
        self._unopened = ""
        self._full_batches = 0
        self._seen: dict[_Matter, _Sight] = {}

    async def tidy(self) -> float:
        """Do what is to be done now; return for how many seconds nothing more will be."""
        begun = self._clock.monotonic()
        if begun < self._next:
            return self._next - begun
        rest = _LOOK_SECONDS
        if await self._store.take_watch(_DUTY, self._worker, span=_WATCH):
            is_done = await self._prune()
            is_done = await self._regroup(begun) and is_done
            is_done = await self._reseal() and is_done
            is_done = await self._store.roll_up_trends(limit=_BATCH) < _BATCH and is_done
            await self._measure(begun)
            if begun >= self._next_look:
                has_room = await self._look()
                self._next_look = begun + _LOOK_SECONDS if has_room else begun
                is_done = is_done and has_room
            if not is_done:
                share = _SHARE if self._full_batches < _BEHIND_AFTER else _SHARE_WHEN_BEHIND
                took = self._clock.monotonic() - begun
                rest = min(_LONGEST_REST_SECONDS, max(_SHORTEST_REST_SECONDS, took * share))
        self._next = self._clock.monotonic() + rest
        return rest

    async def _prune(self) -> bool:
        """Prune a batch, and tell whether that was all."""
        pruned = await self._store.prune(self._upkeep.retention, limit=_BATCH)
        if pruned.most:
            self._observer.notice(HistoryPruned(pruned=pruned))
        is_done = pruned.most < _BATCH
        self._full_batches = 0 if is_done else self._full_batches + 1
        return is_done

    async def _regroup(self, begun: float) -> bool:
        """Put a batch of letters in their groups of today, and tell whether that was all."""
        if begun < self._next_regrouping:
            return True
        count = await self._store.regroup(grouped, before=GROUPING, limit=_BATCH)
        self._regrouped += count
        is_done = count < _BATCH
        if is_done:
            self._next_regrouping = begun + _OUTDATED_LOOK_SECONDS
        if self._regrouped and (is_done or begun >= self._next_report):
            self._next_report = begun + _LOOK_SECONDS
            left = await self._store.outdated(before=GROUPING)
            self._observer.notice(LettersRegrouped(count=self._regrouped, left=left))
            self._regrouped = 0
        return is_done

    async def _reseal(self) -> bool:
        """Bring a batch to how it is to be kept, and tell whether that was all, or all it can."""
        try:
            count = await self._store.reseal(limit=_BATCH)
        except SecretError as error:
            self._unopened = str(error)
            return True
        self._unopened = ""
        return count == 0

    async def _measure(self, begun: float) -> None:
        """Have it kept for how long what is due has been so, once a minute."""
        if begun < self._next_measure:
            return
        self._next_measure = begun + _MEASURE_SECONDS
        figures = await self._store.figures()
        waited = {
            one.name: Measure(overdue=int((figures.now - one.oldest_due).total_seconds()))
            for one in figures.destinations
            if one.oldest_due is not None
        }
        if late := {name: one for name, one in waited.items() if one.overdue > 0}:
            await self._store.add_trends(late)

    async def _look(self) -> bool:
        """Keep to limits, and tell of what needs a person; tells whether all limits are kept."""
        matters: dict[_Matter, Fact] = {}
        has_room = True
        for quota in await self._store.letter_quotas():
            name = quota.destination
            near = near_limit(quota.keep, count=quota.count, oldest=quota.oldest, now=quota.now)
            if near is not None:
                matters["limit", name] = LettersNearLimit(destination=name, limit=near)
            exported = await export_overflow(
                self._store, quota, archive=self._upkeep.archive, submit=self._executor.submit
            )
            if exported.count:
                has_room = False
                self._observer.notice(
                    LettersExported(destination=name, count=exported.count, file=exported.file)
                )
            if exported.error:
                matters["export", name] = ExportFailed(destination=name, error=exported.error)
        workload = await self._store.workload()
        matters |= _neglected(workload)
        if self._unopened:
            matters["encryption",] = EncryptionStuck(error=self._unopened)
        self._tell(matters)
        return has_room

    def _tell(self, matters: dict[_Matter, Fact]) -> None:
        """Tell of each matter once, for as long as it lasts; neglect only when it lasts."""
        now = self._clock.monotonic()
        self._seen = {one: self._seen.get(one, _Sight(now)) for one in matters}
        for matter, fact in matters.items():
            sight = self._seen[matter]
            patience = _PATIENCE_SECONDS if isinstance(fact, _NEGLECT) else 0.0
            if not sight.is_told and now - sight.since >= patience:
                self._seen[matter] = _Sight(sight.since, is_told=True)
                self._observer.notice(fact)


class _Sight(NamedTuple):
    """Since when something is seen, and whether it was told."""

    since: float
    is_told: bool = False


def _neglected(workload: Workload) -> dict[_Matter, Fact]:
    """Return what nobody alive claims: a whole destination, or a generation of it."""
    alive = [one for one in workload.workers if workload.now - one.seen_at < SILENT_AFTER]
    served = frozenset(name for one in alive if one.serving for name in one.serving.destinations)
    found: dict[_Matter, Fact] = {}
    for one in stranded(workload.due, workload.workers, now=workload.now):
        name, generation = one.destination, one.generation
        if name in served:
            found["stranded", name, generation] = WorkStranded(
                destination=name, generation=generation, count=one.count
            )
        else:
            found["orphaned", name] = DestinationOrphaned(destination=name, count=one.count)
    return found
