"""Acting on deliveries: replay, edit, resolve and the rest; each call tells what it changed."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.operations import Story
from redrive.web.answers import Changed, Changes, readable
from redrive.web.requests import (
    ActOnIds,
    ActOnIdsWithReason,
    EditPayload,
    PreviewEdit,
    Prioritise,
    ReopenIds,
    ReplayIds,
    Reschedule,
    read_instant,
)
from redrive.web.route import Call

__all__ = [
    "cancel",
    "delete",
    "edit",
    "preview_edit",
    "prioritise",
    "render_again",
    "reopen",
    "replay",
    "reschedule",
    "resolve",
]

_NOT_THERE = "not there"


async def replay(call: Call, given: ReplayIds) -> Changed:
    """Send dead letters again, in place: same event id, history kept, attempts from zero."""
    changed = await call.operations.replay(
        given.ids, by=call.by, why=given.why, generation=given.generation
    )
    return await _told(call, given.ids, changed)


async def render_again(call: Call, given: ActOnIds) -> Changed:
    """Have dead letters rendered by their rules as they are now, when they are sent again."""
    changed = await call.operations.render_again(given.ids, by=call.by, why=given.why)
    return await _told(call, given.ids, changed)


async def delete(call: Call, given: ActOnIdsWithReason) -> Changed:
    """Remove dead letters for good; the reason is kept in the audit log."""
    changed = await call.operations.delete(given.ids, by=call.by, why=given.why)
    return await _told(call, given.ids, changed)


async def resolve(call: Call, given: ActOnIdsWithReason) -> Changed:
    """Mark dead letters as handled elsewhere; they stay, out of the way, with the reason."""
    changed = await call.operations.resolve(given.ids, by=call.by, why=given.why)
    return await _told(call, given.ids, changed)


async def reopen(call: Call, given: ReopenIds) -> Changed:
    """Make dead letters of resolved ones again, to be replayed, edited or deleted."""
    changed = await call.operations.reopen(
        given.ids, by=call.by, why=given.why, out_of_order=given.out_of_order
    )
    return await _told(call, given.ids, changed)


async def cancel(call: Call, given: ActOnIds) -> Changed:
    """Fail pending deliveries as cancelled."""
    changed = await call.operations.cancel(given.ids, by=call.by, why=given.why)
    return await _told(call, given.ids, changed)


async def reschedule(call: Call, given: Reschedule) -> Changed:
    """Move the due time of pending deliveries."""
    due = read_instant("due", given.due, call.now)
    changed = await call.operations.reschedule(given.ids, due=due, by=call.by, why=given.why)
    return await _told(call, given.ids, changed)


async def prioritise(call: Call, given: Prioritise) -> Changed:
    """Change the priority of pending deliveries; the higher one goes first."""
    changed = await call.operations.prioritise(
        given.ids, priority=given.priority, by=call.by, why=given.why
    )
    return await _told(call, given.ids, changed)


async def edit(call: Call, given: EditPayload) -> Story:
    """Give a dead letter another payload and, unless told otherwise, send it again.

    With `If-Match` and the `ETag` of its story, an edit of what somebody else has changed
    meanwhile is refused.
    """
    story = await call.operations.edit(
        call.id,
        given.payload,
        by=call.by,
        why=given.why,
        replay=given.replay,
        mark=None if call.if_match is None else call.if_match.strip('"'),
    )
    call.headers["etag"] = f'"{story.mark}"'
    return readable(story)


async def preview_edit(call: Call, given: PreviewEdit) -> Changes:
    """Return what an edit would change, without changing anything."""
    return Changes(await call.operations.preview_edit(call.id, given.payload))


async def _told(call: Call, asked: Sequence[int], changed: Sequence[int]) -> Changed:
    """Say which deliveries changed, and of each other one how it stands."""
    known = set(changed)
    left = [one for one in dict.fromkeys(asked) if one not in known]
    conditions = await call.operations.conditions(left)
    by_number = {int(one): str(condition) for one, condition in conditions.items()}
    reasons: dict[str, list[int]] = {}
    for one in left:
        reasons.setdefault(by_number.get(one, _NOT_THERE), []).append(one)
    return Changed(changed=list(changed), left_alone=reasons)  # type: ignore[arg-type]
