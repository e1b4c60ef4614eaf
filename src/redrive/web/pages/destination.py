"""One destination: what holds it and why, what limits it, who serves it, and what may be done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import assert_never

import msgspec

from redrive.errors import UsageError
from redrive.model.duration import spell_duration
from redrive.model.gate import Closed, GateFigures, HalfOpen, Open
from redrive.model.limits import Limits, spell_rate
from redrive.operations import AutomaticReplay
from redrive.operations.explain.diagnosis import is_alive
from redrive.store import Group, LaneFigures, Query
from redrive.web.pages.charts import Charts, read_charts
from redrive.web.pages.destinations import DestinationRow, destination_path, gate_named, row_of
from redrive.web.pages.page import Moved, Page, Visit
from redrive.web.pages.rendering import ago, counted

__all__ = [
    "DestinationView",
    "delete_pending",
    "end_override",
    "fail_pending",
    "override",
    "remove",
    "restore",
    "show_destination",
]

_MOST_LANES = 1_000
_LANES_SHOWN = 10
_CAUSES = 5
_MOST_READ = 5_000
"""How many of its dead letters are looked at for what they failed of."""
_LIMITS = ("rate", "retry_rate", "replay_rate")


class DestinationView(msgspec.Struct, frozen=True, kw_only=True):
    """A destination: one sentence and one level, and everything that is known of it.

    `limits` are those kept to now, and `declared` those that an override stands above; `lanes` are
    its stopped ones with something waiting, `more_lanes` how many of them are not shown, and
    `quiet_lanes` how many have nothing waiting yet.
    """

    row: DestinationRow
    level: str
    sentence: str
    breaker: str
    charts: Charts
    gate: GateFigures | None = None
    limits: tuple[tuple[str, str], ...] = ()
    declared: tuple[tuple[str, str], ...] = ()
    lanes: tuple[LaneFigures, ...] = ()
    more_lanes: int = 0
    quiet_lanes: int = 0
    most_read: int = _MOST_READ
    workers: tuple[str, ...] = ()
    causes: tuple[Group, ...] = ()
    automatic: AutomaticReplay | None = None


async def show_destination(visit: Visit) -> Page:
    """Show everything that is known of a destination."""
    figures, one, gate = await gate_named(visit)
    operations, row = visit.operations, row_of(one, gate)
    heads = await operations.lanes(destination=one.name, limit=_MOST_LANES)
    lanes = sorted((lane for lane in heads if lane.waiting), key=lambda lane: -lane.waiting)
    automatic = {found.destination: found for found in await operations.auto_replays()}
    level, sentence = _condition(row)
    model = DestinationView(
        row=row,
        level=level,
        sentence=sentence,
        breaker=_breaker(gate, visit.now),
        charts=await read_charts(visit, one.name),
        gate=gate,
        limits=() if gate is None else tuple(_limits(gate.limits)),
        declared=() if gate is None or gate.declared is None else tuple(_limits(gate.declared)),
        lanes=tuple(lanes[:_LANES_SHOWN]),
        more_lanes=max(0, len(lanes) - _LANES_SHOWN),
        quiet_lanes=len(heads) - len(lanes),
        workers=tuple(
            worker.id
            for worker in figures.workers
            if is_alive(worker, figures)
            and (worker.serving is None or one.name in worker.serving.destinations)
        ),
        causes=tuple(
            await operations.groups(
                Query(destination=one.name), limit=_CAUSES, most_read=_MOST_READ
            )
        )
        if one.failed
        else (),
        automatic=automatic.get(one.name),
    )
    return Page(template="destination.html", title=one.name, model=model, is_live=True)


async def override(visit: Visit) -> Moved:
    """Set limits for a while, above whatever is declared."""
    form = visit.form
    concurrency = form.get("concurrency", "").strip()
    if concurrency and not (concurrency.isascii() and concurrency.isdigit()):
        raise UsageError(f"At once is {concurrency[:50]!r}; write a whole number, such as 5.")
    done = await visit.operations.override(
        visit.name,
        lasts=form.get("lasts", "").strip() or "1h",
        by=visit.by,
        why=visit.why,
        concurrency=int(concurrency) if concurrency else None,
        **{name: form.get(name, "").strip() or None for name in _LIMITS},
    )
    return _back(visit, f"{visit.name} keeps to {done.said} until {done.until:%H:%M} UTC.")


async def end_override(visit: Visit) -> Moved:
    """Go back to the declared limits."""
    await visit.operations.end_override(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} keeps to its declared limits again.")


async def fail_pending(visit: Visit) -> Moved:
    """Make dead letters of all that waits for it."""
    count = await visit.operations.fail_pending(visit.name, by=visit.by, why=visit.why)
    said = counted(count, "delivery is a dead letter", "deliveries are dead letters")
    return _back(visit, f"{said} now.")


async def delete_pending(visit: Visit) -> Moved:
    """Remove all that waits for it for good."""
    count = await visit.operations.delete_pending(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"{counted(count, 'delivery was', 'deliveries were')} deleted.")


async def remove(visit: Visit) -> Moved:
    """Route nothing to it any more."""
    await visit.operations.remove_destination(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"Nothing is routed to {visit.name} any more.")


async def restore(visit: Visit) -> Moved:
    """Take a removal back."""
    await visit.operations.restore_destination(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} gets what is published from now on.")


def _back(visit: Visit, said: str) -> Moved:
    return Moved(destination_path(visit.name), said)


def _condition(row: DestinationRow) -> tuple[str, str]:
    if row.figures.is_removed:
        return "warning", "It was removed: nothing is routed to it."
    if row.pause is not None:
        why = f": {row.pause.why}" if row.pause.why else "."
        return "warning", f"Paused by {row.pause.by}{why}"
    if row.breaker != "closed":
        return "error", f"Its breaker is {row.breaker}: it counts as down."
    if row.figures.failed:
        waits = counted(row.figures.failed, "dead letter waits", "dead letters wait")
        return "error", f"It goes on; {waits} for you."
    if row.holds:
        return "warning", f"Held back by its {' and '.join(row.holds)}."
    return "ok", "It goes on, and nothing holds it."


def _breaker(gate: GateFigures | None, now: datetime) -> str:
    if gate is None or (gate.limits.breaker is None and isinstance(gate.gate.breaker, Closed)):
        return "none"
    match gate.gate.breaker:
        case Open(since=since, until=until, times=times):
            tried = (
                "until somebody closes it"
                if until is None
                else f"the next try is {ago(until, now)}"
            )
            opened = f", for the {times}. time in a row" if times > 1 else ""
            return f"open since {ago(since, now)}{opened}, {tried}"
        case HalfOpen(since=since, successes=successes):
            so_far = counted(successes, "success", "successes")
            return f"half-open since {ago(since, now)}: probes go out, {so_far} so far"
        case Closed(in_a_row=in_a_row):
            failing = f", after {counted(in_a_row, 'failure')} in a row" if in_a_row else ""
            return f"closed{failing}"
        case never:
            assert_never(never)


def _limits(limits: Limits) -> Iterator[tuple[str, str]]:
    for name, rate in (
        ("First tries", limits.rate),
        ("Retries", limits.retry_rate),
        ("Replays", limits.replay_rate),
    ):
        if rate is not None:
            yield name, spell_rate(rate)
    if limits.retry_budget is not None:
        yield "Retry budget", f"{limits.retry_budget:.0%} of recent first tries"
    if limits.concurrency is not None:
        yield "At once", f"{limits.concurrency:,}"
    if limits.shared_rate is not None:
        yield "Shared", f"{spell_rate(limits.shared_rate.rate)} of {limits.shared_rate.name}"
    if (breaker := limits.breaker) is not None:
        opens = f"opens after {counted(breaker.failures, 'failure')} in a row"
        yield "Breaker", f"{opens}, for {spell_duration(breaker.open_for)} or longer"
    if limits.disable_after is not None:
        yield "Paused", f"after {spell_duration(limits.disable_after)} of failures"
