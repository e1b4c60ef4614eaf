"""Replaying many: plan it, start it, watch it, and tell it to pause, go on or end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.audit import Actor
from redrive.model.checks import check_generation
from redrive.model.delivery import Status
from redrive.model.gate import Closed
from redrive.model.limits import Rate, read_rate
from redrive.model.replay import AutoReplay, Pace, ReplayState
from redrive.observer import Operated, ReplayStarted
from redrive.operations.context import MOST_PER_PAGE, OperationContext, check_limit, known_ids
from redrive.policies.auto_replay import next_due
from redrive.policies.replay import ACTIONS, estimate
from redrive.store import NewReplay, Query, Replay, Selection, Store, Survey

__all__ = ["AutomaticReplay", "ReplayPlan", "Replaying"]


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would do if it was started now.

    `takes_at_least` is what the rates make of it; `None` when there are none. `rates` are those of
    its destinations, by name.
    `paused` and `broken` are those of its destinations that are paused, or whose breaker is not
    closed: what is sent there waits.
    """

    survey: Survey
    takes_at_least: timedelta | None = None
    rates: tuple[tuple[str, Rate], ...] = ()
    paused: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


class AutomaticReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that is replayed by itself, and when that happens next."""

    destination: str
    auto_replay: AutoReplay
    next_at: datetime


class Replaying(OperationContext):
    """Replay many dead letters as one operation that outlives whoever started it."""

    async def plan_replay(
        self, selection: Query | Sequence[int] | None = None, *, rate: Rate | str | None = None
    ) -> ReplayPlan:
        """Count what a replay would take, and say what stands in its way; changes nothing."""
        store = await self._store()
        survey = await store.survey(_selection(selection))
        told = self._redaction.text
        groups = tuple((one, told(title), count) for one, title, count in survey.groups)
        names = [name for name, _ in survey.destinations]
        gates = {one.destination: one for one in await store.gates(names)}
        return ReplayPlan(
            survey=msgspec.structs.replace(survey, groups=groups),
            takes_at_least=estimate(
                survey.destinations,
                {name: gate.limits for name, gate in gates.items()},
                Pace(rate=read_rate(rate, name="rate")),
            ),
            rates=tuple(
                (name, one.limits.replay_rate)
                for name, one in gates.items()
                if one.limits.replay_rate is not None
            ),
            paused=tuple(name for name, one in gates.items() if one.gate.pause is not None),
            broken=tuple(
                name for name, one in gates.items() if not isinstance(one.gate.breaker, Closed)
            ),
        )

    async def start_replay(
        self,
        selection: Query | Sequence[int] | None = None,
        *,
        by: str,
        why: str = "",
        generation: str | None = None,
        rate: Rate | str | None = None,
        canary: int = Pace().canary,
        largest_wave: int = Pace().largest_wave,
        failure_limit: float = Pace().failure_limit,
        render_again: bool = False,
    ) -> Replay:
        """Send again all dead letters that a query finds now, or those of the ids; all if neither.

        First `canary` of them, then twice as many each time that went well, up to `largest_wave`,
        and no more than `rate` in a time, such as `"50/s"`. If one of the canary fails again, or
        later more than the share `failure_limit` of a wave, the replay stops and leaves the rest
        alone. Workers drive it; it survives them. They are sent as they were rendered, unless they
        are to be rendered again, by their rules as they are now.
        """
        check_generation(generation)
        pace = Pace(
            canary=canary,
            largest_wave=largest_wave,
            failure_limit=failure_limit,
            rate=read_rate(rate, name="rate"),
        )
        new = NewReplay(selection=_selection(selection), pace=pace, generation=generation)
        store, actor = await self._to_change(), Actor(by, why)
        if render_again:
            await self._render_again(store, new.selection, actor)
        replay = await store.start_replay(new, actor=actor)
        if replay is None:
            raise NotFoundError("No dead letter matches, so there is nothing to replay.")
        self._observer.notice(ReplayStarted(replay=replay))
        return self._redaction.replay(replay)

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        """Return the replays of many, the latest first; `before` is the id to go on from."""
        check_limit(limit)
        found = await (await self._store()).replays(before=before, limit=limit)
        return [self._redaction.replay(one) for one in found]

    async def show_replay(self, replay_id: int) -> Replay:
        """Return one replay of many, and how far it has come."""
        found = await (await self._store()).find_replay(_known(replay_id))
        if found is None:
            raise _no_replay(replay_id)
        return self._redaction.replay(found)

    async def pause_replay(self, replay_id: int, *, by: str, why: str = "") -> bool:
        """Send no more letters for now; tells whether it was running."""
        return await self._steer(replay_id, ReplayState.PAUSED, Actor(by, why))

    async def resume_replay(self, replay_id: int, *, by: str, why: str = "") -> bool:
        """Go on with one that was paused, or, beginning with a canary again, that has stopped."""
        return await self._steer(replay_id, ReplayState.RUNNING, Actor(by, why))

    async def cancel_replay(self, replay_id: int, *, by: str, why: str = "") -> bool:
        """Leave the letters that are not sent yet alone for good; tells whether it was not over."""
        return await self._steer(replay_id, ReplayState.CANCELLED, Actor(by, why))

    async def auto_replays(self) -> Sequence[AutomaticReplay]:
        """Return the destinations that are replayed by themselves, and when that is next due."""
        return [
            AutomaticReplay(
                destination=one.destination,
                auto_replay=one.auto_replay,
                next_at=next_due(one.auto_replay, one.since),
            )
            for one in await (await self._store()).auto_replays()
        ]

    async def _render_again(self, store: Store, selection: Selection, actor: Actor) -> None:
        """Pin the rules as they are now to the letters that are to be sent."""
        if selection.query is None:
            ids = selection.ids or ()
            for begin in range(0, len(ids), MOST_PER_PAGE):
                some = ids[begin : begin + MOST_PER_PAGE]
                await store.render_again(some, actor=actor)
            return
        cursor: str | None = None
        while True:
            page = await store.find(selection.query, cursor=cursor, limit=MOST_PER_PAGE)
            await store.render_again([one.id for one in page.deliveries], actor=actor)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _steer(self, replay_id: int, state: ReplayState, actor: Actor) -> bool:
        store = await self._to_change()
        is_new = await store.steer_replay(_known(replay_id), state, actor=actor)
        if is_new:
            self._observer.notice(
                Operated(action=ACTIONS[state], by=actor.by, why=actor.why, replay=replay_id)
            )
        else:
            await self.show_replay(replay_id)
        return is_new


def _selection(given: Query | Sequence[int] | None) -> Selection:
    if given is None or isinstance(given, Query):
        query = given or Query()
        if query.status is not Status.FAILED:
            raise UsageError(
                f"The query asks for {query.status or 'all'} deliveries; only dead letters can be "
                "replayed, so leave its status out."
            )
        return Selection(query=query)
    return Selection(ids=tuple(known_ids(given)))


def _known(replay_id: int) -> int:
    return next(iter(known_ids([replay_id])), 0)


def _no_replay(replay_id: int) -> NotFoundError:
    return NotFoundError(
        f"There is no replay {replay_id}; `redrive replay list` shows those there are."
    )
