"""The timeline: everything that happened to a delivery, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.model.audit import AuditEntry
from redrive.model.delivery import Attempt, Cycle, Status
from redrive.model.duration import rough_duration
from redrive.model.edit import Change
from redrive.operations import Story
from redrive.web.pages.rendering import counted, reason_of

__all__ = ["Moment", "timeline"]

_TOLD_ELSEWHERE = ("resolve", "edit", "edit_and_replay")
"""The acts that the delivery itself remembers."""
_DONE = {
    "cancel": "Given up by",
    "import": "Imported by",
    "prioritise": "Priority changed by",
    "reopen": "Reopened by",
    "replay": "Replayed by",
    "reschedule": "Rescheduled by",
    "reveal": "Payload shown to",
}
"""What people do to deliveries, as their stories tell it."""
_SAME_ACT = timedelta(seconds=1)
_WORTH_TELLING = timedelta(milliseconds=100)
_RESULTS = {
    "retry": "failed, to be tried again",
    "probe": "a probe, which found it down",
    "down": "it is down, so no try is spent",
    "snoozed": "put off by the handler",
    "interrupted": "its worker left meanwhile",
}


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened: `level` is whether that was good, bad, or a person's doing.

    `note` is what is known beside it, such as who worked and how long, and `changes` what an edit
    has changed.
    """

    at: datetime
    level: str
    what: str
    detail: str = ""
    note: str = ""
    changes: tuple[Change, ...] = ()


def timeline(story: Story, acts: Sequence[AuditEntry] = ()) -> tuple[Moment, ...]:
    """Return all that happened to a delivery, the latest first; `acts` are those of people."""
    told = [cycle.replayed_at for cycle in story.delivery.cycles]
    others = [one for one in acts if one.action not in _TOLD_ELSEWHERE and not _is_told(one, told)]
    moments = [*_own(story, acts), *(_act(one) for one in others)]
    moments.sort(key=lambda one: one.at)
    return tuple(moments[::-1])


def _own(story: Story, acts: Sequence[AuditEntry]) -> Iterator[Moment]:
    event, delivery = story.event, story.delivery
    source = f"as {event.type}" + (f" by {event.source}" if event.source else "")
    yield Moment(at=event.published_at, level="", what="Published", detail=source)
    for edit in delivery.edits:
        yield Moment(
            at=edit.at,
            level="person",
            what=f"Edited by {edit.by}",
            detail=edit.why,
            note=f"and {edit.more} more places" if edit.more else "",
            changes=edit.changes,
        )
    for cycle in delivery.cycles:
        yield from _tries(cycle.log, until=None)
        yield Moment(
            at=_end(cycle.failed_at, cycle.log),
            level="error",
            what=f"Failed for good after {counted(cycle.attempts, 'try', 'tries')}",
            detail=f"{reason_of(cycle.reason)}: {cycle.fault.message}",
        )
        yield _replayed(cycle, acts)
    due = delivery.due if delivery.status is Status.PENDING else None
    yield from _tries(delivery.log, until=due)
    if delivery.resolution is not None:
        done = delivery.resolution
        yield Moment(at=done.at, level="person", what=f"Resolved by {done.by}", detail=done.why)
    if delivery.settled_at is not None and delivery.status is Status.DELIVERED:
        took = rough_duration(max(delivery.settled_at - delivery.enqueued_at, timedelta(0)))
        note = f"{took} after it was enqueued"
        yield Moment(
            at=_end(delivery.settled_at, delivery.log), level="ok", what="Delivered", note=note
        )
    if delivery.settled_at is not None and delivery.status is Status.FAILED:
        reason = "" if delivery.reason is None else reason_of(delivery.reason)
        tries = counted(delivery.attempts, "try", "tries")
        yield Moment(
            at=_end(delivery.settled_at, delivery.log),
            level="error",
            what=f"Failed for good after {tries}",
            detail=reason,
        )


def _end(at: datetime, log: Sequence[Attempt]) -> datetime:
    # The instant may be of before the last try had its own, and the end is told after it.
    return max(at, log[-1].ended_at) if log else at


def _tries(log: Sequence[Attempt], *, until: datetime | None) -> Iterator[Moment]:
    """Tell of each try and of the wait behind it, up to the next or until it is due."""
    nexts = [*(one.started_at for one in log[1:]), until]
    for one, then in zip(log, nexts, strict=bool(log)):
        fault = "" if one.fault is None else f"{one.fault.error_class}: {one.fault.message}"
        result = _RESULTS.get(one.result, one.result.replace("_", " "))
        took = max(one.ended_at - one.started_at, timedelta(0))
        waited = "" if then is None else _waited(then - one.ended_at, is_over=until != then)
        yield Moment(
            at=one.ended_at,
            level="warning" if one.fault is None else "error",
            what=f"Try {one.number}: {result}",
            detail=fault,
            note=f"worker {one.worker}, took {rough_duration(took)}{waited}",
        )


def _waited(span: timedelta, *, is_over: bool) -> str:
    if span < _WORTH_TELLING:
        return ""
    return f"; then it {'waited' if is_over else 'waits'} {rough_duration(span)}"


def _replayed(cycle: Cycle, acts: Sequence[AuditEntry]) -> Moment:
    why = next((one.why for one in acts if _is_told(one, [cycle.replayed_at])), "")
    return Moment(
        at=cycle.replayed_at, level="person", what=f"Replayed by {cycle.replayed_by}", detail=why
    )


def _is_told(entry: AuditEntry, instants: Sequence[datetime]) -> bool:
    """Tell whether an act is the replay of one of these instants."""
    is_replay = entry.action in ("replay", "edit_and_replay")
    return is_replay and any(abs(entry.at - one) < _SAME_ACT for one in instants)


def _act(entry: AuditEntry) -> Moment:
    done = _DONE.get(entry.action)
    what = f"{done} {entry.by}" if done else f"{entry.by}: {entry.action.replace('_', ' ')}"
    return Moment(at=entry.at, level="person", what=what, detail=entry.why, note=entry.detail)
