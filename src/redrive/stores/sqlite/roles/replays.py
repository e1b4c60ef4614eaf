"""Replays, schedules and edits, each call handed to the thread that carries it out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change
from redrive.model.replay import ReplayState
from redrive.store import Advance, Due, NewReplay, Replay, Schedule, Selection, Survey
from redrive.stores.sqlite import replaying, surveying
from redrive.stores.sqlite.core import Core

__all__ = ["ReplaysRole"]


class ReplaysRole(Core):
    """`Replays` and `Editing`."""

    async def survey(self, selection: Selection) -> Survey:
        return await self._reader.call(lambda c: surveying.survey(c, selection))

    async def start_replay(self, new: NewReplay, *, actor: Actor) -> Replay | None:
        return await self._commit(
            lambda c, now: replaying.start(c, new, actor=actor, now=now), rings=True
        )

    async def advance_replays(self) -> Advance:
        if not await self._reader.call(replaying.is_running):
            return Advance(now=self._clock.now())
        advance = await self._commit(
            lambda c, now: replaying.advance(c, now=now, history=self._history)
        )
        if any(step.sent for step in advance.steps):
            self._ring()
        return advance

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        return await self._reader.call(lambda c: replaying.read(c, before=before, limit=limit))

    async def find_replay(self, replay_id: int) -> Replay | None:
        return await self._reader.call(lambda c: replaying.find(c, replay_id))

    async def pause_replay(self, replay_id: int, *, actor: Actor) -> bool:
        return await self._turn(replay_id, ReplayState.PAUSED, (ReplayState.RUNNING,), actor)

    async def resume_replay(self, replay_id: int, *, actor: Actor) -> bool:
        idle = (ReplayState.PAUSED, ReplayState.STOPPED)
        return await self._turn(replay_id, ReplayState.RUNNING, idle, actor)

    async def cancel_replay(self, replay_id: int, *, actor: Actor) -> bool:
        before = (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED)
        return await self._turn(replay_id, ReplayState.CANCELLED, before, actor)

    async def start_scheduled(self, *, due: Due) -> Sequence[Replay]:
        now = self._clock.now()
        if not await self._reader.call(lambda c: surveying.has_due(c, due=due, now=now)):
            return ()
        return await self._commit(lambda c, now: surveying.start_scheduled(c, due=due, now=now))

    async def schedules(self) -> Sequence[Schedule]:
        return await self._reader.call(surveying.read_schedules)

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
    ) -> bool:
        return await self._commit(
            lambda c, now: surveying.edit(
                c,
                delivery_id,
                before=before,
                payload=payload,
                changes=changes,
                more=more,
                actor=actor,
                is_replayed=is_replayed,
                now=now,
                history=self._history,
            ),
            rings=True,
        )

    async def _turn(
        self, replay_id: int, state: ReplayState, before: Sequence[ReplayState], actor: Actor
    ) -> bool:
        return await self._commit(
            lambda c, now: replaying.turn(c, replay_id, state, before, actor=actor, now=now),
            rings=True,
        )
