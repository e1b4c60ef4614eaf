"""Replays, schedules and edits; each step of a replay is a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change
from redrive.model.replay import ReplayState
from redrive.store import Advance, Due, NewReplay, Replay, ReplayStep, Schedule, Selection, Survey
from redrive.stores.postgres import replaying, surveying
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.core import Core
from redrive.stores.steering import summary

__all__ = ["ReplaysRole"]


class ReplaysRole(Core):
    """`Replays` and `Editing`."""

    async def survey(self, selection: Selection) -> Survey:
        return await self._read(lambda link, _: surveying.survey(link, selection))

    async def start_replay(self, new: NewReplay, *, actor: Actor) -> Replay | None:
        return await self._write(
            lambda link, now: replaying.start(link, new, actor=actor, now=now), rings=True
        )

    async def advance_replays(self) -> Advance:
        async def look(link: Link, now: datetime) -> tuple[datetime, list[int]]:
            return now, await replaying.running(link)

        duties = await self._due_duties()
        if not duties.has_replays:
            return summary((), now=duties.now)
        now, running = await self._read(look, within=self._patience)
        taken = [one for number in running if (one := await self._step(number)) is not None]
        advance = summary(taken, now=now)
        if any(step.sent for step in advance.steps):
            self._notifications.notify()
        return advance

    async def _step(self, replay_id: int) -> tuple[ReplayStep | None, Replay] | None:
        return await self._write(
            lambda link, now: replaying.step(link, replay_id, now=now, history=self._history),
            within=self._patience,
        )

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        return await self._read(lambda link, _: replaying.read(link, before=before, limit=limit))

    async def find_replay(self, replay_id: int) -> Replay | None:
        return await self._read(lambda link, _: replaying.find(link, replay_id))

    async def pause_replay(self, replay_id: int, *, actor: Actor) -> bool:
        return await self._turn(replay_id, ReplayState.PAUSED, (ReplayState.RUNNING,), actor)

    async def resume_replay(self, replay_id: int, *, actor: Actor) -> bool:
        idle = (ReplayState.PAUSED, ReplayState.STOPPED)
        return await self._turn(replay_id, ReplayState.RUNNING, idle, actor)

    async def cancel_replay(self, replay_id: int, *, actor: Actor) -> bool:
        before = (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED)
        return await self._turn(replay_id, ReplayState.CANCELLED, before, actor)

    async def start_scheduled(self, *, due: Due) -> Sequence[Replay]:
        if not (await self._due_duties()).has_schedules:
            return ()
        patience = self._patience
        if not await self._read(
            lambda link, now: surveying.has_due(link, due=due, now=now), within=patience
        ):
            return ()
        return await self._write(
            lambda link, now: surveying.start_scheduled(link, due=due, now=now), within=patience
        )

    async def schedules(self) -> Sequence[Schedule]:
        return await self._read(lambda link, _: surveying.read_schedules(link))

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
        return await self._write(
            lambda link, now: surveying.edit(
                link,
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
        return await self._write(
            lambda link, now: replaying.turn(link, replay_id, state, before, actor=actor, now=now),
            rings=True,
        )
