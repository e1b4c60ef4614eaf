"""Projections in memory, where nothing can be undone: each event is applied at least once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import Kind, Lease, Status
from redrive.model.destination import Order
from redrive.model.event import EventId
from redrive.model.position import LogPosition
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
    Settled,
    Truncating,
)
from redrive.stores.memory.queue import MemoryQueue
from redrive.stores.memory.rerouting import MemoryRerouting
from redrive.stores.projecting import still_read

__all__ = ["MemoryProjections"]

_LONG_ENOUGH = timedelta(hours=1)
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
    ) -> ReaderTurn | None:
        with self._lock:
            new = Checkpoint(projection=projection, began=begin, position=begin)
            token, before = self._checkpoints.get(projection, (0, new))
            seen_at = self._workers.get(before.worker or "")
            is_live = seen_at is not None and seen_at > self._clock.now() - lease
            if before.worker != worker and is_live:
                return None
            taken = replace(before, worker=worker, types=tuple(types))
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
    ) -> Projected:
        name = turn.checkpoint.projection
        with self._lock:
            if not self._has_turn(turn, after):
                return Projected(ending=Projecting.REFUSED)
            if self._is_stopped(name):
                return Projected(ending=Projecting.HELD)
            keys = {one.event.key for one in page.events}
            parked = {key for key in keys if self._waits(name, key)}
            now = self._clock.now()
            is_reset = self._checkpoints[name][1].is_reset
        if is_reset and truncate is not None:
            await truncate(None)
        applied: list[LoggedEvent] = []
        handed_over: _Handed = []
        for one in page.events:
            if one.event.key in parked:
                handed_over.append((one, None))
                continue
            [answer] = await apply(None, [one], now)
            if answer is None:
                applied.append(one)
                continue
            handed_over.append((one, answer))
            if one.event.key is not None:
                parked.add(one.event.key)
        with self._lock:
            if not self._has_turn(turn, after):
                return Projected(ending=Projecting.REFUSED)
            now = self._clock.now()
            handed_over = [
                (one, self._hand_over(turn, one, settled, generation, now=now))
                for one, settled in handed_over
            ]
            self._keep_checkpoint(name, page.reached, applied, now=now)
            self._tell()
        return Projected(ending=Projecting.KEPT, handed_over=tuple(handed_over))

    async def log_news(self, after: LogPosition) -> LogNews:
        with self._lock:
            return LogNews(
                has_more=any(position > after.number for position in self._log),
                tokens={name: token for name, (token, _) in self._checkpoints.items()},
            )

    async def reset_projection(self, projection: str, *, to: LogPosition, actor: Actor) -> int:
        with self._lock:
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            token, before = self._checkpoints[projection]
            new = Checkpoint(
                projection=projection, began=to, position=to, types=before.types, is_reset=True
            )
            self._checkpoints[projection] = (token + 1, new)
            return self._clear(projection, actor, "reset_projection", f"{projection} behind {to}")

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        with self._lock:
            if projection not in self._checkpoints:
                raise not_found(projection, sorted(self._checkpoints), what="projection")
            worker = self._checkpoints[projection][1].worker or ""
            seen_at = self._workers.get(worker)
            if seen_at is not None and seen_at > self._clock.now() - lease:
                raise still_read(projection, worker)
            del self._checkpoints[projection]
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
        after = checkpoint.position.number
        unread = [
            kept.event
            for position, kept in self._log.items()
            if position > after and checkpoint.wants(kept.event.type)
        ]
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
        )

    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        token, checkpoint = self._checkpoints.get(turn.checkpoint.projection, (0, turn.checkpoint))
        return token == turn.token and checkpoint.position == after

    def _is_stopped(self, name: str) -> bool:
        is_blocked = self._destinations[name].order is Order.BLOCK and any(
            row.destination == name and row.is_dead_letter for row in self._rows.values()
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
