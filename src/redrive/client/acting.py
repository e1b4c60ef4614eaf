"""Acting through a server: on deliveries, replays of many, destinations, tenants, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.client.remote import (
    RemoteContext,
    encoded,
    filter_of,
    instant,
    rate_text,
    span_text,
    stretches,
)
from redrive.model.delivery import DeliveryId
from redrive.model.duration import Duration
from redrive.model.edit import Change
from redrive.model.gate import BreakerChange, Override
from redrive.model.limits import Rate
from redrive.model.replay import Pace
from redrive.operations import AutomaticReplay, ReplayPlan, Story
from redrive.store import Query, Replay
from redrive.web import answers, requests

__all__ = ["RemoteActing"]


class RemoteActing(RemoteContext):
    """Act on a system through its server, which knows who acts by the token."""

    async def replay(
        self, ids: Sequence[int], *, by: str = "", why: str = "", generation: str | None = None
    ) -> list[DeliveryId]:
        """Send dead letters again, in place: same event id, history kept, attempts from zero."""
        self._refuse_actor(by)
        return await self._changed(
            "replay",
            [
                requests.ReplayIds(ids=some, why=why, generation=generation)
                for some in stretches(ids)
            ],
        )

    async def render_again(
        self, ids: Sequence[int], *, by: str = "", why: str = ""
    ) -> list[DeliveryId]:
        """Have dead letters rendered by their rules as they are now, when they are sent again."""
        self._refuse_actor(by)
        return await self._changed(
            "render_again", [requests.ActOnIds(ids=some, why=why) for some in stretches(ids)]
        )

    async def delete(self, ids: Sequence[int], *, by: str = "", why: str) -> list[DeliveryId]:
        """Remove dead letters for good; the reason is kept in the audit log."""
        self._refuse_actor(by)
        return await self._changed(
            "delete", [requests.ActOnIdsWithReason(ids=some, why=why) for some in stretches(ids)]
        )

    async def resolve(self, ids: Sequence[int], *, by: str = "", why: str) -> list[DeliveryId]:
        """Mark dead letters as handled elsewhere; they stay, out of the way, with the reason."""
        self._refuse_actor(by)
        return await self._changed(
            "resolve", [requests.ActOnIdsWithReason(ids=some, why=why) for some in stretches(ids)]
        )

    async def reopen(
        self, ids: Sequence[int], *, by: str = "", why: str, out_of_order: bool = False
    ) -> list[DeliveryId]:
        """Make dead letters of resolved ones again, to be replayed, edited or deleted."""
        self._refuse_actor(by)
        return await self._changed(
            "reopen",
            [
                requests.ReopenIds(ids=some, why=why, out_of_order=out_of_order)
                for some in stretches(ids)
            ],
        )

    async def cancel(self, ids: Sequence[int], *, by: str = "", why: str = "") -> list[DeliveryId]:
        """Fail pending deliveries as cancelled."""
        self._refuse_actor(by)
        return await self._changed(
            "cancel", [requests.ActOnIds(ids=some, why=why) for some in stretches(ids)]
        )

    async def reschedule(
        self, ids: Sequence[int], *, due: datetime, by: str = "", why: str = ""
    ) -> list[DeliveryId]:
        """Move the due time of pending deliveries."""
        self._refuse_actor(by)
        when = due.isoformat()
        return await self._changed(
            "reschedule",
            [requests.Reschedule(ids=some, due=when, why=why) for some in stretches(ids)],
        )

    async def prioritise(
        self, ids: Sequence[int], *, priority: int, by: str = "", why: str = ""
    ) -> list[DeliveryId]:
        """Change the priority of pending deliveries; the higher one goes first."""
        self._refuse_actor(by)
        return await self._changed(
            "prioritise",
            [requests.Prioritise(ids=some, priority=priority, why=why) for some in stretches(ids)],
        )

    async def edit(
        self,
        delivery_id: int,
        payload: object,
        *,
        by: str = "",
        why: str,
        replay: bool = True,
        mark: str | None = None,
    ) -> Story:
        """Give a dead letter another payload and, unless told otherwise, send it again.

        With the `mark` of the story that was looked at, it is refused if somebody has changed it
        since.
        """
        self._refuse_actor(by)
        return await self._sender.ask(
            "edit",
            Story,
            requests.EditPayload(payload=encoded(payload), why=why, replay=replay),
            path={"id": delivery_id},
            headers={} if mark is None else {"if-match": f'"{mark}"'},
        )

    async def preview_edit(self, delivery_id: int, payload: object) -> tuple[Change, ...]:
        """Return what an edit would change, without changing anything."""
        given = requests.PreviewEdit(payload=encoded(payload))
        path = {"id": delivery_id}
        return tuple(
            (await self._sender.ask("preview_edit", answers.Changes, given, path=path)).changes
        )

    async def plan_replay(
        self, selection: Query | Sequence[int] | None = None, *, rate: Rate | str | None = None
    ) -> ReplayPlan:
        """Count what a replay would take, and say what stands in its way; changes nothing."""
        given = requests.PlanReplay(**_selected(selection), rate=rate_text(rate))
        return await self._sender.ask("plan_replay", ReplayPlan, given)

    async def start_replay(
        self,
        selection: Query | Sequence[int] | None = None,
        *,
        by: str = "",
        why: str = "",
        generation: str | None = None,
        rate: Rate | str | None = None,
        canary: int = Pace().canary,
        largest_wave: int = Pace().largest_wave,
        failure_limit: float = Pace().failure_limit,
        render_again: bool = False,
    ) -> Replay:
        """Send again all dead letters that a query finds now, or those of the ids; all if neither.

        One first, more while they succeed, none when they fail. Workers drive it.
        """
        self._refuse_actor(by)
        given = requests.StartReplay(
            **_selected(selection),
            why=why,
            generation=generation,
            rate=rate_text(rate),
            canary=canary,
            largest_wave=largest_wave,
            failure_limit=failure_limit,
            render_again=render_again,
        )
        return await self._sender.ask("start_replay", Replay, given)

    async def pause_replay(self, replay_id: int, *, by: str = "", why: str = "") -> bool:
        """Send no more letters for now; tells whether it was running."""
        return await self._act("pause_replay", requests.Act(why=why), by, id=replay_id)

    async def resume_replay(self, replay_id: int, *, by: str = "", why: str = "") -> bool:
        """Go on with one that was paused, or, beginning with a canary again, that has stopped."""
        return await self._act("resume_replay", requests.Act(why=why), by, id=replay_id)

    async def cancel_replay(self, replay_id: int, *, by: str = "", why: str = "") -> bool:
        """Leave the letters that are not sent yet alone for good; tells whether it was not over."""
        return await self._act("cancel_replay", requests.Act(why=why), by, id=replay_id)

    async def auto_replays(self) -> Sequence[AutomaticReplay]:
        """Return the destinations that are replayed by themselves, and when that is next due."""
        return (await self._sender.ask("auto_replays", answers.AutoReplays)).auto_replays

    async def pause(self, destination: str, *, by: str = "", why: str = "") -> bool:
        """Stop a destination; its deliveries wait, and no attempt is spent."""
        return await self._act("pause", requests.Act(why=why), by, name=destination)

    async def resume(self, destination: str, *, by: str = "", why: str = "") -> bool:
        """Let a paused destination go on, at the pace of retries."""
        return await self._act("resume", requests.Act(why=why), by, name=destination)

    async def override(
        self,
        destination: str,
        *,
        lasts: Duration,
        by: str = "",
        why: str,
        rate: Rate | str | None = None,
        retry_rate: Rate | str | None = None,
        replay_rate: Rate | str | None = None,
        concurrency: int | None = None,
    ) -> Override:
        """Set limits of a destination for a while, above whatever is declared."""
        self._refuse_actor(by)
        given = requests.OverrideLimits(
            lasts=span_text(lasts, name="lasts") or "",
            why=why,
            rate=rate_text(rate),
            retry_rate=rate_text(retry_rate),
            replay_rate=rate_text(replay_rate),
            concurrency=concurrency,
        )
        return await self._sender.ask("override", Override, given, path={"name": destination})

    async def end_override(self, destination: str, *, by: str = "", why: str = "") -> bool:
        """Go back to the declared limits before an override ends by itself."""
        return await self._act("end_override", requests.Act(why=why), by, name=destination)

    async def open_breaker(
        self, destination: str, *, by: str = "", why: str = "", until: datetime | None = None
    ) -> BreakerChange:
        """Open a breaker by hand, until an instant or until it is reset."""
        self._refuse_actor(by)
        given = requests.OpenBreaker(why=why, until=instant(until))
        path = {"name": destination}
        return await self._sender.ask("open_breaker", BreakerChange, given, path=path)

    async def reset_breaker(
        self, destination: str, *, by: str = "", why: str = ""
    ) -> BreakerChange:
        """Close a breaker by hand; what waited goes on at the pace of retries."""
        given = requests.Act(why=why)
        return await self._do("reset_breaker", BreakerChange, given, by, name=destination)

    async def reset_breakers(self, *, by: str = "", why: str = "") -> list[BreakerChange]:
        """Close all breakers that are not closed, such as after an outage of your own network."""
        given = requests.Act(why=why)
        return list((await self._do("reset_breakers", answers.BreakerChanges, given, by)).changes)

    async def pause_tenant(
        self, tenant: str, *, by: str = "", why: str = "", destination: str | None = None
    ) -> bool:
        """Let nothing of a tenant start, at one destination or at all of them; others go on."""
        return await self._act_on_tenant("pause_tenant", tenant, by, why, destination)

    async def resume_tenant(
        self, tenant: str, *, by: str = "", why: str = "", destination: str | None = None
    ) -> bool:
        """End a pause: that at one destination, or that at all of them."""
        return await self._act_on_tenant("resume_tenant", tenant, by, why, destination)

    async def pause_schedule(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Publish none of its ticks until it is resumed; tells whether it was not paused before."""
        return await self._act("pause_schedule", requests.Act(why=why), by, name=name)

    async def resume_schedule(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Publish its ticks from now on; tells whether it was paused."""
        return await self._act("resume_schedule", requests.Act(why=why), by, name=name)

    async def run_schedule(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Have a worker publish its event now, beside its ticks; tells whether nobody had asked."""
        return await self._act("run_schedule", requests.Act(why=why), by, name=name)

    async def _changed(self, operation: str, given: Sequence[requests.Given]) -> list[DeliveryId]:
        changed: list[DeliveryId] = []
        for one in given:
            changed += (await self._sender.ask(operation, answers.Changed, one)).changed
        return changed

    async def _act_on_tenant(
        self, operation: str, tenant: str, by: str, why: str, destination: str | None
    ) -> bool:
        given = requests.ActOnTenant(why=why, destination=destination)
        return await self._act(operation, given, by, name=tenant)


def _selected(selection: Query | Sequence[int] | None) -> dict[str, Any]:
    if selection is None or isinstance(selection, Query):
        return {"filter": requests.Filter(**filter_of(selection))}
    return {"ids": list(selection)}
