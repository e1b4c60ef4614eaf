"""Diagnosis: what the figures say about the health of the system, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from shlex import quote
from types import MappingProxyType
from typing import assert_never

from redrive.model.delivery import DeliveryId
from redrive.model.duration import rough_duration
from redrive.model.gate import GateFigures, Hold, Open, Pause
from redrive.operations.explain.schedules import ScheduleFigures
from redrive.policies.attention import SILENT_AFTER, is_read, near_limit, orphans, stranded
from redrive.policies.schedule import ScheduleState
from redrive.store import (
    DestinationFigures,
    Figures,
    Finding,
    Level,
    Miscount,
    ProjectionFigures,
    TenantFigures,
    Topic,
    WorkerFigures,
)

__all__ = ["NEGLECTED_AFTER", "SILENT_AFTER", "diagnose", "is_alive"]

NEGLECTED_AFTER = timedelta(days=7)
"""A dead letter should not wait longer than this for a person."""

_LATE_AFTER = timedelta(minutes=1)
_MOST_NAMED = 5
_CLOCK_SLACK = timedelta(seconds=5)
_MOST_NAMED = 5
_SERVE_ONE = (
    "Start a worker that serves services (redrive worker); if one runs, its log says why not "
    "this one: service not served"
)
_START_ONE = "Start a worker with: redrive worker module:app"
_SERVE_SERVICES = "Start a worker that serves services with: redrive worker"


def diagnose(
    figures: Figures,
    gates: Sequence[GateFigures] = (),
    *,
    paused: Sequence[TenantFigures] = (),
    overdue: int = 0,
    stuck: Sequence[DeliveryId] = (),
    miscounts: Sequence[Miscount] = (),
    schedules: Sequence[ScheduleFigures] = (),
    projections: Sequence[ProjectionFigures] = (),
    keeps: Callable[[str], timedelta | None] | None = None,
    unopened: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Sequence[Finding]:
    """Say how the system is.

    `paused` are the tenants that somebody has stopped; `overdue` is how many leases have run out
    without a rescue; `stuck` are deliveries that wait behind nobody; `miscounts` are counts that a
    recount does not confirm; `schedules` and `projections` are all there are; `keeps` is how long
    events of a type are kept; `unopened` are secrets by the keys of theirs that are not here.
    """
    return (
        *_workers(figures, overdue),
        *_declarations(figures),
        *_shut_gates(figures, gates),
        *_paused_tenants(figures, paused),
        *_lateness(figures, gates),
        *_schedules(figures, schedules),
        *_dead_letters(figures),
        *_near_limits(figures),
        *_lanes(figures),
        *_stuck(stuck),
        *_miscounted(miscounts),
        *_orphans(figures),
        *_projections(projections),
        *_held(projections, keeps),
        *_stranded(figures),
        *_unrouted(figures, projections),
        *_clocks(figures),
        *_unopened(unopened),
    )


def _unopened(unopened: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for key_id, names in unopened.items():
        yield Finding(
            level=Level.WARNING,
            what=f"The key {key_id!r} is not among those here, and "
            f"{_counted(len(names), 'secret is', 'secrets are')} encrypted by it: "
            f"{', '.join(names[:_MOST_NAMED])}{' …' if len(names) > _MOST_NAMED else ''}.",
            advice="Add the key to REDRIVE_KEYS or the file of keys, or set them anew with: "
            "redrive secret set",
        )


def is_alive(worker: WorkerFigures, figures: Figures) -> bool:
    """Tell whether the worker was heard of lately."""
    return figures.now - worker.seen_at < SILENT_AFTER


def _workers(figures: Figures, overdue: int) -> Iterator[Finding]:
    alive = sum(is_alive(worker, figures) for worker in figures.workers)
    late = max((_lateness_of(one, figures) for one in figures.destinations), default=timedelta(0))
    if alive:
        yield _ok(f"{_counted(alive, 'worker is', 'workers are')} alive.")
    elif late:
        yield Finding(
            level=Level.ERROR if late >= _LATE_AFTER else Level.WARNING,
            what=f"Work has been due for {rough_duration(late)}, and no worker is alive.",
            advice=_START_ONE,
            topic=Topic.WORKERS,
        )
    else:
        yield _ok("No worker is alive, and nothing is due.")
    lost = [one for one in figures.workers if one.in_flight and not is_alive(one, figures)]
    if lost:
        who = f"worker {lost[0].id}" if len(lost) == 1 else f"{len(lost)} workers"
        silence = rough_duration(figures.now - max(one.seen_at for one in lost))
        held = _counted(sum(one.in_flight for one in lost), "delivery", "deliveries")
        yield Finding(
            level=Level.WARNING,
            what=f"Nothing was heard for {silence} of {who}, with {held} in flight.",
            advice="" if alive else f"Any live worker takes them back. {_START_ONE}",
            topic=Topic.WORKERS,
        )
    elif overdue:
        yield Finding(
            level=Level.WARNING,
            what=f"{_counted(overdue, 'lease has', 'leases have')} run out.",
            advice="" if alive else f"Any live worker takes them back. {_START_ONE}",
            topic=Topic.WORKERS,
        )


def _declarations(figures: Figures) -> Iterator[Finding]:
    told = [one for one in figures.workers if one.others and is_alive(one, figures)]
    declared = sorted({name for one in told for name in one.others})
    routed = {one.name for one in figures.destinations if not one.is_removed}
    others = [name for name in declared if name in routed]
    removed = [name for name in declared if name not in routed]
    who = f"Worker {told[0].id} declares" if len(told) == 1 else f"{len(told)} workers declare"
    if others:
        yield Finding(
            level=Level.WARNING,
            what=f"{who} {_named(others)} otherwise than is in force, which all workers follow.",
            advice="It passes when the deployment is over. What changed last: redrive audit",
        )
    if removed:
        yield Finding(
            level=Level.WARNING,
            what=f"{who} {_named(removed)}, which was removed and gets nothing.",
            advice=f"Take that back with: redrive destination restore {removed[0]}",
        )


def _schedules(figures: Figures, schedules: Sequence[ScheduleFigures]) -> Iterator[Finding]:
    for one in schedules:
        match one.state:
            case ScheduleState.TICKING:
                continue
            case ScheduleState.PAUSED:
                by = "" if one.pause is None else f" by {one.pause.by}"
                why = f", because: {one.pause.why}" if one.pause and one.pause.why else ""
                what = f"The schedule {one.name} was paused{by}{why}."
                advice = f"Let it go on with: redrive schedule resume {one.name}"
            case ScheduleState.LATE:
                since = figures.now if one.next_at is None else one.next_at
                late = rough_duration(figures.now - since)
                what = f"The schedule {one.name} is late: a tick has been due for {late}."
                advice = "The logs of the workers say why: schedule failed, or store lost"
            case ScheduleState.STOPPED:
                stored = bool(one.schedule.stored)
                does, start = ("serves", _SERVE_SERVICES) if stored else ("declares", _START_ONE)
                what = f"No live worker {does} the schedule {one.name}: nothing is published."
                advice = f"If it is meant to go on: {start}"
            case never:
                assert_never(never)
        yield Finding(
            level=Level.WARNING, what=what, advice=advice, topic=Topic.SCHEDULE, name=one.name
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _shut_gates(figures: Figures, gates: Sequence[GateFigures]) -> Iterator[Finding]:
    pending = {one.name: one.pending for one in figures.destinations}
    for one in gates:
        name, pause, breaker = one.destination, one.gate.pause, one.gate.breaker
        if pause is None and not isinstance(breaker, Open):
            continue
        waiting = _counted(pending.get(name, 0), "delivery waits", "deliveries wait")
        if pause is not None:
            since = rough_duration(figures.now - pause.at)
            why = f", because: {pause.why}" if pause.why else ""
            yield Finding(
                level=Level.WARNING,
                what=f"{name} was paused by {pause.by} {since} ago{why}. {waiting}.",
                advice=f"Let it go on with: redrive destination resume {name}",
                topic=Topic.PAUSE,
                name=name,
            )
        if isinstance(breaker, Open):
            yield Finding(
                level=Level.WARNING,
                what=f"The breaker of {name} is open{_until(breaker, figures)}. {waiting}.",
                advice=f"Close it now with: redrive breaker reset {name} --why …",
                topic=Topic.BREAKER,
                name=name,
            )


def _paused_tenants(figures: Figures, paused: Sequence[TenantFigures]) -> Iterator[Finding]:
    waiting: Counter[tuple[str, str]] = Counter()
    pauses: dict[tuple[str, str], Pause] = {}
    for one in paused:
        if one.pause is not None:
            place = one.tenant or "", "" if one.is_paused_everywhere else one.destination or ""
            waiting[place] += one.pending
            pauses[place] = one.pause
    for (tenant, destination), pause in pauses.items():
        where = f" at {destination}" if destination else ""
        option = f" --destination {destination}" if destination else ""
        since = rough_duration(figures.now - pause.at)
        why = f", because: {pause.why}" if pause.why else ""
        held = _counted(waiting[tenant, destination], "delivery waits", "deliveries wait")
        yield Finding(
            level=Level.WARNING,
            what=f"The tenant {tenant} was paused{where} by {pause.by} {since} ago{why}. {held}.",
            advice=f"Let it go on with: redrive tenant resume {quote(tenant)}{option}",
            topic=Topic.TENANT,
            name=tenant,
        )


def _until(breaker: Open, figures: Figures) -> str:
    if breaker.until is None:
        return ", until somebody resets it"
    left = max(timedelta(0), breaker.until - figures.now)
    return f"; the next try is in {rough_duration(left)}"


def _lateness(figures: Figures, gates: Sequence[GateFigures]) -> Iterator[Finding]:
    if not any(is_alive(worker, figures) for worker in figures.workers):
        return
    holds = {one.destination: one.hold for one in gates}
    told = frozenset(
        one.destination for one in stranded(figures.due, figures.workers, now=figures.now)
    )
    for destination in figures.destinations:
        if destination.oldest_due is None or destination.is_removed or destination.name in told:
            continue
        late = _lateness_of(destination, figures)
        hold = holds.get(destination.name)
        if late < _LATE_AFTER or hold in {Hold.PAUSED, Hold.BREAKER_OPEN}:
            continue
        if hold is not None:
            advice = f"What holds it back now: {hold.label} (redrive destination list)."
        elif destination.in_flight:
            advice = "It gets more than it can take: raise its concurrency or start more workers."
        else:
            advice = (
                "No worker takes it: look whether one declares this destination and claims the "
                "generation of these deliveries (redrive delivery list)."
            )
        yield Finding(
            level=Level.WARNING,
            what=f"{destination.name} is behind: its oldest delivery has been due for "
            f"{rough_duration(late)}.",
            advice=advice,
            topic=Topic.DESTINATION,
            name=destination.name,
        )


def _is_neglected(figures: Figures) -> bool:
    oldest = figures.letters.oldest
    return oldest is not None and oldest < figures.now - NEGLECTED_AFTER


def _dead_letters(figures: Figures) -> Iterator[Finding]:
    failing = [one for one in figures.destinations if one.failed]
    if not failing:
        yield _ok("There is no dead letter.")
        return
    failed = sum(one.failed for one in failing)
    places = ", ".join(f"{one.name} {one.failed:,}" for one in failing)
    age = (
        f", some for more than {rough_duration(NEGLECTED_AFTER)}" if _is_neglected(figures) else ""
    )
    yield Finding(
        level=Level.WARNING,
        what=f"{_counted(failed, 'dead letter waits', 'dead letters wait')} for a person "
        f"({places}){age}.",
        advice="Look at them with: redrive dlq groups",
        topic=Topic.DEAD_LETTERS,
    )


def _lanes(figures: Figures) -> Iterator[Finding]:
    for one in figures.destinations:
        if one.behind and one.failed:
            yield Finding(
                level=Level.WARNING,
                what=f"{one.name} keeps {_counted(one.behind, 'delivery', 'deliveries')} waiting "
                "behind others of their key.",
                advice="See which, and behind what, with: redrive destination lanes",
                topic=Topic.DESTINATION,
                name=one.name,
            )


def _stuck(stuck: Sequence[DeliveryId]) -> Iterator[Finding]:
    if stuck:
        named = ", ".join(map(str, stuck[:_MOST_NAMED]))
        more = ", …" if len(stuck) > _MOST_NAMED else ""
        yield Finding(
            level=Level.ERROR,
            what=f"{_counted(len(stuck), 'delivery waits', 'deliveries wait')} behind nobody "
            f"({named}{more}), and so do the others of their keys: a defect of Redrive.",
            advice="Set each going with: redrive delivery cancel ID --why stuck, then redrive dlq "
            "replay ID; and please report it.",
        )


def _miscounted(miscounts: Sequence[Miscount]) -> Iterator[Finding]:
    if miscounts:
        one = miscounts[0]
        of = "the store" if one.destination is None else one.destination
        more = f", and {len(miscounts) - 1:,} more" if len(miscounts) > 1 else ""
        yield Finding(
            level=Level.ERROR,
            what="The kept counts are wrong: a defect of Redrive, or somebody has changed its "
            f"tables. Of {of}, {one.what}: {one.kept:,} are told, and there are "
            f"{one.counted:,}{more}.",
            advice="No delivery is lost by it. Count anew with: redrive doctor --recount",
        )


def _near_limits(figures: Figures) -> Iterator[Finding]:
    for one in figures.destinations:
        if one.keep is None:
            continue
        near = near_limit(one.keep, count=one.failed, oldest=one.oldest_failed, now=figures.now)
        if near is not None:
            yield Finding(
                level=Level.WARNING,
                what=f"{one.name} keeps its dead letters up to a limit, and is near it: {near}. "
                "What is over it is exported to a file, the oldest first.",
                advice=f"Look at them with: redrive dlq groups --destination {one.name}",
                topic=Topic.DESTINATION,
                name=one.name,
            )


def _orphans(figures: Figures) -> Iterator[Finding]:
    for one in orphans(figures):
        waiting = _counted(one.pending, "delivery", "deliveries")
        why = "it was removed" if one.is_removed else "no live worker serves it"
        yield Finding(
            level=Level.WARNING,
            what=f"{one.name} is orphaned: {waiting} held, because {why}.",
            advice=(
                f"{_SERVE_ONE}, or hand them on with: "
                if one.is_service and not one.is_removed
                else "Start a worker that declares it, or hand them on with: "
            )
            + f"redrive destination move {one.name} …",
            topic=Topic.DESTINATION,
            name=one.name,
        )


def _projections(projections: Sequence[ProjectionFigures]) -> Iterator[Finding]:
    for one in projections:
        name = one.checkpoint.projection
        has_others = sum(two.checkpoint.name == one.checkpoint.name for two in projections) > 1
        which = f" --version {one.checkpoint.version}" if has_others else ""
        command = f"{quote(one.checkpoint.name)}{which}"
        if one.events_behind and not is_read(one):
            behind = _counted(one.events_behind, "event", "events")
            unread = sum(not is_read(part) for part in one.parts)
            count = len(one.parts)
            what = "it" if unread == count else f"{unread} of its {count} partitions"
            yield Finding(
                level=Level.WARNING,
                what=f"The projection {name} is {behind} behind, and no live worker reads for "
                f"{what}; what it has not read is kept, however old it is.",
                advice="Start a worker that has it, or forget it with: redrive projection drop "
                f"{command}",
                topic=Topic.PROJECTION,
                name=name,
            )
        elif one.behind_for > _LATE_AFTER:
            yield Finding(
                level=Level.WARNING,
                what=f"The projection {name} has been behind for {rough_duration(one.behind_for)}.",
                advice=f"See what keeps it with: redrive projection show {command}",
                topic=Topic.PROJECTION,
                name=name,
            )


def _held(
    projections: Sequence[ProjectionFigures], keeps: Callable[[str], timedelta | None] | None
) -> Iterator[Finding]:
    """Name who keeps events from going that were kept for long enough."""
    if keeps is None:
        return
    for one in projections:
        spans = [keeps(kind) for kind in one.lag]
        shortest = min((span for span in spans if span is not None), default=None)
        if shortest is not None and one.behind_for > shortest:
            name = one.checkpoint.projection
            yield Finding(
                level=Level.WARNING,
                what=f"The projection {name} keeps events that could have gone: the first it has "
                f"still to read is {rough_duration(one.behind_for)} old, and such are kept for "
                f"{rough_duration(shortest)}.",
                advice=f"Let it catch up, or forget it with: redrive projection drop {quote(name)}",
            )


def _stranded(figures: Figures) -> Iterator[Finding]:
    orphaned = frozenset(one.name for one in orphans(figures))
    for one in stranded(figures.due, figures.workers, now=figures.now):
        if one.destination not in orphaned:
            yield Finding(
                level=Level.WARNING,
                what=f"{_counted(one.count, 'delivery', 'deliveries')} to {one.destination} of "
                f"generation {one.generation!r} due, and no live worker claims that generation.",
                advice=f"Start a worker with: REDRIVE_GENERATIONS={one.generation} "
                "redrive worker module:app",
            )


def _unrouted(figures: Figures, projections: Sequence[ProjectionFigures]) -> Iterator[Finding]:
    # What no destination is given may be meant for those who read the log.
    if figures.unrouted and not projections:
        yield Finding(
            level=Level.WARNING,
            what=f"{_counted(figures.unrouted, 'event is', 'events are')} wanted by nobody; "
            "such events are in the log and go nowhere.",
            advice="Was that meant? See them with: redrive event list --unrouted, and give them to "
            "a destination that came later with: redrive destination backfill NAME",
        )


def _clocks(figures: Figures) -> Iterator[Finding]:
    ahead = [one for one in figures.workers if one.seen_at - figures.now > _CLOCK_SLACK]
    if ahead:
        yield Finding(
            level=Level.ERROR,
            what=f"Worker {ahead[0].id} was heard of in the future: the clock was set back.",
            advice="Set the clock right, and keep it so with NTP; due times depend on it.",
        )


def _lateness_of(destination: DestinationFigures, figures: Figures) -> timedelta:
    if destination.oldest_due is None:
        return timedelta(0)
    return max(timedelta(0), figures.now - destination.oldest_due)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _ok(what: str) -> Finding:
    return Finding(level=Level.OK, what=what)
