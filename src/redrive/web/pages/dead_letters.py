"""Dead letters by cause: the groups, one of them, and what is done to all of its letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.delivery import Delivery
from redrive.model.replay import Pace
from redrive.operations import ReplayPlan
from redrive.store import Group, Query
from redrive.web.pages.page import MOST_READ, Moved, Page, Visit
from redrive.web.pages.rendering import counted

__all__ = [
    "Causes",
    "GroupView",
    "PlanView",
    "delete_group",
    "group_path",
    "plan_group",
    "reopen_group",
    "replay_group",
    "resolve_group",
    "show_causes",
    "show_group",
]

_MOST_GROUPS = 100
_SAMPLES = 4
_LATELY = timedelta(hours=1)
_A_MOMENT = timedelta(microseconds=1)


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead letters, the largest first, and what they were asked for by."""

    groups: tuple[Group, ...]
    destination: str = ""
    tenant: str = ""
    text: str = ""
    with_resolved: bool = False
    most_read: int = MOST_READ

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be others that were not asked for."""
        return bool(self.destination or self.tenant or self.text)


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group: what its letters share, some of them, where they are, and its first stack.

    `lately` counts those of the last hour and `before` those of the hour before, from which
    `growth` says whether it grows. `is_resolved` says that none of them waits any more. Acts leave
    alone what has failed since, from `until` on.
    """

    group: Group
    samples: tuple[Delivery, ...]
    lately: int
    before: int
    growth: str
    stack: str
    stack_at: datetime | None
    until: datetime
    is_resolved: bool = False

    @property
    def compared(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The samples side by side: each fact, and what each of them says of it."""
        facts: tuple[tuple[str, Callable[[Delivery], object]], ...] = (
            ("Destination", lambda one: one.destination),
            ("Event", lambda one: one.event_type),
            ("Key", lambda one: one.key),
            ("Tenant", lambda one: one.tenant),
            ("Source", lambda one: one.source),
            ("Tries", lambda one: one.attempts),
            ("Replayed", lambda one: len(one.cycles) or ""),
            ("Message", lambda one: one.fault.message if one.fault else ""),
        )
        rows = [
            (name, tuple(str(said(one) or "-") for one in self.samples)) for name, said in facts
        ]
        return tuple(one for one in rows if set(one[1]) != {"-"})


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of a group would do, and the pace it would take by itself."""

    group: Group
    plan: ReplayPlan
    pace: Pace = Pace()
    has_rules: bool = False


def group_path(group: str) -> str:
    """Return where a group is shown."""
    return f"/dead-letters/groups/{quote(group, safe='')}"


async def show_causes(visit: Visit) -> Page:
    """Show the dead letters by what they failed of."""
    destination, tenant, text = (visit.asked(one) for one in ("destination", "tenant", "text"))
    with_resolved = visit.asked("show") == "resolved"
    query = Query(destination=destination, tenant=tenant, text=text, with_resolved=with_resolved)
    groups = await visit.operations.groups(
        query, limit=_MOST_GROUPS, most_read=None if text is None else MOST_READ
    )
    model = Causes(
        groups=tuple(groups),
        destination=destination or "",
        tenant=tenant or "",
        text=text or "",
        with_resolved=with_resolved,
    )
    return Page(template="causes.html", title="Dead letters", model=model)


async def show_group(visit: Visit) -> Page:
    """Show a group, some of its letters, and what may be done with all of them."""
    operations = visit.operations
    group, is_resolved = await _find_any(visit)
    query = Query(group=group.id, with_resolved=is_resolved)
    samples = (await operations.dead_letters(query, limit=_SAMPLES)).deliveries
    first = await _first(visit, query, group)
    lately = await _count(visit, query, visit.now - _LATELY, None)
    before = await _count(visit, query, visit.now - 2 * _LATELY, visit.now - _LATELY)
    model = GroupView(
        group=group,
        samples=samples,
        lately=lately,
        before=before,
        growth=_growth(lately, before),
        stack="" if first is None or first.fault is None else first.fault.stack,
        stack_at=None if first is None else first.settled_at,
        until=group.last_seen + _A_MOMENT,
        is_resolved=is_resolved,
    )
    return Page(template="group.html", title=group.title, model=model)


async def plan_group(visit: Visit) -> Page:
    """Show what a replay of the whole group would do."""
    group = await _find(visit)
    plan = await visit.operations.plan_replay(Query(group=group.id))
    example = await visit.operations.show(group.example)
    model = PlanView(group=group, plan=plan, has_rules=bool(example.delivery.rule))
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
        render_again=visit.form.get("rendered") == "again",
    )
    return Moved(f"/replays/{replay.id}")


async def resolve_group(visit: Visit) -> Moved:
    """Mark all letters of the group that were there when it was looked at as handled."""
    ids = await visit.operations.select(_seen(visit))
    changed = await visit.operations.resolve(ids, by=visit.by, why=visit.why)
    return Moved("/dead-letters", f"{_letters(len(changed))} resolved.")


async def reopen_group(visit: Visit) -> Moved:
    """Make dead letters of the resolved ones of the group again."""
    ids = await visit.operations.select(_seen(visit), resolved=True)
    changed = await visit.operations.reopen(ids, by=visit.by, why=visit.why)
    return Moved(group_path(visit.path["group"]), f"{_letters(len(changed))} reopened.")


async def delete_group(visit: Visit) -> Moved:
    """Remove all letters of the group that were there when it was looked at, for good."""
    ids = await visit.operations.select(_seen(visit))
    changed = await visit.operations.delete(ids, by=visit.by, why=visit.why)
    return Moved("/dead-letters", f"{_letters(len(changed))} deleted.")


def _letters(count: int) -> str:
    return counted(count, "dead letter was", "dead letters were")


def _growth(lately: int, before: int) -> str:
    if not lately:
        return "It does not grow."
    if not before:
        return "It grows, and began within the last hour." if lately else ""
    if lately > before:
        return "It grows, faster than an hour ago."
    return "It still grows, slower than an hour ago." if lately < before else "It still grows."


async def _count(visit: Visit, query: Query, since: datetime, until: datetime | None) -> int:
    chosen = msgspec.structs.replace(query, since=since, until=until)
    return sum(one.count for one in await visit.operations.groups(chosen, limit=_SAMPLES))


async def _first(visit: Visit, query: Query, group: Group) -> Delivery | None:
    """Return the letter that failed first, whose stack is nearest to the cause."""
    chosen = msgspec.structs.replace(query, until=group.first_seen + _A_MOMENT)
    found = (await visit.operations.dead_letters(chosen, limit=1)).deliveries
    return found[0] if found else None


async def _find(visit: Visit) -> Group:
    group, is_resolved = await _find_any(visit)
    if is_resolved:
        raise _gone()
    return group


async def _find_any(visit: Visit) -> tuple[Group, bool]:
    """Return the group that the path names, and whether all of its letters are resolved."""
    for with_resolved in (False, True):
        query = Query(group=visit.path["group"], with_resolved=with_resolved)
        if found := await visit.operations.groups(query, limit=1):
            return found[0], with_resolved
    raise _gone()


def _gone() -> NotFoundError:
    return NotFoundError(
        "There is no dead letter of this group any more: they were replayed, resolved or "
        "deleted. The audit log says by whom."
    )


def _seen(visit: Visit) -> Query:
    try:
        until = datetime.fromisoformat(visit.form.get("until", ""))
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        raise UsageError("The form does not say which letters were looked at; load the page again.")
    return Query(group=visit.path["group"], until=until)
