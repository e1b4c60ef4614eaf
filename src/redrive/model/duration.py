"""Durations as people write them: `"30s"`, `"1h30m"`, `"100ms"` or a `timedelta`."""

from __future__ import annotations

from datetime import timedelta

from redrive.errors import ConfigurationError

__all__ = ["LONGEST", "Duration", "duration", "rough_duration", "spell_duration"]

Duration = timedelta | str

LONGEST = timedelta(days=36_500)
"""The longest duration of a setting: with more, no instant could be computed any more."""

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def duration(value: object, *, name: str = "duration", longest: timedelta = LONGEST) -> timedelta:
    """Read a duration of at most `longest`; `name` is what an error message calls it.

    >>> duration("1h30m")
    datetime.timedelta(seconds=5400)
    >>> duration("100ms")
    datetime.timedelta(microseconds=100000)
    """
    match value:
        case timedelta():
            read: timedelta | None = value
        case str():
            read = _parse(value.replace(" ", ""))
        case _:
            read = None
    if read is None:
        raise ConfigurationError(
            f"{name} is {value!r}, which is not a duration; "
            'write a number with a unit, such as "30s", "100ms", "5m", "1h30m" or "2d", '
            "or pass a timedelta."
        )
    if read < timedelta(0):
        raise ConfigurationError(f"{name} is {value!r}; a duration cannot be negative.")
    if read > longest:
        raise ConfigurationError(
            f"{name} is {value!r}, which is too long; it is at most {spell_duration(longest)}."
        )
    return read


def spell_duration(value: timedelta) -> str:
    """Write a duration the way it is read, shortest form first.

    >>> spell_duration(timedelta(seconds=90))
    '1m30s'
    """
    rest = value
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest / _UNITS['ms']:g}ms")
    return "".join(parts) or "0s"


def rough_duration(value: timedelta) -> str:
    """Say about how long it is, for a person to read.

    >>> rough_duration(timedelta(minutes=3, seconds=12))
    '3 min'
    >>> rough_duration(timedelta(minutes=90))
    '1 h 30 min'
    """
    days, rest = divmod(value, _UNITS["d"])
    hours, rest = divmod(rest, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    if days:
        return " ".join(
            [f"{days} day{'s' if days > 1 else ''}", *([f"{hours} h"] if hours else [])]
        )
    if hours:
        return " ".join([f"{hours} h", *([f"{minutes} min"] if minutes else [])])
    if minutes:
        return f"{minutes} min"
    if rest >= _UNITS["s"]:
        return f"{rest // _UNITS['s']} s"
    return f"{rest // _UNITS['ms']} ms"


def _parse(text: str) -> timedelta | None:
    total = timedelta(0)
    rest = text
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        after = rest[digits:]
        letters = len(after) - len(after.lstrip("abcdefghijklmnopqrstuvwxyz"))
        unit = _UNITS.get(after[:letters])
        if unit is None or not digits:
            return None
        try:
            total += float(rest[:digits]) * unit
        except (ValueError, OverflowError):
            return None
        rest = after[letters:]
    return total if text else None
