"""Log records of OpenTelemetry as they stand on the wire.

Written here, and not by the library of the protocol: its messages are built call by call, which
takes longer than all the rest of a request. What is written is read by that library in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Any

import msgspec

from redrive.model.delivery import Leased
from redrive.model.event import Severity
from redrive.transports.http.format import message_id

__all__ = ["write_request"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NUMBERS = (
    (Severity.DEBUG, 5),
    (Severity.INFO, 9),
    (Severity.WARNING, 13),
    (Severity.ERROR, 17),
    (Severity.CRITICAL, 21),
)
_LARGEST = 2**63
_SHORT = [bytes((number,)) for number in range(128)]
_double = Struct("<d").pack
_flags = Struct("<I").pack
# Both times, each a fixed number behind the key of its field.
_times = Struct("<BQBQ").pack
_AT, _SEEN = 0x09, 0x59


def write_request(
    deliveries: Sequence[Leased], resource: Mapping[str, str], *, version: str
) -> bytes:
    """Return a request to store a record of each delivery."""
    scope = _field(b"\x0a", _text(b"\x0a", "redrive") + _text(b"\x12", version))
    records = b"".join([_field(b"\x12", _record(one)) for one in deliveries])
    attributes = b"".join([_field(b"\x0a", _pair(*pair)) for pair in resource.items()])
    return _field(b"\x0a", _field(b"\x0a", attributes) + _field(b"\x12", scope + records))


def _record(one: Leased) -> bytes:
    event = one.event
    at = _nanoseconds(event.occurred_at)
    is_same = event.published_at == event.occurred_at
    seen = at if is_same else _nanoseconds(event.published_at)
    parts = [
        _times(_AT, at, _SEEN, seen),
        _SEVERITIES[event.severity],
        _text(b"\x62", event.type),
        _field(b"\x32", _pair("redrive.event.id", message_id(one))),
        _field(b"\x2a", _value(msgspec.json.decode(event.payload))),
    ]
    for name, value in (
        ("redrive.event.key", event.key),
        ("redrive.event.source", event.source),
        ("redrive.event.tenant", event.tenant),
    ):
        if value:
            parts.append(_field(b"\x32", _pair(name, value)))
    parent = event.headers.get("traceparent")
    if parent is not None and (trace := _TRACE.fullmatch(parent)) is not None:
        parts.append(_field(b"\x4a", bytes.fromhex(trace[1])))
        parts.append(_field(b"\x52", bytes.fromhex(trace[2])))
        parts.append(b"\x45" + _flags(int(trace[3], 16)))
    return b"".join(parts)


def _nanoseconds(at: datetime) -> int:
    since = at - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def _value(value: Any) -> bytes:  # noqa: ANN401 - as JSON has it
    """Return a JSON value as OpenTelemetry has it; nothing stays a value without one."""
    kind = type(value)
    if kind is str:
        return _text(b"\x0a", value)
    if kind is dict:
        return _field(b"\x32", b"".join([_field(b"\x0a", _pair(*pair)) for pair in value.items()]))
    if kind is list:
        return _field(b"\x2a", b"".join([_field(b"\x0a", _value(one)) for one in value]))
    return _scalar(value)


def _scalar(value: float | None) -> bytes:
    """Return a number, a truth or nothing; a number that has no place there is a text."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, float):
        return b"\x21" + _double(value)
    if -_LARGEST <= value < _LARGEST:
        return b"\x18" + _number(value % (2 * _LARGEST))
    return _text(b"\x0a", str(value))


def _pair(name: str, value: Any) -> bytes:  # noqa: ANN401 - as JSON has it
    return _text(b"\x0a", name) + _field(b"\x12", _value(value))


def _text(key: bytes, text: str) -> bytes:
    return _field(key, text.encode(errors="replace"))


def _field(key: bytes, content: bytes) -> bytes:
    """Return what has a length, behind the key of its field."""
    size = len(content)
    return key + (_SHORT[size] if size < 128 else _number(size)) + content  # noqa: PLR2004 - a byte


def _number(number: int) -> bytes:
    """Return a number as so many groups of seven bits as it takes, the lowest first."""
    groups = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_SEVERITIES = {
    severity: b"\x10" + _number(number) + _text(b"\x1a", severity.value.upper())
    for severity, number in _NUMBERS
}
