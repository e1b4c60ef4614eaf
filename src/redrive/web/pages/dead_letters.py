"""Dead letters by cause: the groups, one of them, and what is done to all of its letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.delivery import Delivery
from redrive.model.replay import Pace
from redrive.operations import ReplayPlan
from redrive.store import Group, Query
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "Causes",
    "GroupView",
    "PlanView",
    "delete_group",
    "group_path",
    "plan_group",
    "replay_group",
    "resolve_group",
    "show_causes",
    "show_group",
]

_MOST_GROUPS = 100
_SAMPLES = 5
_LATELY = timedelta(hours=1)


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead letters, the largest first, and what they were asked for by."""

    groups: tuple[Group, ...]
    destination: str = ""
    tenant: str = ""
    text: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be others that were not asked for."""
        return bool(self.destination or self.tenant or self.text)


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group: what its letters share, some of them, where they are, and a stack.

    `lately` counts those of the last hour. Acts leave alone what has failed since, from `until` on.
    """

    group: Group
    plan: ReplayPlan
    samples: tuple[Delivery, ...]
    lately: int
    stack: str
    until: datetime


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of a group would do, and the pace it would take by itself."""

    group: Group
    plan: ReplayPlan
    pace: Pace = Pace()


def group_path(group: str) -> str:
    """Return where a group is shown."""
    return f"/dead-letters/groups/{quote(group, safe='')}"


async def show_causes(visit: Visit) -> Page:
    """Show the dead letters by what they failed of."""
    destination, tenant, text = (visit.asked(one) for one in ("destination", "tenant", "text"))
    query = Query(destination=destination, tenant=tenant, text=text)
    groups = await visit.operations.groups(query, limit=_MOST_GROUPS)
    model = Causes(
        groups=tuple(groups), destination=destination or "", tenant=tenant or "", text=text or ""
    )
    return Page(template="causes.html", title="Dead letters", model=model)


async def show_group(visit: Visit) -> Page:
    """Show a group, some of its letters, and what may be done with all of them."""
    operations, group = visit.operations, await _find(visit)
    query = Query(group=group.id)
    lately = await operations.groups(
        Query(group=group.id, since=visit.now - _LATELY), limit=_SAMPLES
    )
    story = await operations.show(group.example)
    model = GroupView(
        group=group,
        plan=await operations.plan_replay(query),
        samples=(await operations.dead_letters(query, limit=_SAMPLES)).deliveries,
        lately=sum(one.count for one in lately),
        stack="" if story.delivery.fault is None else story.delivery.fault.stack,
        until=group.last_seen + timedelta(microseconds=1),
    )
    return Page(template="group.html", title=group.title, model=model)


async def plan_group(visit: Visit) -> Page:
    """Show what a replay of the whole group would do."""
    group = await _find(visit)
    plan = await visit.operations.plan_replay(Query(group=group.id))
    model = PlanView(group=group, plan=plan)
    return Page(template="plan.html", title=f"Replay: {group.title}", model=model)


async def replay_group(visit: Visit) -> Moved:
    """Send all letters of the group again: a few first, more while they succeed."""
    canary = visit.form.get("canary", "") or str(Pace().canary)
    if not (canary.isascii() and canary.isdigit()):
        raise UsageError(f"How many go first is {canary[:50]!r}; write a number, such as 1.")
    replay = await visit.operations.start_replay(
        Query(group=(await _find(visit)).id),
        by=visit.by,
        why=visit.why,
        canary=int(canary),
        rate=visit.form.get("rate", "").strip() or None,
    )
    return Moved(f"/replays/{replay.id}")


async def resolve_group(visit: Visit) -> Moved:
    """Mark all letters of the group that were there when it was looked at as handled."""
    ids = await visit.operations.select(_seen(visit))
    await visit.operations.resolve(ids, by=visit.by, why=visit.why)
    return Moved("/dead-letters")


async def delete_group(visit: Visit) -> Moved:
    """Remove all letters of the group that were there when it was looked at, for good."""
    ids = await visit.operations.select(_seen(visit))
    await visit.operations.delete(ids, by=visit.by, why=visit.why)
    return Moved("/dead-letters")


async def _find(visit: Visit) -> Group:
    found = await visit.operations.groups(Query(group=visit.path["group"]), limit=1)
    if not found:
        raise NotFoundError(
            "There is no dead letter of this group any more: they were replayed, resolved or "
            "deleted. The audit log says by whom."
        )
    return found[0]


def _seen(visit: Visit) -> Query:
    try:
        until = datetime.fromisoformat(visit.form.get("until", ""))
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        raise UsageError("The form does not say which letters were looked at; load the page again.")
    return Query(group=visit.path["group"], until=until)
