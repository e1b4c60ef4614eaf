"""One delivery with its whole story, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.replays import difference
from redrive.cli.show.words import ago, counted, instant, safe, safe_lines, title, verdict
from redrive.model.delivery import Attempt, Cycle, Delivery, Status
from redrive.model.duration import rough_duration
from redrive.model.edit import Edit
from redrive.model.event import Event, Severity
from redrive.model.outcome import CALL, Exchange
from redrive.operations import Story
from redrive.operations.explain.waiting import Waiting

__all__ = ["chapter", "event_facts", "payload", "request", "response", "section", "story"]

_LONGEST_PAYLOAD = 4_000
_MOST_PAYLOAD_LINES = 60


def story(told: Story, *, now: datetime) -> Iterator[RenderableType]:
    """Show what it is, what happened to it, what it carries, and what may be done."""
    delivery = told.delivery
    yield Text(f"Delivery {delivery.id}: {safe(title(delivery))}", style="bold")
    yield Text(_condition(delivery, now))
    for one in told.waiting:
        yield Text(_waits(one, now), style="yellow")
    yield ""
    yield _indented(_facts(told, now))
    if delivery.log:
        yield from section("Tries", _tries(delivery.log, now))
    if delivery.cycles:
        yield from section("Earlier cycles", _cycles(delivery.cycles, now))
    if delivery.fault is not None and delivery.fault.stack:
        yield from section("Stack", Text(safe_lines(delivery.fault.stack)))
    if delivery.exchange is not None and delivery.exchange.method == CALL:
        yield from section("Result", _result(delivery.exchange))
    elif delivery.exchange is not None:
        yield from section("Request", request(delivery.exchange))
        if delivery.exchange.status is not None:
            yield from section("Response", response(delivery.exchange))
    if delivery.edits:
        yield from section("Edits", _edits(delivery.edits, now))
    yield from section("Payload, as edited" if delivery.edits else "Payload", payload(told.carried))
    steps = list(_next_steps(told))
    if steps:
        yield from section("What to do", _steps(steps))


def chapter(told: Story, *, now: datetime) -> Iterator[RenderableType]:
    """Show in short what happened to one of an event's deliveries."""
    delivery = told.delivery
    parts: list[RenderableType] = [Text(_condition(delivery, now))]
    parts += [Text(_waits(one, now), style="yellow") for one in told.waiting]
    if delivery.fault is not None:
        parts.append(Text(verdict(delivery.fault), style="red"))
    if delivery.log:
        parts.append(_tries(delivery.log, now))
    if delivery.cycles:
        parts += [Text("Earlier cycles", style="dim"), _cycles(delivery.cycles, now)]
    parts.append(Text(f"redrive delivery show {delivery.id}", style="dim"))
    yield from section(f"Delivery {delivery.id} to {safe(delivery.destination)}", Group(*parts))


def _condition(delivery: Delivery, now: datetime) -> str:
    tries = counted(delivery.attempts, "try", "tries")
    match delivery.status:
        case Status.PENDING:
            return f"Pending after {tries}, due {ago(delivery.due, now)}."
        case Status.IN_FLIGHT:
            return f"In flight with worker {safe(str(delivery.worker))}, try {delivery.attempts}."
        case Status.DELIVERED:
            at = delivery.settled_at or delivery.due
            took = rough_duration(max(at - delivery.enqueued_at, timedelta(0)))
            return f"Delivered after {tries}, {ago(at, now)}, {took} after it was enqueued."
        case Status.FAILED if delivery.resolution is not None:
            return (
                f"Resolved by {safe(delivery.resolution.by)}, {ago(delivery.resolution.at, now)}: "
                f"{safe(delivery.resolution.why)}"
            )
        case Status.FAILED:
            when = ago(delivery.settled_at or delivery.enqueued_at, now)
            return f"Failed after {tries}, {when}: {delivery.reason}."
        case never:
            assert_never(never)


def _waits(waiting: Waiting, now: datetime) -> str:
    until = "" if waiting.until is None else f" Until {instant(waiting.until, now)}."
    return f"Waits ({waiting.reason.replace('_', ' ')}): {safe(waiting.what)}{until}"


def _result(exchange: Exchange) -> RenderableType:
    if exchange.reason:
        return Text(f"It was not kept. {safe(exchange.reason)}")
    return payload(msgspec.Raw(exchange.body.encode()))


def request(exchange: Exchange) -> Text:
    """Return what was sent."""
    head = f"{exchange.method} {safe(exchange.url)}"
    text = Text(
        "\n".join([head, *_headers(exchange.headers), f"({counted(exchange.size, 'byte')})"])
    )
    return _with_body(text, exchange.sent, is_cut=exchange.is_sent_cut)


def response(exchange: Exchange) -> Text:
    """Return what was answered."""
    head = f"{exchange.status} {safe(exchange.reason)}".strip()
    text = Text("\n".join([head, *_headers(exchange.answer_headers)]))
    return _with_body(text, exchange.body, is_cut=exchange.is_cut)


def _with_body(text: Text, body: str, *, is_cut: bool) -> Text:
    if body:
        text.append("\n\n")
        text.append_text(_shortened(body))
    if is_cut:
        text.append("\n… and more, which was not kept.", style="dim")
    return text


def _headers(headers: Mapping[str, str]) -> list[str]:
    return [f"{safe(name)}: {safe(value)}" for name, value in headers.items()]


def _facts(told: Story, now: datetime) -> Table:
    table = _grid()
    delivery, event = told.delivery, told.event
    if delivery.fault is not None:
        table.add_row("Error", Text(verdict(delivery.fault), style="red"))
        table.add_row("Decided by", safe(delivery.fault.rule))
    if told.group is not None:
        count = counted(told.group.count, "dead letter")
        table.add_row("Group", f"{safe(told.group.id)}, {count} in all")
    for name, value in (
        ("Event", event.id),
        *_attributes(event),
        ("Rule", delivery.rule),
        ("Generation", delivery.generation),
        ("Priority", str(delivery.priority) if delivery.priority else None),
        ("Snoozed", counted(delivery.snoozes, "time") if delivery.snoozes else None),
        ("Crashes", str(delivery.crashes) if delivery.crashes else None),
        ("Replay", None if delivery.replay is None else str(delivery.replay)),
        ("By itself", _times(delivery.auto_replays)),
    ):
        if value:
            table.add_row(name, safe(value))
    for name, then in (
        ("Occurred", event.occurred_at if event.occurred_at != event.published_at else None),
        ("Enqueued", delivery.enqueued_at),
        ("Due", delivery.due if delivery.status is Status.PENDING else None),
        ("Deadline", delivery.deadline),
        ("Lease ends", delivery.lease_until if delivery.status is Status.IN_FLIGHT else None),
        ("First failed", delivery.first_failed_at),
        ("Last failed", delivery.last_failed_at),
        ("Delivered", delivery.settled_at if delivery.status is Status.DELIVERED else None),
    ):
        if then is not None:
            table.add_row(name, instant(then, now))
    return table


def event_facts(event: Event[msgspec.Raw], *, version: int | None, now: datetime) -> Padding:
    """Show what is known of an event beside its payload."""
    table = _grid()
    for name, value in (
        *_attributes(event),
        ("Version", None if version is None else f"{version}, of its key"),
        ("Priority", str(event.priority) if event.priority else None),
    ):
        if value:
            table.add_row(name, safe(value))
    for name, then in (
        ("Occurred", event.occurred_at if event.occurred_at != event.published_at else None),
        ("Published", event.published_at),
        ("Due", event.due),
        ("Deadline", event.deadline),
    ):
        if then is not None:
            table.add_row(name, instant(then, now))
    return _indented(table)


def _attributes(event: Event[msgspec.Raw]) -> Iterator[tuple[str, str | None]]:
    yield "Tenant", event.tenant
    yield "Key", event.key
    yield "Source", event.source
    yield "Idempotency", event.idempotency_key
    yield "Severity", event.severity if event.severity is not Severity.INFO else None
    yield "Headers", ", ".join(f"{name}={value}" for name, value in event.headers.items())


def _times(auto_replays: int) -> str | None:
    return f"sent again {counted(auto_replays, 'time')}" if auto_replays else None


def _tries(log: Sequence[Attempt], now: datetime) -> Listing:
    table = Listing(header_style="dim")
    table.add_figures("#")
    table.add_figures("Started", is_text=True)
    table.add_figures("Took")
    table.add_words("Worker")
    table.add_words("Result", lines="folded")
    for one in log:
        table.add_row(
            str(one.number),
            ago(one.started_at, now),
            rough_duration(one.ended_at - one.started_at),
            safe(one.worker),
            f"{safe(one.result)}: {verdict(one.fault)}" if one.fault else safe(one.result),
        )
    return table


def _cycles(cycles: Sequence[Cycle], now: datetime) -> Table:
    table = _grid()
    for number, cycle in enumerate(cycles, start=1):
        tries = counted(cycle.attempts, "try", "tries")
        table.add_row(
            str(number),
            Text.assemble(
                f"{cycle.reason} after {tries}, {ago(cycle.failed_at, now)}: ",
                f"{verdict(cycle.fault)}\n",
                (_began(cycle, now), "dim"),
                (
                    f"replayed by {safe(cycle.replayed_by)}, {instant(cycle.replayed_at, now)}",
                    "dim",
                ),
            ),
        )
    return table


def _began(cycle: Cycle, now: datetime) -> str:
    if cycle.first_failed_at is None or cycle.first_failed_at == cycle.failed_at:
        return ""
    return f"first failed {instant(cycle.first_failed_at, now)}, "


def _edits(edits: Sequence[Edit], now: datetime) -> Group:
    parts: list[RenderableType] = []
    for one in edits:
        parts.append(Text(f"{safe(one.by)}, {instant(one.at, now)}: {safe(one.why)}"))
        parts += [Padding(line, (0, 0, 0, 2)) for line in difference(one.changes, one.more)]
    parts.append(Text("The event in the log stays as it was published.", style="dim"))
    return Group(*parts)


def payload(carried: msgspec.Raw) -> Text:
    """Show a payload, or its beginning if it is long."""
    document = bytes(carried)
    try:
        return _shortened(msgspec.json.format(document, indent=2).decode())
    except (ValueError, RecursionError):
        return _shortened(document.decode(errors="replace"))


def _shortened(whole: str) -> Text:
    lines = whole[:_LONGEST_PAYLOAD].split("\n")[:_MOST_PAYLOAD_LINES]
    shown = "\n".join(lines)
    text = Text(safe_lines(shown))
    if len(shown) < len(whole):
        text.append(f"\n… and {len(whole) - len(shown):,} more characters; --json shows all of it.")
    return text


def _next_steps(told: Story) -> Iterator[tuple[str, str]]:
    delivery, group = told.delivery, told.group
    number = delivery.id
    match delivery.status:
        case Status.FAILED if delivery.resolution is not None:
            yield "It is not done yet", f'redrive dlq reopen {number} --why "…"'
            yield "Throw it away", f'redrive dlq delete {number} --why "…"'
        case Status.FAILED:
            yield "Send it again", f"redrive dlq replay {number}"
            yield "Correct it first", f'redrive dlq edit {number} --why "…"'
            if group is not None and group.count > 1:
                yield "Send its group again", f"redrive replay start --group {group.id}"
            yield "It was handled elsewhere", f'redrive dlq resolve {number} --why "…"'
            yield "Throw it away", f'redrive dlq delete {number} --why "…"'
        case Status.PENDING if delivery.behind is not None:
            yield "See what goes first", f"redrive delivery show {delivery.behind}"
        case Status.PENDING:
            yield "Send it now", f"redrive delivery reschedule {number} --due 0s"
            yield "Give it up", f"redrive delivery cancel {number}"
        case Status.IN_FLIGHT | Status.DELIVERED:
            return
        case never:
            assert_never(never)


def _steps(steps: Sequence[tuple[str, str]]) -> Table:
    table = _grid()
    for what, command in steps:
        table.add_row(what, command)
    return table


def section(heading: str, content: RenderableType) -> Iterator[RenderableType]:
    """Show something under a heading."""
    yield ""
    yield Text(heading, style="bold")
    yield _indented(content)


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, 2), expand=False)


def _grid() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table
