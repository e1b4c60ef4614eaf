"""Projections in memory, where nothing can be undone: each event is applied at least once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import Kind, Lease, Status
from redrive.model.destination import Order
from redrive.model.edit import Edit
from redrive.model.event import Event, EventId
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import partition_of
from redrive.store import (
    Applying,
    Checkpoint,
    LoggedEvent,
    LogNews,
    LogPage,
    Projected,
    Projecting,
    ProjectionFigures,
    ReaderTurn,
    Rebuild,
    Settled,
    Swapping,
    Truncating,
)
from redrive.stores.codec import carrying
from redrive.stores.memory.queue import MemoryQueue
from redrive.stores.memory.rerouting import MemoryRerouting
from redrive.stores.projecting import (
    Owner,
    by_projection,
    check_swap,
    divided,
    serving,
    serving_from,
    still_read,
    still_serving,
    to_read,
    to_take,
    together,
    versions_beside,
    went_on,
    whole,
)

__all__ = ["MemoryProjections"]

_LONG_ENOUGH = timedelta(hours=1)
_Edits = Mapping[int, tuple[msgspec.Raw, tuple[Edit, ...]]]
_Handed = list[tuple[LoggedEvent, Settled | None]]


class MemoryProjections(MemoryRerouting, MemoryQueue):
    """`Projections` over the tables."""

    async def take_turn(
        self,
        projection: str,
        *,
        worker: str,
        lease: timedelta,
        begin: LogPosition,
        types: Sequence[str] = (),
        version: int = 1,
        tables: Sequence[str] = (),
        partitions: int = 1,
        held: Collection[int] = (),
    ) -> ReaderTurn | None:
        with self._lock:
            new = Checkpoint(projection=projection, version=version, began=begin, position=begin)
            new = replace(new, types=tuple(types))
            if not self._has_partitions(new, partitions, worker, lease):
                return None
            parts = self._parts(projection)
            owners = [Owner(one.partition, one.worker, self._lives(one, lease)) for one in parts]
            for number in to_take(owners, worker, held)[:1]:
                token, before = self._checkpoints[projection, number]
                taken = replace(before, worker=worker, types=tuple(types), tables=tuple(tables))
                turn = ReaderTurn(token=token + 1, checkpoint=taken)
                self._checkpoints[projection, number] = (turn.token, turn.checkpoint)
                return turn
            return None

    def _has_partitions(
        self, new: Checkpoint, partitions: int, worker: str, lease: timedelta
    ) -> bool:
        """Begin a projection if it is new, or divide it anew if it may be."""
        before = self._parts(new.projection)
        if len(before) == partitions:
            return True
        if any(self._lives(one, lease) and one.worker != worker for one in before):
            return False
        token = max(
            (self._checkpoints[new.projection, one.partition][0] for one in before), default=0
        )
        parts = divided(before, partitions) if before else self._begun(new, partitions)
        for one in before:
            del self._checkpoints[one.projection, one.partition]
        for one in parts:
            self._checkpoints[one.projection, one.partition] = (token + bool(before), one)
        return True

    def _begun(self, new: Checkpoint, partitions: int) -> list[Checkpoint]:
        """Return the checkpoints of a new version; beside others it is being built."""
        parts = [replace(new, partition=one, partitions=partitions) for one in range(partitions)]
        if not versions_beside(new, self._all_checkpoints()):
            return parts
        is_partial = new.began == LOG_START and bool(self._pruned_events)
        return [
            replace(one, rebuild=replace(self._rebuild(one), is_partial=is_partial))
            for one in parts
        ]

    def _lives(self, checkpoint: Checkpoint, lease: timedelta) -> bool:
        """Tell whether the worker whose turn it is was heard of within its lease."""
        seen_at = self._workers.get(checkpoint.worker or "")
        return seen_at is not None and seen_at > self._clock.now() - lease

    def _all_checkpoints(self) -> list[Checkpoint]:
        return [one for _, (_, one) in sorted(self._checkpoints.items())]

    def _parts(self, projection: str) -> list[Checkpoint]:
        """Return the checkpoints of a projection, by partition."""
        return [one for one in self._all_checkpoints() if one.projection == projection]

    def _known_parts(self, projection: str) -> list[Checkpoint]:
        """Return the partitions of a projection, which must be there."""
        parts = self._parts(projection)
        if not parts:
            names = dict.fromkeys(one.projection for one in self._all_checkpoints())
            raise not_found(projection, list(names), what="projection")
        return parts

    async def project(
        self,
        turn: ReaderTurn,
        page: LogPage,
        apply: Applying,
        *,
        after: LogPosition,
        generation: str,
        at_most: timedelta,  # noqa: ARG002 - nobody waits for it
        truncate: Truncating | None = None,
        create: Truncating | None = None,  # noqa: ARG002 - there are no tables
    ) -> Projected:
        name = turn.checkpoint.projection
        with self._lock:
            if name in self._emptied:
                return Projected(ending=Projecting.HELD)
            # The first of the partitions to apply something empties the read model.
            is_first = all(one.is_reset for one in self._parts(name))
            if is_first:
                self._emptied.add(name)
        try:
            empty = truncate if is_first else None
            return await self._project(turn, page, apply, empty, after=after, generation=generation)
        finally:
            if is_first:
                self._emptied.discard(name)

    async def _project(
        self,
        turn: ReaderTurn,
        page: LogPage,
        apply: Applying,
        truncate: Truncating | None,
        *,
        after: LogPosition,
        generation: str,
    ) -> Projected:
        name, place = turn.checkpoint.projection, _place(turn.checkpoint)
        with self._lock:
            if not self._has_turn(turn, after):
                return Projected(ending=Projecting.REFUSED)
            if self._is_stopped(name):
                return Projected(ending=Projecting.HELD)
            rebuild = self._checkpoints[place][1].rebuild
            if rebuild is not None and self._is_held(name, rebuild):
                return Projected(ending=Projecting.HELD)
            is_running = rebuild is not None and rebuild.is_running
            edits = self._edits(turn.checkpoint.name, page.events) if is_running else {}
            keys = {one.event.key for one in page.events}
            parked = {key for key in keys if self._waits(name, key)}
            now = self._clock.now()
            is_reset = self._checkpoints[place][1].is_reset
        if is_reset and truncate is not None:
            await truncate(None)
        is_strict = rebuild is not None and is_running and rebuild.is_strict
        whole = [one for one in page.events if one.event.erased is None]
        edited = [_as_edited(one, edits) for one in whole]
        applied, handed_over = await _apply(
            apply, edited, parked, now=now, stops_at_failure=is_strict
        )
        stopped_at = handed_over[-1][0].position if is_strict and handed_over else None
        with self._lock:
            if not self._has_turn(turn, after):
                return Projected(ending=Projecting.REFUSED)
            now = self._clock.now()
            handed_over = [
                (one, self._hand_over(turn, one, settled, generation, now=now))
                for one, settled in handed_over
            ]
            self._edit_again(name, [one for one, _ in handed_over], edits)
            reached = stopped_at or page.reached
            self._keep_checkpoint(place, reached, applied, now=now)
            if rebuild is not None and is_running:
                is_over = (page.is_end and stopped_at is None) or reached >= rebuild.goal
                again = [one.event.id for one in applied if one.position.number in edits]
                token, kept = self._checkpoints[place]
                erased = len(page.events) - len(whole)
                after_all = went_on(rebuild, again, erased=erased, is_over=is_over, now=now)
                self._checkpoints[place] = (token, replace(kept, rebuild=after_all))
            self._tell()
        return Projected(ending=Projecting.KEPT, handed_over=tuple(handed_over), reached=stopped_at)

    def _is_held(self, name: str, rebuild: Rebuild) -> bool:
        """Tell whether a rebuild was cancelled, or waits for a person because it is strict."""
        if rebuild.is_strict and rebuild.is_running:
            return self._has_waiting(name)
        return rebuild.is_cancelled

    def _edits(self, name: str, events: Sequence[LoggedEvent]) -> _Edits:
        """Return how people have edited some of these events, by position."""
        return {
            one.position.number: self._projection_edits[name, one.position.number]
            for one in events
            if (name, one.position.number) in self._projection_edits
        }

    def _edit_again(self, name: str, events: Sequence[LoggedEvent], edits: _Edits) -> None:
        """Have what was handed over carry what people had made of it."""
        places = {one.event.id: one.position.number for one in events}
        for row in self._rows.values():
            if row.destination == name and places.get(row.event.id) in edits:
                row.payload, row.edits = edits[places[row.event.id]]

    def _rebuild(self, checkpoint: Checkpoint) -> Rebuild:
        """Return the rebuild of a projection from where it stands, up to the end of the log."""
        goal = LogPosition(number=self._last_position)
        total = len(self._unread(checkpoint))
        return Rebuild(begun_at=self._clock.now(), goal=goal, total=total)

    async def log_news(self, after: LogPosition) -> LogNews:
        with self._lock:
            return LogNews(
                has_more=any(position > after.number for position in self._log),
                tokens={place: token for place, (token, _) in self._checkpoints.items()},
            )

    async def reset_projection(
        self,
        projection: str,
        *,
        to: LogPosition,
        actor: Actor,
        rate: float | None = None,
        is_strict: bool = False,
    ) -> int:
        with self._lock:
            for before in self._known_parts(projection):
                token, _ = self._checkpoints[_place(before)]
                new = replace(
                    Checkpoint(projection=projection, began=to, position=to, is_reset=True),
                    version=before.version,
                    partition=before.partition,
                    partitions=before.partitions,
                    types=before.types,
                    tables=before.tables,
                    served_at=before.served_at,
                )
                rebuild = replace(self._rebuild(new), rate=rate, is_strict=is_strict)
                self._checkpoints[_place(new)] = (token + 1, replace(new, rebuild=rebuild))
            return self._clear(projection, actor, "reset_projection", f"{projection} behind {to}")

    async def cancel_rebuild(self, projection: str, *, actor: Actor) -> bool:
        with self._lock:
            parts = self._known_parts(projection)
            rebuild = whole(parts).rebuild
            if rebuild is None or not rebuild.is_running:
                return False
            for before in parts:
                token, _ = self._checkpoints[_place(before)]
                after = replace(before, worker=None)
                if before.rebuild is not None:
                    after = replace(after, rebuild=replace(before.rebuild, is_cancelled=True))
                self._checkpoints[_place(before)] = (token + 1, after)
            now = self._clock.now()
            self._note("cancel_rebuild", actor, now=now, count=1, detail=projection)
            return True

    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        with self._lock:
            parts = self._known_parts(projection)
            checkpoint = whole(parts)
            known = self._all_checkpoints()
            serves = serving(known)
            others = [one for one in known if one.name == checkpoint.name]
            served = [one for one in others if one.projection in serves]
            current = check_swap(checkpoint, whole(served) if served else None)
            for one, end in to_read(parts, served, through):
                if one.is_reset or self._unread(one, up_to=end.number):
                    return Swapping.BEHIND
            if checkpoint.rebuild is not None and checkpoint.rebuild.is_partial:
                return Swapping.PARTIAL
            if self._has_waiting(projection) and not accepts_parked:
                return Swapping.PARKED
            now = self._clock.now()
            since = serving_from(now, others)
            for one in parts:
                token, _ = self._checkpoints[_place(one)]
                self._checkpoints[_place(one)] = (token, replace(one, served_at=since))
            detail = f"{checkpoint.name} from version {current.version} to {checkpoint.version}"
            self._note("swap_projection", actor, now=now, count=1, detail=detail)
            return Swapping.SWAPPED

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        with self._lock:
            parts = self._known_parts(projection)
            checkpoint, known = parts[0], self._all_checkpoints()
            if versions_beside(checkpoint, known) and projection in serving(known):
                raise still_serving(checkpoint)
            for one in parts:
                if self._lives(one, lease):
                    raise still_read(projection, one.worker or "")
            for one in parts:
                del self._checkpoints[_place(one)]
            if not versions_beside(checkpoint, known):
                for edited in [at for at in self._projection_edits if at[0] == checkpoint.name]:
                    del self._projection_edits[edited]
            return self._clear(projection, actor, "drop_projection", projection)

    def _clear(self, projection: str, actor: Actor, action: str, detail: str) -> int:
        now = self._clock.now()
        gone = [row for row in self._rows.values() if row.destination == projection]
        self._remove(gone, at=now)
        self._deleted += len(gone)
        self._note(action, actor, now=now, count=len(gone), detail=detail)
        return len(gone)

    async def projections(self) -> Sequence[ProjectionFigures]:
        with self._lock:
            return [
                together([self._projection_figures(one) for one in parts])
                for parts in by_projection(self._all_checkpoints())
            ]

    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        with self._lock:
            position = self._positions.get(event_id)
            if position is None:
                return True
            parts = self._parts(projection)
            event = self._log[position].event
            checkpoint = parts[partition_of(event.key, event.id, len(parts))]
            return checkpoint.position.number >= position and not any(
                row.destination == projection and row.event.id == event_id and row.blocks_its_lane
                for row in self._rows.values()
            )

    def _projection_figures(self, checkpoint: Checkpoint) -> ProjectionFigures:
        unread = self._unread(checkpoint)
        waiting = [
            row
            for row in self._rows.values()
            if row.destination == checkpoint.projection
            and row.blocks_its_lane
            and self._is_of(checkpoint, row.event)
        ]
        return ProjectionFigures(
            checkpoint=checkpoint,
            now=self._clock.now(),
            lag=dict(sorted(Counter(one.type for one in unread).items())),
            is_at_least=False,
            oldest_at=unread[0].published_at if unread else None,
            handed_over=len(waiting),
            parked_keys=len({row.event.key for row in waiting} - {None}),
            seen_at=self._workers.get(checkpoint.worker or ""),
            is_serving=checkpoint.projection in serving(self._all_checkpoints()),
        )

    def _unread(
        self, checkpoint: Checkpoint, *, up_to: int = sys.maxsize
    ) -> list[Event[msgspec.Raw]]:
        return [
            kept.event
            for position, kept in self._log.items()
            if checkpoint.position.number < position <= up_to
            and checkpoint.wants(kept.event.type)
            and self._is_of(checkpoint, kept.event)
        ]

    @staticmethod
    def _is_of(checkpoint: Checkpoint, event: Event[msgspec.Raw]) -> bool:
        """Tell whether an event is one of a partition."""
        return partition_of(event.key, event.id, checkpoint.partitions) == checkpoint.partition

    def _has_waiting(self, projection: str) -> bool:
        return any(
            row.destination == projection and row.blocks_its_lane for row in self._rows.values()
        )

    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        place = _place(turn.checkpoint)
        token, checkpoint = self._checkpoints.get(place, (0, turn.checkpoint))
        return token == turn.token and checkpoint.position == after

    def _is_stopped(self, name: str) -> bool:
        self._pass_by()
        is_blocked = self._destinations[name].order is Order.BLOCK and any(
            row.destination == name and row.is_dead_letter and self._lane(row) is not None
            for row in self._rows.values()
        )
        return is_blocked or self._gate(name).pause is not None

    def _waits(self, name: str, key: str | None) -> bool:
        """Tell whether a key has a lane here."""
        return any(
            (lane := self._lane(row)) is not None
            and (lane.destination, lane.key) == (name, key)
            and row.blocks_its_lane
            for row in self._rows.values()
        )

    def _hand_over(
        self,
        turn: ReaderTurn,
        logged: LoggedEvent,
        settled: Settled | None,
        generation: str,
        *,
        now: datetime,
    ) -> Settled | None:
        row = self._add(logged.position.number, turn.checkpoint.projection, generation, now=now)
        row.due, row.deadline, row.kind, row.priority = now, None, Kind.FIRST, 0
        if settled is None:
            return None
        row.status, row.token, row.attempts = Status.IN_FLIGHT, 1, 1
        row.worker, row.lease_until = turn.checkpoint.worker, now + _LONG_ENOUGH
        settled = replace(settled, lease=Lease(row.id, 1))
        self._carry_out(settled, row, now=now)
        return settled

    def _keep_checkpoint(
        self,
        place: tuple[str, int],
        reached: LogPosition,
        applied: Sequence[LoggedEvent],
        *,
        now: datetime,
    ) -> None:
        token, before = self._checkpoints[place]
        count = before.count + len(applied)
        after = replace(before, position=reached, count=count, is_reset=False)
        if applied:
            last = applied[-1].event
            after = replace(after, event_id=last.id, event_type=last.type, applied_at=now)
        self._checkpoints[place] = (token, after)


def _place(checkpoint: Checkpoint) -> tuple[str, int]:
    return checkpoint.projection, checkpoint.partition


async def _apply(
    apply: Applying,
    events: Sequence[LoggedEvent],
    parked: set[str | None],
    *,
    now: datetime,
    stops_at_failure: bool,
) -> tuple[list[LoggedEvent], _Handed]:
    """Apply events one by one; return those, and what failed or is behind it."""
    applied: list[LoggedEvent] = []
    handed_over: _Handed = []
    for one in events:
        if one.event.key in parked:
            handed_over.append((one, None))
            continue
        [answer] = await apply(None, [one], now)
        if answer is None:
            applied.append(one)
            continue
        handed_over.append((one, answer))
        if stops_at_failure:
            break
        if one.event.key is not None:
            parked.add(one.event.key)
    return applied, handed_over


def _as_edited(logged: LoggedEvent, edits: _Edits) -> LoggedEvent:
    """Return an event with the payload that a person gave it, if so."""
    if logged.position.number not in edits:
        return logged
    payload, _ = edits[logged.position.number]
    return replace(logged, event=carrying(logged.event, bytes(payload)))
