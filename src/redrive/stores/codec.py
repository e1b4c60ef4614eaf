"""How values look at rest: events as JSON documents, instants as whole microseconds."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from functools import lru_cache

import msgspec

from redrive.errors import UsageError
from redrive.model.delivery import Attempt, Cycle, DeliveryId, Resolution
from redrive.model.destination import Destination
from redrive.model.edit import Edit
from redrive.model.event import UNREADABLE, Event, EventId
from redrive.model.instant import from_micros, maybe_from_micros, maybe_micros, micros
from redrive.model.outcome import Addressees, Exchange, Fault

__all__ = [
    "LARGEST_NUMBER",
    "addressees_from",
    "attempts_from",
    "body_digest",
    "carried",
    "carrying",
    "cycles_from",
    "destination_from",
    "edits_from",
    "event_from",
    "exchange_from",
    "fault_from",
    "from_micros",
    "is_same_body",
    "json_text",
    "maybe_from_micros",
    "maybe_micros",
    "maybe_raw",
    "micros",
    "read_cursor",
    "read_place",
    "resolution_from",
    "unreadable_event",
    "why_unreadable",
    "write_cursor",
]

LARGEST_NUMBER = 2**63 - 1
_LONGEST_REASON = 500
_BEGINNING = re.compile(r'\{"id":"([^"\\]*)","type":"([^"\\]*)"')

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[Event[msgspec.Raw]] = msgspec.json.Decoder(Event[msgspec.Raw])
_faults = msgspec.json.Decoder(Fault)
_exchanges = msgspec.json.Decoder(Exchange)
_addressees = msgspec.json.Decoder(Addressees)
_attempts = msgspec.json.Decoder(tuple[Attempt, ...])
_cycles = msgspec.json.Decoder(tuple[Cycle, ...])
_edits = msgspec.json.Decoder(tuple[Edit, ...])
_resolutions = msgspec.json.Decoder(Resolution)
_destinations = msgspec.json.Decoder(Destination)


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return _encoder.encode(value).decode()


def event_from(
    document: str | bytes, event_id: str = "", event_type: str = ""
) -> Event[msgspec.Raw]:
    """Read an event's document.

    One that cannot be read, whoever has written it, must keep nobody from the others: an event
    stands in for it that says why, and has the whole document as a text for its payload.
    """
    try:
        event = _events.decode(document if isinstance(document, str) else document.decode())
        if event_id and (event.id.lower(), event.type) != (event_id.lower(), event_type):
            raise ValueError(f"it is the document of {event.type} {event.id}")  # noqa: TRY301 - one place makes the stand-in
        return event  # noqa: TRY300 - of the same check
    except (ValueError, RecursionError) as error:
        return unreadable_event(document, event_id, event_type, error)


def unreadable_event(
    document: str | bytes, event_id: str, event_type: str, error: Exception
) -> Event[msgspec.Raw]:
    """Return what stands in for an event whose document cannot be read."""
    found = _BEGINNING.match(msgspec.json.decode(_as_text(document)))
    return Event(
        id=EventId(event_id or (found[1] if found else "")),
        type=event_type or (found[2] if found else "unreadable"),
        payload=msgspec.Raw(_as_text(document)),
        published_at=from_micros(0),
        occurred_at=from_micros(0),
        headers={UNREADABLE: f"its event cannot be read: {error}"[:_LONGEST_REASON]},
    )


def carrying(event: Event[msgspec.Raw], edited: str | bytes | None) -> Event[msgspec.Raw]:
    """Return an event as a delivery carries it: with the payload that a person gave it, if so.

    That makes good for an event that cannot be read.
    """
    if edited is None:
        return event
    payload = edited.encode() if isinstance(edited, str) else edited
    headers = {name: value for name, value in event.headers.items() if name != UNREADABLE}
    if (why := why_unreadable(payload)) is not None:
        why = f"the payload that it was given cannot be read: {why}"
        headers[UNREADABLE] = why[:_LONGEST_REASON]
        payload = _as_text(payload)
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload), headers=headers)


def carried(document: str | bytes, edited: str | bytes | None) -> bytes:
    """Return what a delivery carries: the payload of its event's document, unless it was edited."""
    raw = maybe_raw(edited)
    return bytes(event_from(document).payload if raw is None else raw)


@lru_cache(maxsize=20_000)
def destination_from(document: str) -> Destination:
    """Read a destination; the same few are read again and again."""
    return _destinations.decode(document)


def fault_from(document: str | None) -> Fault | None:
    """Read a fault, if there is one."""
    return None if document is None else _faults.decode(document)


def exchange_from(document: str | None) -> Exchange | None:
    """Read what was exchanged in a try, if it was kept."""
    return None if document is None else _exchanges.decode(document)


def addressees_from(document: str | None) -> Addressees | None:
    """Read who has answered for good, if that was kept."""
    return None if document is None else _addressees.decode(document)


def attempts_from(document: str | None) -> tuple[Attempt, ...]:
    """Read the log of a cycle."""
    return () if document is None else _attempts.decode(document)


def cycles_from(document: str | None) -> tuple[Cycle, ...]:
    """Read the earlier cycles."""
    return () if document is None else _cycles.decode(document)


def edits_from(document: str | None) -> tuple[Edit, ...]:
    """Read what a person has changed."""
    return () if document is None else _edits.decode(document)


def maybe_raw(document: str | bytes | None) -> msgspec.Raw | None:
    """Return JSON as it was stored, if there is any; what is none comes as a text."""
    if document is None:
        return None
    raw = document.encode() if isinstance(document, str) else document
    return msgspec.Raw(raw if why_unreadable(raw) is None else _as_text(raw))


def why_unreadable(payload: bytes | msgspec.Raw) -> str | None:
    """Return why something is no JSON, or `None` if it is."""
    try:
        msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def _as_text(document: str | bytes) -> bytes:
    """Return anything as the JSON of a text."""
    raw = document.encode(errors="replace") if isinstance(document, str) else document
    return _encoder.encode(raw.decode(errors="replace"))


def resolution_from(document: str | None) -> Resolution | None:
    """Read a resolution, if there is one."""
    return None if document is None else _resolutions.decode(document)


def write_cursor(changed_at: datetime, delivery_id: DeliveryId) -> str:
    """Return where a page ended: the last delivery's place in the order of the list."""
    return f"{micros(changed_at)}-{delivery_id}"


def read_cursor(cursor: str) -> tuple[int, int]:
    """Return the microseconds and the id of a cursor."""
    time, _, number = cursor.partition("-")
    is_ours = cursor.isascii() and time.isdigit() and number.isdigit()
    if not is_ours or max(int(time), int(number)) > LARGEST_NUMBER:
        raise _not_ours(cursor)
    return int(time), int(number)


def read_place(cursor: str) -> int:
    """Return the place in the log of a cursor that is nothing else."""
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > LARGEST_NUMBER:
        raise _not_ours(cursor)
    return int(cursor)


def _not_ours(cursor: str) -> UsageError:
    return UsageError(
        f"The cursor {cursor!r} is not one of ours; pass the `next_cursor` of the page before."
    )


def _in_order(payload: msgspec.Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(payload), order="deterministic")


def body_digest(event: Event[msgspec.Raw]) -> str:
    """Return what two events have in common exactly when they say the same."""
    if event.erased is not None:
        return event.erased.digest
    body: tuple[object, ...] = (
        event.type,
        event.key,
        event.tenant,
        msgspec.Raw(_in_order(event.payload)),
    )
    if event.to:
        body = (*body, event.to)
    return hashlib.sha256(_encoder.encode(body)).hexdigest()


def is_same_body(one: Event[msgspec.Raw], other: Event[msgspec.Raw]) -> bool:
    """Tell whether two events say the same, whatever the order of their payload's keys."""
    if one.erased is not None or other.erased is not None:
        return body_digest(one) == body_digest(other)
    return (
        one.type == other.type
        and one.key == other.key
        and one.tenant == other.tenant
        and one.to == other.to
        and (
            bytes(one.payload) == bytes(other.payload)
            or _in_order(one.payload) == _in_order(other.payload)
        )
    )
