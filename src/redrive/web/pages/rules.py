"""Rules of services: what there is, one of them with its versions, and trying it with events."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from itertools import zip_longest
from urllib.parse import quote

import msgspec

from redrive.errors import RedriveError, UsageError
from redrive.model.rule import Stored
from redrive.operations import Previewed, SampleEvent
from redrive.policies.difference import spelled
from redrive.store import KeptVersion
from redrive.web.pages.editing import read_json, readable
from redrive.web.pages.numbered import Numbered, Sought
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "RuleView",
    "VersionRow",
    "delete_rule",
    "disable_rule",
    "enable_rule",
    "preview_rule",
    "save_rule",
    "show_rule",
    "show_rules",
    "version_rows",
]

_PREVIEWS = 10


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version, and what it changed of the one before."""

    version: KeptVersion
    changed: str


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

    @property
    def is_enabled(self) -> bool:
        """Whether it gives events."""
        return bool(self.rule.document.get("enabled", True))


def version_rows(versions: Sequence[KeptVersion]) -> tuple[VersionRow, ...]:
    """Return versions, the latest first, each with what it changed."""
    return tuple(
        VersionRow(
            version=one,
            changed=""
            if before is None
            else spelled(before.kept.document, one.kept.document) or "nothing",
        )
        for one, before in zip_longest(versions, versions[1:])
    )


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
            visit.name, _document(view), by=visit.by, why=visit.why, is_new=False
        )
    except RedriveError as error:
        return _refused(view, error)
    return _back(visit, f"Version {saved.version} is in force.")


async def enable_rule(visit: Visit) -> Moved:
    """Have a rule give events again."""
    await visit.operations.alter_rule(visit.name, {"enabled": True}, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} gives events from now on.")


async def disable_rule(visit: Visit) -> Moved:
    """Have a rule give no events."""
    await visit.operations.alter_rule(visit.name, {"enabled": False}, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} gives no events any more; what it has given goes on.")


async def delete_rule(visit: Visit) -> Moved:
    """Delete a rule."""
    await visit.operations.delete_rule(visit.name, by=visit.by, why=visit.why)
    return Moved("/rules", f"{visit.name} was deleted; what it has given goes on.")


async def _view(visit: Visit) -> RuleView:
    [rule] = await visit.operations.rules(name=visit.name)
    versions = await visit.operations.past_versions("rule", visit.name)
    text = readable(msgspec.Raw(msgspec.json.encode(rule.document)))
    return RuleView(rule=rule, text=text, versions=version_rows(versions))


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


def _document(view: RuleView) -> dict[str, object]:
    found = msgspec.json.decode(read_json(view.text))
    if not isinstance(found, dict):
        raise UsageError("A rule is a JSON object; begin it with {.")
    return found


def _changes(view: RuleView) -> dict[str, object]:
    """Return the whole of what was typed: what it leaves out goes."""
    return {**dict.fromkeys(view.rule.document), **_document(view)}


def _sample(view: RuleView) -> SampleEvent | None:
    if not view.sample_type:
        return None
    payload = msgspec.json.decode(read_json(view.sample or "{}"))
    return SampleEvent(type=view.sample_type, payload=payload)


def _refused(view: RuleView, error: RedriveError) -> Page:
    return _page(msgspec.structs.replace(view, error=str(error)), HTTPStatus.BAD_REQUEST)


def _page(view: RuleView, status: HTTPStatus = HTTPStatus.OK) -> Page:
    return Page(template="rule.html", title=view.rule.name, model=view, status=status)


def _back(visit: Visit, said: str) -> Moved:
    return Moved(f"/rules/{quote(visit.name, safe='')}", said)
