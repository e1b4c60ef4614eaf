"""Replays of many dead letters in memory, and edits of single ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar, assert_never

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination, Order
from redrive.model.edit import Change, Edit
from redrive.model.gate import Closed
from redrive.model.replay import AutoReplay, ReplayState
from redrive.policies import replay as policy
from redrive.store import (
    AUTO_REPLAY,
    Advance,
    Due,
    NewReplay,
    Replay,
    ReplayStep,
    SeenAutoReplay,
    Selection,
    Survey,
)
from redrive.stores.memory.gates import MemoryGates
from redrive.stores.memory.inspection import fits
from redrive.stores.memory.intervention import MemoryIntervention
from redrive.stores.memory.row import Record, Row

__all__ = ["MemoryReplays"]

T = TypeVar("T", bound=str)
_MOST_NAMED = 10


class MemoryReplays(MemoryGates, MemoryIntervention):
    """`Replays` and `Editing` over the tables."""

    async def survey(self, selection: Selection) -> Survey:
        with self._lock:
            self._pass_by()
            rows = self._selected(selection)
            groups = Counter(row.group for row in rows)
            titles = {row.group: row.fault.title for row in rows if row.fault is not None}
            return Survey(
                selected=len(rows),
                destinations=_largest(row.destination for row in rows),
                reasons=_largest(row.reason for row in rows if row.reason is not None),
                groups=tuple(
                    (group, titles[group], groups[group])
                    for group, _ in _largest(row.group for row in rows if row.group)
                )[:_MOST_NAMED],
                tenants=_largest(row.event.tenant for row in rows if row.event.tenant is not None)[
                    :_MOST_NAMED
                ],
                in_lanes=sum(self._lane(row) is not None for row in rows),
                behind=len(rows) - len(self._sendable(rows)),
            )

    async def start_replay(self, new: NewReplay, *, actor: Actor) -> Replay | None:
        with self._lock:
            rows = self._selected(new.selection)
            return self._start(rows, new, actor, now=self._clock.now())

    async def advance_replays(self) -> Advance:
        with self._lock:
            now = self._clock.now()
            self._pass_by()
            running = [
                one for one in self._replays.values() if one.replay.state is ReplayState.RUNNING
            ]
            steps = [self._step(record, now=now) for record in running]
            if any(step is not None and step.sent for step in steps):
                self._tell()
            after = [one.replay for one in running if one.replay.state is ReplayState.RUNNING]
            return Advance(
                now=now,
                steps=tuple(step for step in steps if step is not None),
                running=len(after),
                next_at=min((one.next_at for one in after if one.next_at), default=None),
            )

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        with self._lock:
            found = [
                one.replay
                for number, one in self._replays.items()
                if before is None or number < before
            ]
            return tuple(reversed(found))[:limit]

    async def find_replay(self, replay_id: int) -> Replay | None:
        with self._lock:
            record = self._replays.get(replay_id)
            if record is None:
                return None
            return msgspec.structs.replace(record.replay, newcomers=self._newcomers(record))

    async def steer_replay(self, replay_id: int, state: ReplayState, *, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            record = self._replays.get(replay_id)
            steered = None if record is None else policy.steered(record.replay, state)
            if record is None or steered is None:
                return False
            record.replay = steered
            self._end(record, state, actor.why, now=now, by=actor.by)
            self._note_replay(policy.ACTIONS[state], record.replay, actor, now=now)
            return True

    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        with self._lock:
            now = self._clock.now()
            started = []
            for name, destination in sorted(self._destinations.items()):
                auto_replay = destination.auto_replay
                if auto_replay is None or name in self._removed:
                    continue
                since = self._auto_replays_since.setdefault(name, now)
                if not due(auto_replay, since, now) or not self._is_free(destination):
                    continue
                self._auto_replays_since[name] = now
                rows = self._neglected(name, auto_replay, now=now)
                new = NewReplay(selection=Selection(ids=tuple(row.id for row in rows)))
                replay = self._start(rows, new, Actor(AUTO_REPLAY, auto_replay.cron), now=now)
                started += [] if replay is None else [replay]
            return started

    async def auto_replays(self) -> Sequence[SeenAutoReplay]:
        with self._lock:
            return [
                SeenAutoReplay(
                    destination=name,
                    auto_replay=one.auto_replay,
                    since=self._auto_replays_since[name],
                )
                for name, one in sorted(self._destinations.items())
                if one.auto_replay is not None
                and name in self._auto_replays_since
                and name not in self._removed
            ]

    async def edit(
        self,
        delivery_id: DeliveryId,
        *,
        before: msgspec.Raw,
        payload: msgspec.Raw,
        changes: tuple[Change, ...],
        more: int,
        actor: Actor,
        is_replayed: bool,
        scope: Scope = WHOLE_STORE,
    ) -> bool:
        with self._lock:
            now = self._clock.now()
            row = next(iter(self._found([delivery_id], scope)), None)
            if row is None or not row.is_dead_letter:
                return False
            if bytes(row.carried.payload) != bytes(before):
                return False
            edit = Edit(by=actor.by, at=now, why=actor.why, changes=changes, more=more)
            row.payload = payload
            row.edits = (*row.edits, edit)[-self._history :]
            if (row.destination, 0) in self._checkpoints:
                name = self._checkpoints[row.destination, 0][1].name
                position = self._positions[row.event.id]
                self._projection_edits[name, position] = (payload, row.edits)
            self._conclude("edit", [row], actor, now=now)
            if is_replayed:
                self._begin_cycle(row, actor.by, None, now=now)
                self._conclude("replay", [row], actor, now=now)
            return True

    def _selected(self, selection: Selection) -> list[Row]:
        if selection.ids is not None:
            return sorted(self._replayable(selection.ids), key=lambda row: row.id)
        query = selection.query
        groups = None if query is None else self._groups_named(query.group)
        return [
            row
            for row in self._rows.values()
            if row.is_dead_letter and (query is None or fits(row, query, groups))
        ]

    def _start(
        self, rows: Sequence[Row], new: NewReplay, actor: Actor, *, now: datetime
    ) -> Replay | None:
        if not rows:
            return None
        replay = Replay(
            id=self._last_replay_id + 1,
            state=ReplayState.RUNNING,
            by=actor.by,
            why=actor.why,
            started_at=now,
            changed_at=now,
            selected=len(rows),
            pace=new.pace,
            generation=new.generation,
            query=new.selection.query,
            destinations=tuple(dict.fromkeys(sorted(row.destination for row in rows))),
        )
        items = {row.id: row.token for row in sorted(rows, key=lambda row: row.id)}
        self._last_replay_id = replay.id
        self._replays[replay.id] = Record(replay=replay, items=items)
        self._note_replay("start_replay", replay, actor, now=now, count=len(rows))
        return replay

    def _step(self, record: Record, *, now: datetime) -> ReplayStep | None:
        """Decide about a replay and carry it out; nothing if nothing has changed."""
        replay = record.replay
        match self._decide(record, now=now):
            case policy.Send(count=count, wave=wave):
                rows, skipped, behind = self._take_letters(record, count)
                for row in rows:
                    self._begin_cycle(row, replay.by, replay.generation, now=now, sender=record)
                record.replay = policy.moved(
                    replay, wave, sent=len(rows), skipped=skipped, behind=behind, now=now
                )
                return ReplayStep(replay=record.replay, sent=tuple(row.id for row in rows))
            case policy.Wait(until=until):
                record.replay = msgspec.structs.replace(replay, next_at=until)
                return None
            case policy.Stop(why=why):
                self._end(record, ReplayState.STOPPED, why, now=now)
                return ReplayStep(replay=record.replay)
            case policy.Done(why=why):
                self._end(record, ReplayState.DONE, why, now=now)
                return ReplayStep(replay=record.replay)
            case never:
                assert_never(never)

    def _decide(self, record: Record, *, now: datetime) -> policy.Decision:
        return policy.decide(record.replay, held=self._held(record), now=now)

    def _take_letters(self, record: Record, count: int) -> tuple[list[Row], int, int]:
        """Return the next letters to send, how many are not, and how many of those wait behind."""
        candidates = [
            row
            for number, token in record.items.items()
            if (row := self._rows.get(number)) is not None and self._is_untouched(row, token)
        ]
        chosen = candidates[:count]
        blocking = [one for one in chosen if self._blocks_as_a_whole(one)]
        whole = [row.destination for row in blocking]
        rest = [row for row in candidates[count:] if row.destination in whole]
        last = chosen[-1].id if len(candidates) > count else None
        taken = [row.id for row in [*chosen, *rest]]
        passed = [
            number for number in record.items if number in taken or last is None or number <= last
        ]
        for number in passed:
            del record.items[number]
        sendable = self._sendable([*chosen, *rest])
        return sendable, len(passed) - len(sendable), len(taken) - len(sendable)

    def _is_untouched(self, row: Row, token: int) -> bool:
        return row.is_dead_letter and row.token == token

    def _blocks_as_a_whole(self, row: Row) -> bool:
        return self._destinations[row.destination].order is Order.BLOCK

    def _sendable(self, rows: Sequence[Row]) -> list[Row]:
        """Leave out what would only wait behind a dead letter that is not sent with it."""
        together = {row.id for row in rows}
        heads = self._heads()
        stopped = {
            lane
            for lane, head in heads.items()
            if self._rows[head].is_dead_letter and head not in together
        }
        blocked = {
            row.destination
            for row in self._rows.values()
            if row.is_dead_letter
            and row.id not in together
            and self._lane(row) is not None
            and self._blocks_as_a_whole(row)
        }
        return [
            row for row in rows if self._lane(row) not in stopped and row.destination not in blocked
        ]

    def _held(self, record: Record) -> int:
        """Count the letters under way that wait behind a dead letter."""
        heads = self._heads()
        return sum(
            self._waits_in_vain(row, heads.get(lane) if (lane := self._lane(row)) else None)
            for row in self._rows.values()
            if row.sender is record and row.status is Status.PENDING
        )

    def _waits_in_vain(self, row: Row, head: DeliveryId | None) -> bool:
        is_parked = head is not None and self._rows[head].is_dead_letter
        return is_parked or self._is_blocked(row.destination)

    def _newcomers(self, record: Record) -> int:
        query = record.replay.query
        if query is None:
            return 0
        groups = self._groups_named(query.group)
        return sum(
            row.is_dead_letter
            and fits(row, query, groups)
            and row.sender is not record
            and row.changed_at > record.replay.started_at
            for row in self._rows.values()
        )

    def _is_free(self, destination: Destination) -> bool:
        """Tell whether an automatic replay of the destination may begin."""
        gate = self._gate(destination.name)
        return (
            gate.pause is None
            and isinstance(gate.breaker, Closed)
            and not any(
                one.replay.is_automatic
                and one.replay.destinations == (destination.name,)
                and one.replay.state in (ReplayState.RUNNING, ReplayState.PAUSED)
                for one in self._replays.values()
            )
        )

    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        found = [
            row
            for row in self._rows.values()
            if row.is_dead_letter
            and row.destination == destination
            and row.enqueued_at >= now - auto_replay.max_age
            and row.auto_replays < auto_replay.cycles
        ]
        found.sort(key=lambda row: (row.auto_replays, row.id))
        return found[: auto_replay.batch]

    def _end(
        self, record: Record, state: ReplayState, why: str, *, now: datetime, by: str = ""
    ) -> None:
        record.replay = msgspec.structs.replace(
            record.replay, state=state, reason=why, changed_at=now, changed_by=by, next_at=None
        )
        if state in (ReplayState.CANCELLED, ReplayState.DONE):
            record.items.clear()

    def _note_replay(
        self, action: str, replay: Replay, actor: Actor, *, now: datetime, count: int = 1
    ) -> None:
        self._note(action, actor, now=now, count=count, detail=str(replay.id))


def _largest(names: Iterable[T]) -> tuple[tuple[T, int], ...]:
    return tuple(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
