"""Schedules: how they stand, stopping one, and publishing its event now."""

from __future__ import annotations

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.observer import Operated
from redrive.operations.explain.schedules import ScheduleFigures
from redrive.operations.looking import Looking

__all__ = ["Scheduling"]


class Scheduling(Looking):
    """Look at schedules, pause and resume them, and run one now."""

    async def show_schedule(self, name: str) -> ScheduleFigures:
        """Return one schedule."""
        found = {one.name: one for one in await self.schedules()}
        if name not in found:
            raise not_found(name, found, what="schedule")
        return found[name]

    async def pause_schedule(self, name: str, *, by: str, why: str = "") -> bool:
        """Publish none of its ticks until it is resumed; tells whether it was not paused before."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).pause_schedule(name, actor=actor)
        return await self._schedule_acted("pause_schedule", name, actor, is_new=is_new)

    async def resume_schedule(self, name: str, *, by: str, why: str = "") -> bool:
        """Publish its ticks from now on; tells whether it was paused."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).resume_schedule(name, actor=actor)
        return await self._schedule_acted("resume_schedule", name, actor, is_new=is_new)

    async def run_schedule(self, name: str, *, by: str, why: str = "") -> bool:
        """Have a worker publish its event now, beside its ticks; tells whether nobody had asked.

        It is published within some seconds by a worker that declares the schedule.
        """
        actor = Actor(by, why)
        is_new = await (await self._to_change()).run_schedule(name, actor=actor)
        return await self._schedule_acted("run_schedule", name, actor, is_new=is_new)

    async def _schedule_acted(
        self, action: str, name: str, actor: Actor, *, is_new: bool | None
    ) -> bool:
        if is_new is None:
            timetable = await (await self._store()).timetable()
            known = [one.standing.name for one in timetable.schedules]
            raise not_found(name, known, what="schedule")
        if is_new:
            self._observer.notice(
                Operated(action=action, by=actor.by, why=actor.why, schedule=name)
            )
        return is_new
