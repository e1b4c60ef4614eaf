"""What a person types, read: instants, payloads, headers and filters."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from redrive import errors
from redrive.cli.options import Filters
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, PayloadError, UsageError
from redrive.model.delivery import Status
from redrive.model.duration import duration
from redrive.model.pattern import check_pattern
from redrive.model.settlement import FailureReason
from redrive.store import Query

__all__ = [
    "check_numbers",
    "maybe_moment",
    "read_choice",
    "read_headers",
    "read_moment",
    "read_payload",
    "read_query",
    "read_status",
]

C = TypeVar("C", bound=StrEnum)
_ANY = "any"
_LARGEST_NUMBER = 2**63 - 1
_AGO = re.compile(r"(.+?)\s+ago", re.IGNORECASE)
_IN = re.compile(r"in\s+(.+)", re.IGNORECASE)


def check_numbers(numbers: Sequence[int]) -> None:
    """Refuse numbers that no store counts to."""
    for one in numbers:
        if not 0 < one <= _LARGEST_NUMBER:
            raise UsageError(f"Nothing has the number {one}; they are counted from 1.")


def read_moment(text: str, *, name: str, is_past: bool = False) -> datetime:
    """Read an instant, in UTC unless it says, or a duration from now: `5m` or `in 5m`.

    With `is_past` a duration goes back: `2h` or `2h ago`.
    """
    try:
        instant = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
    except ValueError:
        return _relative(text, name=name, is_past=is_past)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def maybe_moment(text: str | None, *, name: str, is_past: bool = False) -> datetime | None:
    """Read an instant, if one was given."""
    return None if text is None else read_moment(text, name=name, is_past=is_past)


def read_payload(text: str | None) -> msgspec.Raw:
    """Read a payload: JSON itself, `-` for standard input, `@path` for a file.

    Numbers stay as they were written.
    """
    document = _document(text)
    try:
        msgspec.json.decode(document)
        return msgspec.Raw(msgspec.json.format(document, indent=-1))
    except RecursionError as error:
        raise PayloadError(
            "The payload has lists or objects within each other too deep to be read; make it flat, "
            "or send it as text."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadError(
            f"The payload is not JSON: {error}. Quote it for the shell, such as "
            "'{\"order\": 7}', and text once more, such as '\"hello\"'."
        ) from error


def read_headers(pairs: list[str]) -> dict[str, str]:
    """Read headers given as `name=value`."""
    headers = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(f"The header {pair!r} has no name and value; write name=value.")
        headers[name] = value
    return headers


def read_choice(kind: type[C], text: str, *, name: str) -> C:
    """Read one of a few words; a hyphen does for an underscore."""
    try:
        return kind(text.replace("-", "_"))
    except ValueError:
        raise UsageError(f"{name} is {text!r}; it is one of {', '.join(kind)}.") from None


def read_status(text: str) -> Status | None:
    """Read the status that deliveries should have; `None` for any."""
    if text == _ANY:
        return None
    try:
        return read_choice(Status, text, name="status")
    except UsageError:
        words = ", ".join([*Status, _ANY])
        raise UsageError(f"status is {text!r}; it is one of {words}.") from None


def read_query(filters: Filters, *, status: Status | None = Status.FAILED) -> Query:
    """Read filters as they were typed."""
    glob, why = filters.event_type, filters.reason
    return Query(
        status=status,
        destination=filters.destination,
        event_type=None if glob is None else check_pattern(glob),
        event_id=filters.event_id,
        key=filters.key,
        tenant=filters.tenant,
        reason=None if why is None else read_choice(FailureReason, why, name="reason"),
        error_class=None if filters.error is None else _error_class(filters.error),
        group=filters.group,
        since=maybe_moment(filters.since, name="since", is_past=True),
        until=maybe_moment(filters.until, name="until", is_past=True),
        text=filters.text,
        with_resolved=filters.resolved,
    )


def _error_class(name: str) -> str:
    """Read the class of an error as tables show it: ours without their module."""
    return f"{errors.__name__}.{name}" if name in errors.__all__ else name


def _relative(text: str, *, name: str, is_past: bool) -> datetime:
    now = SystemClock().now()
    spelled = (_AGO if is_past else _IN).fullmatch(text.strip())
    try:
        wait = duration(spelled[1] if spelled else text, name=name, longest=timedelta.max)
        return now - wait if is_past else now + wait
    except (ConfigurationError, OverflowError):
        direction = "ago" if is_past else "from now"
        raise ConfigurationError(
            f"{name} is {text!r}; write how long {direction}, such as 30m, 2h or 1d, or an "
            "instant, such as 2026-01-31T14:00Z."
        ) from None


def _document(text: str | None) -> bytes:
    if text is None:
        return b"null"
    try:
        if text == "-":
            return sys.stdin.buffer.read()
        if text.startswith("@"):
            return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UsageError(
            f"The payload cannot be read from {text[1:] or 'standard input'}: {error.strerror}."
        ) from error
    return text.encode("utf-8", "surrogateescape")
