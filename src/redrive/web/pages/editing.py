"""Editing: a payload as JSON in a form, checked here, with what would change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from redrive.errors import EditConflictError, UsageError
from redrive.model.edit import Change
from redrive.model.outcome import Fault
from redrive.operations import Story
from redrive.web.pages.page import Moved, Page, Visit
from redrive.web.pages.rendering import counted

__all__ = ["Editor", "check", "edit", "open_editor", "read_json", "readable"]


class Editor(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that a person edits.

    `fault` is why it failed, `text` is what stands in the form, and `mark` which state of the
    delivery it was made of. Once it was checked there are `changes`, or an `error` that says why it
    cannot be taken, and `line`.
    """

    id: int
    title: str
    text: str
    mark: str
    fault: Fault | None = None
    why: str = ""
    changes: tuple[Change, ...] | None = None
    error: str = ""
    line: str = ""


async def open_editor(visit: Visit) -> Page:
    """Show what a dead letter carries, to be edited, and write down who has seen it."""
    story = await visit.operations.reveal(visit.id, by=visit.by, why="to edit it")
    if not story.delivery.is_dead_letter:
        raise UsageError(
            f"Delivery {visit.id} is no dead letter any more; only what has failed is edited."
        )
    return _page(
        Editor(
            id=visit.id,
            title=_title(story),
            text=readable(story.carried),
            mark=story.mark,
            fault=story.delivery.fault,
        )
    )


async def check(visit: Visit) -> Page:
    """Say whether what was typed is JSON, and what it would change; changes nothing."""
    editor = await _typed(visit)
    try:
        changes = await visit.operations.preview_edit(visit.id, read_json(editor.text))
    except UsageError as error:
        return _refused(editor, error)
    return _page(msgspec.structs.replace(editor, changes=changes))


async def edit(visit: Visit) -> Page | Moved:
    """Give a dead letter another payload and, unless told otherwise, send it again."""
    editor = await _typed(visit)
    is_replayed = visit.form.get("then") != "keep"
    try:
        payload = read_json(editor.text)
        changes = _some(await visit.operations.preview_edit(visit.id, payload))
        await visit.operations.edit(
            visit.id,
            payload,
            by=visit.by,
            why=visit.why,
            replay=is_replayed,
            mark=editor.mark or None,
        )
    except (UsageError, EditConflictError) as error:
        return _refused(editor, error)
    places = counted(len(changes), "place was", "places were")
    done = "and it was sent again" if is_replayed else "and it stays a dead letter"
    return Moved(f"/deliveries/{visit.id}", f"{places} changed, {done}.")


def read_json(text: str) -> msgspec.Raw:
    """Return what a person has typed as JSON, with numbers as they were written.

    >>> bytes(read_json('{"total": 1.50}'))
    b'{"total":1.50}'
    """
    try:
        json.loads(text, object_pairs_hook=_once)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except json.JSONDecodeError as error:
        raise UsageError(
            f"This is no JSON: {error.msg}, in line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise UsageError("There are lists or objects too deep within each other.") from None
    except ValueError as error:
        raise UsageError(f"This is no JSON: {error}.") from None


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(one for one in names if names.count(one) > 1)
        raise ValueError(f"the name {twice[:100]!r} stands twice in one object")
    return found


def _some(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    if not changes:
        raise UsageError("Nothing was changed; correct the payload, or replay it as it is.")
    return changes


async def _typed(visit: Visit) -> Editor:
    form, story = visit.form, await visit.operations.show(visit.id)
    return Editor(
        id=visit.id,
        title=_title(story),
        text=_shown(form.get("payload", "")),
        mark=form.get("mark", ""),
        fault=story.delivery.fault,
        why=visit.why,
    )


def _refused(editor: Editor, error: Exception) -> Page:
    return _page(
        msgspec.structs.replace(editor, error=str(error), line=_line(editor.text, error)),
        HTTPStatus.BAD_REQUEST,
    )


def _line(text: str, error: Exception) -> str:
    """Return the line that JSON went wrong in, to be shown beside the sentence."""
    place = str(error).partition(", in line ")[2].partition(",")[0]
    lines = text.splitlines()
    return lines[int(place) - 1] if place.isdigit() and 0 < int(place) <= len(lines) else ""


def _page(editor: Editor, status: HTTPStatus = HTTPStatus.OK) -> Page:
    title = f"Edit delivery {editor.id}"
    return Page(template="editor.html", title=title, model=editor, status=status)


def _title(story: Story) -> str:
    return f"{story.delivery.event_type} to {story.delivery.destination}"


def readable(payload: msgspec.Raw) -> str:
    """Return JSON as people read and edit it."""
    try:
        return _shown(msgspec.json.format(bytes(payload), indent=2).decode())
    except (ValueError, RecursionError):
        return bytes(payload).decode(errors="replace")


def _shown(text: str) -> str:
    r"""Return JSON that says the same in characters that can be seen, line breaks apart.

    A form sends lines that end as they did on typewriters.

    >>> _shown('{"a":\r\n\t"\u202e"}')
    '{"a":\n    "\\u202e"}'
    """
    plain = text.replace("\r\n", "\n").replace("\t", "    ")
    if plain.replace("\n", "").isprintable():
        return plain
    return "".join(
        one if one == "\n" or one.isprintable() else json.dumps(one)[1:-1] for one in plain
    )
