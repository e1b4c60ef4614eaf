"""Services, rules and other documents as people see them."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redrive.cli.show.listing import Listing
from redrive.cli.show.story import request, response, section
from redrive.cli.show.words import counted, safe
from redrive.policies.difference import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from redrive.model.request_log import LoggedRequest
    from redrive.model.rule import DocumentKind, Stored
    from redrive.operations import GatewayPlan, Previewed, RulePreview, ServiceTest
    from redrive.store import KeptVersion

    Columns = Mapping[str, Callable[[Stored], object]]

__all__ = [
    "document",
    "plan_of",
    "previews",
    "requests",
    "rules",
    "services",
    "sources",
    "tested",
    "undecided",
    "versions",
]

_SIGNS = {"add": "+", "change": "~", "delete": "-"}


def plan_of(plan: GatewayPlan, *, done: bool) -> Sequence[str]:
    """Return what is to change, or what has changed, a line each."""
    if not plan.steps:
        return ["Nothing was changed: the store says the same." if done else "Nothing to change."]
    lines = []
    for step in plan.steps:
        said = f": {safe(step.difference)}" if step.difference else ""
        lines.append(f"{_SIGNS[step.action]} {step.kind} {safe(step.name)}{said}")
    count = len(plan.steps)
    things = "1 change" if count == 1 else f"{count} changes"
    lines.append(f"{things} carried out." if done else f"{things} to carry out: redrive apply")
    return lines


def services(found: Sequence[Stored]) -> Sequence[RenderableType]:
    """Return a table of services."""
    columns: Columns = {
        "Kind": lambda one: one.document.get("kind", "http"),
        "Where": lambda one: _where(one.document),
        "Tenant": lambda one: one.document.get("tenant", ""),
    }
    return _documents("service", found, columns)


def requests(found: Sequence[LoggedRequest]) -> Sequence[RenderableType]:
    """Return a table of requests, the latest first."""
    if not found:
        return ["No request is in the log; workers write them down every ten seconds."]
    table = Listing()
    table.add_words("At", "Type", "Result", "Status")
    table.add_figures("Took", "Attempt", "Delivery")
    table.add_words("Error")
    for one in found:
        table.add_row(
            f"{one.at:%Y-%m-%d %H:%M:%S}",
            safe(one.event_type),
            one.result,
            safe(one.status),
            f"{one.latency.total_seconds() * 1000:.0f} ms",
            str(one.attempt),
            str(one.delivery),
            safe(one.error),
        )
    return [table]


def tested(one: ServiceTest) -> Sequence[RenderableType]:
    """Return what was sent to a service, what it answered, and what that means."""
    shown: list[RenderableType] = []
    if one.exchange is not None:
        shown += section("Request", request(one.exchange))
        if one.exchange.status is not None:
            shown += section("Response", response(one.exchange))
    took = f"{one.latency.total_seconds() * 1000:.0f} ms"
    if one.is_success:
        shown.append(f"{safe(one.service)} took it: {one.status} in {took}. No delivery is left.")
    elif one.fault is not None:
        shown.append(f"{safe(one.service)} did not take it: {safe(one.fault.message)}")
    return shown


def rules(found: Sequence[Stored]) -> Sequence[RenderableType]:
    """Return a table of rules."""
    columns: Columns = {
        "Events": lambda one: _events(one.document),
        "Service": lambda one: one.service,
        "Condition": lambda one: one.document.get("condition", ""),
    }
    return _documents("rule", found, columns)


def sources(found: Sequence[Stored]) -> Sequence[RenderableType]:
    """Return a table of sources."""
    columns: Columns = {
        "Kind": lambda one: one.document.get("kind", ""),
        "Way in": lambda one: f"/in/{one.name}",
    }
    return _documents("source", found, columns)


def document(found: Stored) -> Sequence[str]:
    """Return a document as a file has it, under its version."""
    from redrive.app.gateway.file import write_gateway
    from redrive.operations import GatewayDocument

    kept = {found.name: found.document}
    written = write_gateway(GatewayDocument(**{f"{found.kind}s": kept}))
    return [f"# version {found.version}", *(safe(line) for line in written.splitlines())]


def versions(found: Sequence[KeptVersion]) -> Sequence[RenderableType]:
    """Return a table of versions, the latest first, each with what it changed."""
    table = Listing()
    table.add_figures("Version")
    table.add_words("When", "By", "Changed", "Why")
    for one, before in zip_longest(found, found[1:]):
        table.add_row(
            str(one.kept.version),
            f"{one.at:%Y-%m-%d %H:%M:%S}",
            safe(one.by),
            "" if before is None else safe(spelled(before.kept.document, one.kept.document)),
            safe(one.why),
        )
    return [table]


def undecided(rule: Stored, found: RulePreview) -> str:
    """Return of how many events the condition of a rule fails, and what becomes of them."""
    held = rule.document.get("on_error", "hold") == "hold"
    events = counted(found.looked_at, "event of its types", "events of its types")
    return (
        f"# of the last {events} its condition fails for {found.undecided}, which are "
        f"{'dead letters' if held else 'passed by'}: {safe(found.why)}"
    )


def previews(found: RulePreview, rule: str) -> Sequence[str]:
    """Return what a rule makes of events: a request each, or why there is none."""
    if not found.previews:
        said = (
            f"No past event fits the rule {safe(rule)}; try it with one that nobody has published:"
        )
        return [f"{said} --type order.paid --sample '{{…}}'"]
    return [line for one in found.previews for line in ("", *_previewed(one))][1:]


def _previewed(one: Previewed) -> Sequence[str]:
    head = f"# {safe(one.event_type)} {safe(one.event_id)}: {one.verdict}"
    if one.why:
        return [head, safe(one.why)]
    request = f"{one.method} {one.path or '/'} at {one.url}" if one.method else ""
    return [
        head,
        *([safe(request)] if request else []),
        *(safe(f"{name}: {value}") for name, value in one.headers.items()),
        *(safe(line) for line in one.body.splitlines()),
    ]


def _documents(
    kind: DocumentKind, found: Sequence[Stored], columns: Columns
) -> Sequence[RenderableType]:
    """Return a table of documents: what is told of each kind between name, version and state."""
    if not found:
        return [f"No {kind} is in the store; add one with redrive {kind} add, or redrive apply."]
    table = Listing()
    table.add_words("Name", *columns)
    table.add_figures("Version")
    table.add_words("State")
    for one in found:
        table.add_row(
            safe(one.name),
            *(safe(str(told(one))) for told in columns.values()),
            str(one.version),
            "enabled" if one.is_enabled else "disabled",
        )
    return [table]


def _events(said: Mapping[str, object]) -> str:
    """Return the types of events that a rule is about."""
    events = said.get("event", "")
    return ", ".join(events) if isinstance(events, list) else str(events)


def _where(said: Mapping[str, object]) -> str:
    """Return where a service is; of an address no more than its host."""
    url = said.get("url")
    if isinstance(url, str):
        return urlsplit(url).netloc or url
    return str(said.get("path", ""))
