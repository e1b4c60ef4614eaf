"""The overview: is everything all right, and if not, what comes first?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from redrive.model.gate import GateFigures
from redrive.operations.explain.diagnosis import diagnose
from redrive.store import Figures, Finding, Group, Level, Topic
from redrive.web.pages.charts import Charts, read_charts
from redrive.web.pages.dead_letters import group_path
from redrive.web.pages.destinations import (
    DestinationRow,
    destination_path,
    known_of,
    reset_step,
    resume_step,
)
from redrive.web.pages.page import Page, Step, Visit
from redrive.web.pages.rendering import counted

__all__ = ["Need", "Overview", "needs_of", "sentence_of", "show_overview"]

_MOST_GROUPS = 5
_MOST_DESTINATIONS = 20
_BY_COMMAND = "with: redrive "
"""An advice for a terminal; where a step leads to the page that does the same, that is enough."""
_URGENCY = (Level.ERROR, Level.WARNING, Level.OK)


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person: what it is, what is known of it, and the next step.

    `place` is where more of it is shown, if the step acts and does not lead there.
    """

    level: Level
    what: str
    place: str = ""
    detail: str = ""
    step: Step | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The whole system: one sentence and one level, what needs a person, and each destination.

    `more` counts the destinations that are not shown.
    """

    level: Level
    sentence: str
    detail: str
    needs: tuple[Need, ...]
    rows: tuple[DestinationRow, ...]
    charts: Charts
    more: int = 0


async def show_overview(visit: Visit) -> Page:
    """Show whether everything is all right."""
    operations = visit.operations
    figures, gates = await operations.status(), await operations.gates()
    findings = diagnose(
        figures,
        gates,
        paused=await operations.tenants(only_paused=True),
        schedules=await operations.schedules(),
        projections=await operations.projections(),
    )
    groups = await operations.groups(limit=_MOST_GROUPS + 1) if figures.letters.count else ()
    needs, known = needs_of(findings, groups, gates), known_of(figures, gates)
    level = needs[0].level if needs else Level.OK
    model = Overview(
        level=level,
        sentence=sentence_of(level, figures, needs),
        detail=_detail(figures),
        needs=needs,
        rows=tuple(one.row for one in known[:_MOST_DESTINATIONS]),
        charts=await read_charts(visit),
        more=max(0, len(known) - _MOST_DESTINATIONS),
    )
    return Page(template="overview.html", title="Overview", model=model, is_live=True)


def needs_of(
    findings: Sequence[Finding], groups: Sequence[Group], gates: Sequence[GateFigures] = ()
) -> tuple[Need, ...]:
    """Return what needs a person, the most urgent first; dead letters by their causes."""
    errors = {
        one.destination: one.gate.last_failure.error for one in gates if one.gate.last_failure
    }
    needs = [
        *(
            _need(one, errors)
            for one in findings
            if one.level is not Level.OK and not _is_letters(one)
        ),
        *_causes(groups),
    ]
    return tuple(sorted(needs, key=lambda one: _URGENCY.index(one.level)))


def sentence_of(level: Level, figures: Figures, needs: Sequence[Need]) -> str:
    """Say in one sentence how the system is."""
    failed = figures.letters.count
    match level:
        case Level.OK:
            return "All is well."
        case Level.ERROR if failed:
            waits = counted(failed, "dead letter waits", "dead letters wait")
            return f"{waits} for you."
        case Level.ERROR:
            return needs[0].what
        case Level.WARNING:
            return f"Work goes on; {counted(len(needs), 'thing wants', 'things want')} a look."


def _detail(figures: Figures) -> str:
    pending = sum(one.pending + one.in_flight for one in figures.destinations)
    arrived = sum(one.delivered + one.pruned for one in figures.destinations)
    return (
        f"{counted(figures.events, 'event')} in the log, "
        f"{counted(arrived, 'delivery has', 'deliveries have')} arrived, "
        f"{pending:,} on their way."
    )


def _is_letters(finding: Finding) -> bool:
    return finding.topic is Topic.DEAD_LETTERS


def _causes(groups: Sequence[Group]) -> Iterator[Need]:
    for one in groups[:_MOST_GROUPS]:
        letters = counted(one.count, "dead letter")
        yield Need(
            level=Level.ERROR,
            what=one.title,
            detail=f"{letters} at {one.destination}",
            step=Step(label="Look into it", to=group_path(one.id)),
        )
    if len(groups) > _MOST_GROUPS:
        yield Need(
            level=Level.ERROR,
            what="There are more causes of dead letters.",
            step=Step(label="See all causes", to="/dead-letters"),
        )


def _need(finding: Finding, errors: Mapping[str, str]) -> Need:
    step = _step(finding)
    does_it = step is not None and bool(step.operation or finding.topic is Topic.TENANT)
    leads = step is not None and _BY_COMMAND in finding.advice
    detail, place = "" if does_it or leads else finding.advice, ""
    if finding.topic is Topic.BREAKER:
        place = destination_path(finding.name)
        error = errors.get(finding.name)
        detail = f"Its last failure: {error}" if error else ""
    return Need(level=finding.level, what=finding.what, place=place, detail=detail, step=step)


def _step(finding: Finding) -> Step | None:
    name = finding.name
    steps = {
        Topic.PAUSE: resume_step(name, then="overview"),
        Topic.BREAKER: reset_step(name, then="overview"),
        Topic.DESTINATION: Step(label="See it", to=destination_path(name)),
        Topic.WORKERS: Step(label="See workers", to="/workers"),
        Topic.TENANT: Step(label="See it", to=f"/tenants?{urlencode({'tenant': name})}"),
        Topic.SCHEDULE: Step(label="See schedules", to="/schedules"),
        Topic.PROJECTION: Step(label="See projections", to="/projections"),
    }
    return None if finding.topic is None else steps.get(finding.topic)
