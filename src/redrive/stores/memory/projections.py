"""Projections in memory, where nothing can be undone: each event is applied at least once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
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
    check_swap,
    serving,
    serving_from,
    still_read,
    still_serving,
    versions_beside,
    went_on,
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
    ) -> ReaderTurn | None:
        with self._lock:
            new = Checkpoint(projection=projection, version=version, began=begin, position=begin)
            new = replace(new, types=tuple(types))
            known = [one for _, one in self._checkpoints.values()]
            if projection not in self._checkpoints and versions_beside(new, known):
                is_partial = begin == LOG_START and bool(self._pruned_events)
                new = replace(new, rebuild=replace(self._rebuild(new), is_partial=is_partial))
            token, before = self._checkpoints.get(projection, (0, new))
            seen_at = self._workers.get(before.worker or "")
            is_live = seen_at is not None and seen_at > self._clock.now() - lease
            if before.worker != worker and is_live:
                return None
            taken = replace(before, worker=worker, types=tuple(types), tables=tuple(tables))
            turn = ReaderTurn(token=token + 1, checkpoint=taken)
            self._checkpoints[projection] = (turn.token, turn.checkpoint)
            return turn

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
            if not self._has_turn(turn, after):
                return Projected(ending=Projecting.REFUSED)
            if self._is_stopped(name):
                return Projected(ending=Projecting.HELD)
            rebuild = self._checkpoints[name][1].rebuild
            if rebuild is not None and self._is_held(name, rebuild):
                return Projected(ending=Projecting.HELD)
            is_running = rebuild is not None and rebuild.is_running
            edits = self._edits(turn.checkpoint.name, page.events) if is_running else {}
            keys = {one.event.key for one in page.events}
            parked = {key for key in keys if self._waits(name, key)}
            now = self._clock.now()
            is_reset = self._checkpoints[name][1].is_reset
        if is_reset and truncate is not None:
            await truncate(None)
        is_strict = rebuild is not None and is_running and rebuild.is_strict
        edited = [_as_edited(one, edits) for one in page.events]
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
            self._keep_checkpoint(name, reached, applied, now=now)
            if rebuild is not None and is_running:
                is_over = (page.is_end and stopped_at is None) or reached >= rebuild.goal
                again = [one.event.id for one in applied if one.position.number in edits]
                token, kept = self._checkpoints[name]
                after_all = went_on(rebuild, again, is_over=is_over, now=now)
                self._checkpoints[name] = (token, replace(kept, rebuild=after_all))
            self._tell()
        return Projected(ending=Projecting.KEPT, handed_over=tuple(handed_over), reached=stopped_at)

    def _is_held(self, name: str, rebuild: Rebuild) -> bool:
        """Tell whether a rebuild was cancelled, or waits for a person because it is strict."""
        if rebuild.is_strict and rebuild.is_running:
            return any(
                row.destination == name and row.blocks_its_lane for row in self._rows.values()
            )
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
                tokens={name: token for name, (token, _) in self._checkpoints.items()},
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
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            token, before = self._checkpoints[projection]
            new = replace(
                Checkpoint(projection=projection, began=to, position=to, is_reset=True),
                version=before.version,
                types=before.types,
                tables=before.tables,
                served_at=before.served_at,
            )
            rebuild = replace(self._rebuild(new), rate=rate, is_strict=is_strict)
            self._checkpoints[projection] = (token + 1, replace(new, rebuild=rebuild))
            return self._clear(projection, actor, "reset_projection", f"{projection} behind {to}")

    async def cancel_rebuild(self, projection: str, *, actor: Actor) -> bool:
        with self._lock:
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            token, before = self._checkpoints[projection]
            if before.rebuild is None or not before.rebuild.is_running:
                return False
            rebuild = replace(before.rebuild, is_cancelled=True)
            after = replace(before, rebuild=rebuild, worker=None)
            self._checkpoints[projection] = (token + 1, after)
            now = self._clock.now()
            self._note("cancel_rebuild", actor, now=now, count=1, detail=projection)
            return True

    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        with self._lock:
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            token, checkpoint = self._checkpoints[projection]
            known = [one for _, one in self._checkpoints.values()]
            serves = serving(known)
            others = [one for one in known if one.name == checkpoint.name]
            served = next((one for one in others if one.projection in serves), None)
            current = check_swap(checkpoint, served)
            end = max(through, current.position).number
            figures = self._projection_figures(checkpoint)
            if checkpoint.is_reset or self._unread(checkpoint, up_to=end):
                return Swapping.BEHIND
            if checkpoint.rebuild is not None and checkpoint.rebuild.is_partial:
                return Swapping.PARTIAL
            if figures.handed_over and not accepts_parked:
                return Swapping.PARKED
            now = self._clock.now()
            since = serving_from(now, others)
            self._checkpoints[projection] = (token, replace(checkpoint, served_at=since))
            detail = f"{checkpoint.name} from version {current.version} to {checkpoint.version}"
            self._note("swap_projection", actor, now=now, count=1, detail=detail)
            return Swapping.SWAPPED

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        with self._lock:
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            checkpoint = self._checkpoints[projection][1]
            known = [one for _, one in self._checkpoints.values()]
            if versions_beside(checkpoint, known) and projection in serving(known):
                raise still_serving(checkpoint)
            worker = checkpoint.worker or ""
            seen_at = self._workers.get(worker)
            if seen_at is not None and seen_at > self._clock.now() - lease:
                raise still_read(projection, worker)
            del self._checkpoints[projection]
            if not versions_beside(checkpoint, known):
                for one in [one for one in self._projection_edits if one[0] == checkpoint.name]:
                    del self._projection_edits[one]
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
                self._projection_figures(one) for _, (_, one) in sorted(self._checkpoints.items())
            ]

    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        with self._lock:
            position = self._positions.get(event_id)
            if position is None:
                return True
            _, checkpoint = self._checkpoints[projection]
            return checkpoint.position.number >= position and not any(
                row.destination == projection and row.event.id == event_id and row.blocks_its_lane
                for row in self._rows.values()
            )

    def _projection_figures(self, checkpoint: Checkpoint) -> ProjectionFigures:
        unread = self._unread(checkpoint)
        known = [one for _, one in self._checkpoints.values()]
        waiting = [
            row
            for row in self._rows.values()
            if row.destination == checkpoint.projection and row.blocks_its_lane
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
            is_serving=checkpoint.projection in serving(known),
        )

    def _unread(
        self, checkpoint: Checkpoint, *, up_to: int = sys.maxsize
    ) -> list[Event[msgspec.Raw]]:
        return [
            kept.event
            for position, kept in self._log.items()
            if checkpoint.position.number < position <= up_to and checkpoint.wants(kept.event.type)
        ]

    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        token, checkpoint = self._checkpoints.get(turn.checkpoint.projection, (0, turn.checkpoint))
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
        self, name: str, reached: LogPosition, applied: Sequence[LoggedEvent], *, now: datetime
    ) -> None:
        token, before = self._checkpoints[name]
        count = before.count + len(applied)
        after = replace(before, position=reached, count=count, is_reset=False)
        if applied:
            last = applied[-1].event
            after = replace(after, event_id=last.id, event_type=last.type, applied_at=now)
        self._checkpoints[name] = (token, after)


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
