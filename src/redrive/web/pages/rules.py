"""Rules of services: what there is, one of them with its versions, and trying it with events."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from redrive.errors import RedriveError
from redrive.model.rule import Stored
from redrive.operations import Previewed, SampleEvent
from redrive.web.pages.documents import VersionRow, back, read_document, text_of, version_rows
from redrive.web.pages.editing import read_json
from redrive.web.pages.numbered import Numbered, Sought
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "RuleView",
    "delete_rule",
    "disable_rule",
    "enable_rule",
    "preview_rule",
    "save_rule",
    "show_rule",
    "show_rules",
]

_PREVIEWS = 10


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and its versions; `text` is what stands in the form that tries it.

    `previews` are what it makes of events, once it was tried; `error` says why it cannot be. Of the
    events that were looked at, the condition fails for some, such as for `failing`.
    """

    rule: Stored
    text: str
    versions: tuple[VersionRow, ...]
    event: str = ""
    sample_type: str = ""
    sample: str = ""
    why: str = ""
    previews: tuple[Previewed, ...] | None = None
    error: str = ""
    looked_at: int = 0
    undecided: int = 0
    failing: str = ""


async def show_rules(visit: Visit) -> Page:
    """Show by which rules services get events."""
    sought = Sought.by(visit)
    found = [one for one in await visit.operations.rules() if sought.fits(one.name, one.service)]
    rows = tuple(sought.shown(found))
    model = Numbered(path="/rules", rows=rows, sought=sought, found=len(found))
    return Page(template="rules.html", title="Rules", model=model)


async def show_rule(visit: Visit) -> Page:
    """Show one rule, what it was before, and a form to try it with."""
    return _page(await _view(visit))


async def preview_rule(visit: Visit) -> Page:
    """Show what a rule would make of events as it stands in the form; changes nothing."""
    view = await _typed(visit)
    try:
        found = await visit.operations.preview_rule(
            visit.name,
            changes=_changes(view),
            event_id=view.event or None,
            sample=_sample(view),
            limit=_PREVIEWS,
        )
    except RedriveError as error:
        return _refused(view, error)
    return _page(
        msgspec.structs.replace(
            view,
            previews=found.previews,
            looked_at=found.looked_at,
            undecided=found.undecided,
            failing=found.why,
        )
    )


async def save_rule(visit: Visit) -> Page | Moved:
    """Put a rule in force as it stands in the form."""
    view = await _typed(visit)
    try:
        saved = await visit.operations.save_rule(
            visit.name,
            read_document("rule", view.text),
            by=visit.by,
            why=visit.why,
            is_new=False,
        )
    except RedriveError as error:
        return _refused(view, error)
    return back("rule", visit, f"Version {saved.version} is in force.")


async def enable_rule(visit: Visit) -> Moved:
    """Have a rule give events again."""
    await visit.operations.alter_rule(visit.name, {"enabled": True}, by=visit.by, why=visit.why)
    return back("rule", visit, f"{visit.name} gives events from now on.")


async def disable_rule(visit: Visit) -> Moved:
    """Have a rule give no events."""
    await visit.operations.alter_rule(visit.name, {"enabled": False}, by=visit.by, why=visit.why)
    return back("rule", visit, f"{visit.name} gives no events any more; what it has given goes on.")


async def delete_rule(visit: Visit) -> Moved:
    """Delete a rule."""
    await visit.operations.delete_rule(visit.name, by=visit.by, why=visit.why)
    return Moved("/rules", f"{visit.name} was deleted; what it has given goes on.")


async def _view(visit: Visit) -> RuleView:
    [rule] = await visit.operations.rules(name=visit.name)
    versions = await visit.operations.past_versions("rule", visit.name)
    return RuleView(rule=rule, text=text_of(rule.document), versions=version_rows(versions))


async def _typed(visit: Visit) -> RuleView:
    form = visit.form
    return msgspec.structs.replace(
        await _view(visit),
        text=form.get("rule", ""),
        event=form.get("event", "").strip(),
        sample_type=form.get("sample_type", "").strip(),
        sample=form.get("sample", ""),
        why=visit.why,
    )


def _changes(view: RuleView) -> dict[str, object]:
    """Return the whole of what was typed: what it leaves out goes."""
    return {**dict.fromkeys(view.rule.document), **read_document("rule", view.text)}


def _sample(view: RuleView) -> SampleEvent | None:
    if not view.sample_type:
        return None
    payload = msgspec.json.decode(read_json(view.sample or "{}"))
    return SampleEvent(type=view.sample_type, payload=payload)


def _refused(view: RuleView, error: RedriveError) -> Page:
    return _page(msgspec.structs.replace(view, error=str(error)), HTTPStatus.BAD_REQUEST)


def _page(view: RuleView, status: HTTPStatus = HTTPStatus.OK) -> Page:
    return Page(template="rule.html", title=view.rule.name, model=view, status=status)
