"""Checks of values from outside, each with a sentence that says what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime

from redrive.errors import ConfigurationError

__all__ = ["check_generation", "check_instant", "check_text"]

_LONGEST_TEXT = 200
_YEARS = range(1970, 9999)


def check_text(name: str, value: object, *, longest: int = _LONGEST_TEXT) -> str:
    """Return text that every store can keep."""
    if isinstance(value, str) and len(value) <= longest and "\x00" not in value:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise ConfigurationError(
        f"{name} is {value!r:.300}; it is text of at most {longest} characters "
        "without a NUL character or half of a surrogate pair."
    )


def check_generation(value: str | None) -> None:
    """Refuse what no worker could serve as a generation; `None` leaves it as it was."""
    if value is not None and not check_text("generation", value).strip():
        raise ConfigurationError(
            "generation is blank; name the one whose workers shall deliver, or leave it out."
        )


def check_instant(name: str, value: object) -> datetime:
    """Return an instant in UTC."""
    if not isinstance(value, datetime):
        raise ConfigurationError(
            f"{name} is {value!r}; pass an aware datetime, such as datetime.now(UTC)."
        )
    if value.tzinfo is None:
        raise ConfigurationError(
            f"{name} is {value!r} without a time zone; pass an aware datetime, "
            "such as datetime.now(UTC)."
        )
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        instant = None
    if instant is None or instant.year not in _YEARS:
        raise ConfigurationError(
            f"{name} is {value}; it lies outside the years {_YEARS[0]} to {_YEARS[-1]}."
        )
    return instant
