"""Instants as whole microseconds since 1970: exact, and quick to compare and to store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["from_micros", "maybe_from_micros", "maybe_micros", "micros"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
