"""How values look at rest: events as JSON documents, instants as whole microseconds."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from redrive.errors import UsageError
from redrive.model.delivery import Attempt, Cycle, DeliveryId, Resolution
from redrive.model.destination import Destination
from redrive.model.edit import Edit
from redrive.model.event import Event
from redrive.model.outcome import Exchange, Fault

__all__ = [
    "attempts_from",
    "body_digest",
    "carried",
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
    "resolution_from",
    "write_cursor",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LARGEST_NUMBER = 2**63 - 1

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[Event[msgspec.Raw]] = msgspec.json.Decoder(Event[msgspec.Raw])
_faults = msgspec.json.Decoder(Fault)
_exchanges = msgspec.json.Decoder(Exchange)
_attempts = msgspec.json.Decoder(tuple[Attempt, ...])
_cycles = msgspec.json.Decoder(tuple[Cycle, ...])
_edits = msgspec.json.Decoder(tuple[Edit, ...])
_resolutions = msgspec.json.Decoder(Resolution)
_destinations = msgspec.json.Decoder(Destination)


class _Carrier(msgspec.Struct):
    payload: msgspec.Raw


_carriers = msgspec.json.Decoder(_Carrier)


def micros(instant: datetime) -> int:
    """Return whole microseconds since 1970, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return the instant of `micros`."""
    return _EPOCH + timedelta(microseconds=value)


def maybe_micros(instant: datetime | None) -> int | None:
    """Return `micros`, or `None` for no instant."""
    return None if instant is None else micros(instant)


def maybe_from_micros(value: int | None) -> datetime | None:
    """Return `from_micros`, or `None` for no value."""
    return None if value is None else from_micros(value)


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return _encoder.encode(value).decode()


def event_from(document: str | bytes) -> Event[msgspec.Raw]:
    """Read an event's document."""
    return _events.decode(document)


def carried(document: str, edited: str | None) -> bytes:
    """Return what a delivery carries: the payload of its event's document, unless it was edited."""
    return bytes(_carriers.decode(document).payload) if edited is None else edited.encode()


@lru_cache(maxsize=1024)
def destination_from(document: str) -> Destination:
    """Read a destination; the same few are read again and again."""
    return _destinations.decode(document)


def fault_from(document: str | None) -> Fault | None:
    """Read a fault, if there is one."""
    return None if document is None else _faults.decode(document)


def exchange_from(document: str | None) -> Exchange | None:
    """Read what was exchanged in a try, if it was kept."""
    return None if document is None else _exchanges.decode(document)


def attempts_from(document: str | None) -> tuple[Attempt, ...]:
    """Read the log of a cycle."""
    return () if document is None else _attempts.decode(document)


def cycles_from(document: str | None) -> tuple[Cycle, ...]:
    """Read the earlier cycles."""
    return () if document is None else _cycles.decode(document)


def edits_from(document: str | None) -> tuple[Edit, ...]:
    """Read what a person has changed."""
    return () if document is None else _edits.decode(document)


def maybe_raw(document: str | None) -> msgspec.Raw | None:
    """Return JSON as it was stored, if there is any."""
    return None if document is None else msgspec.Raw(document.encode())


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
    if not is_ours or max(int(time), int(number)) > _LARGEST_NUMBER:
        raise UsageError(
            f"The cursor {cursor!r} is not one of ours; pass the `next_cursor` of the page before."
        )
    return int(time), int(number)


def _in_order(payload: msgspec.Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(payload), order="deterministic")


def body_digest(event: Event[msgspec.Raw]) -> str:
    """Return what two events have in common exactly when they say the same."""
    body = (event.type, event.key, event.tenant, msgspec.Raw(_in_order(event.payload)))
    return hashlib.sha256(_encoder.encode(body)).hexdigest()


def is_same_body(one: Event[msgspec.Raw], other: Event[msgspec.Raw]) -> bool:
    """Tell whether two events say the same, whatever the order of their payload's keys."""
    return (
        one.type == other.type
        and one.key == other.key
        and one.tenant == other.tenant
        and (
            bytes(one.payload) == bytes(other.payload)
            or _in_order(one.payload) == _in_order(other.payload)
        )
    )
