"""Reading answers: values of the operations from their JSON, and errors from problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from redrive.archive import read_line
from redrive.client.connection import Reply
from redrive.errors import (
    DeniedError,
    EditConflictError,
    IdempotencyConflictError,
    NotFoundError,
    RedriveError,
    ServerError,
    StoreUnavailableError,
    UsageError,
    VersionConflictError,
)
from redrive.model.delivery import Delivery
from redrive.operations import EventStory, Story
from redrive.store import LetterPage, Page
from redrive.web.problem import Problem

__all__ = ["error_of", "read"]

T = TypeVar("T")
_NULL = msgspec.Raw(b"null")
_OURS_TO_CHANGE = range(400, 500)
_TOO_MANY = 429
_REDIRECTIONS = range(300, 400)


def read(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Read an answer as what it has to be."""
    special = _SPECIAL.get(kind)
    try:
        return msgspec.json.decode(body, type=kind) if special is None else special(body)
    except (ValueError, KeyError, RecursionError, UsageError) as error:
        raise ServerError(
            f"The server's answer cannot be read: {error}. It may be of another version than this "
            "client; update the older of the two."
        ) from error


def _page(body: bytes) -> Page:
    fields, found = _without(body, "deliveries")
    page = _decoded(fields, Page)
    return msgspec.structs.replace(page, deliveries=tuple(map(_delivery, found)))


def _story(body: bytes | msgspec.Raw) -> Story:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    delivery = _delivery(fields["delivery"])
    told = _decoded(fields | {"delivery": _encoded(delivery, payload=None)}, Story)
    return msgspec.structs.replace(told, delivery=delivery)


def _event_story(body: bytes) -> EventStory:
    fields, stories = _without(body, "stories")
    told = _decoded(fields, EventStory)
    return msgspec.structs.replace(told, stories=tuple(map(_story, stories)))


def _letters(body: bytes) -> LetterPage:
    fields, letters = _without(body, "letters")
    page = _decoded(fields, LetterPage)
    return msgspec.structs.replace(page, letters=tuple(read_line(bytes(one)) for one in letters))


def _delivery(raw: msgspec.Raw) -> Delivery:
    """Read a delivery that may carry a payload of its own: any JSON, `null` included."""
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    payload = fields.pop("payload", _NULL).copy()
    delivery = _decoded(fields, Delivery)
    is_own = bytes(payload) != bytes(_NULL) or delivery.edits
    return msgspec.structs.replace(delivery, payload=payload) if is_own else delivery


def _encoded(delivery: Delivery, *, payload: None) -> msgspec.Raw:
    bare = msgspec.structs.replace(delivery, payload=payload)
    return msgspec.Raw(msgspec.json.encode(bare))


def _without(body: bytes, name: str) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]]:
    """Take a list out of an object, to be read one by one."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    found = msgspec.json.decode(fields[name], type=list[msgspec.Raw])
    return fields | {name: msgspec.Raw(b"[]")}, found


def _decoded(fields: Mapping[str, msgspec.Raw], kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


_SPECIAL: dict[object, Callable[[Any], Any]] = {
    Page: _page,
    Story: _story,
    EventStory: _event_story,
    LetterPage: _letters,
}
"""What msgspec cannot read alone: it knows no field that is any JSON, or not there."""

_ERRORS: dict[str, type[RedriveError]] = {
    "not-found": NotFoundError,
    "forbidden": DeniedError,
    "idempotency-conflict": IdempotencyConflictError,
    "edit-conflict": EditConflictError,
    "store-unavailable": StoreUnavailableError,
}


def error_of(reply: Reply, *, server: str) -> RedriveError:
    """Return the error that an answer tells of, in the words of the server."""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except (ValueError, RecursionError):
        return _foreign(reply, server)
    conflict = problem.conflict
    if conflict is not None:
        return VersionConflictError(
            conflict.key, expected=conflict.expected, actual=conflict.actual
        )
    if problem.type == "unauthorized":
        return DeniedError(f"{problem.detail} Set REDRIVE_TOKEN to it, or give it to the client.")
    known = _ERRORS.get(problem.type)
    if known is not None:
        return known(problem.detail)
    if problem.status in _OURS_TO_CHANGE and problem.status != _TOO_MANY:
        return UsageError(problem.detail)
    return ServerError(problem.detail, status=problem.status)


def _foreign(reply: Reply, server: str) -> ServerError:
    if reply.status in _REDIRECTIONS:
        return ServerError(
            f"{server} sends its callers to another address, and a token goes to no address but "
            "the one that was named; name that one.",
            status=reply.status,
        )
    return ServerError(
        f"{server} has answered {reply.status}, and not as a server of Redrive does; look whether "
        "the address is right, with the path below which it is.",
        status=reply.status,
    )
