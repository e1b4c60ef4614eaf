"""How single values look: instants, durations, numbers, and text that others wrote."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.model.delivery import Delivery
from redrive.model.duration import rough_duration
from redrive.model.outcome import Fault
from redrive.policies.display import safe, safe_lines

__all__ = [
    "ago",
    "brief",
    "counted",
    "first_line",
    "instant",
    "safe",
    "safe_lines",
    "short",
    "title",
    "verdict",
]

_OWN_ERRORS = "redrive.errors."
"""The module of the classes that handlers raise to say what should happen."""
_LONG_COUNT = 100_000
_MILLION = 1_000_000


def ago(then: datetime, now: datetime) -> str:
    """Say how long ago it was, or how long until it will be.

    >>> ago(datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, 3))
    '3 min ago'
    """
    passed = now - then
    if abs(passed) < timedelta(seconds=1):
        return "just now"
    span = rough_duration(abs(passed))
    return f"{span} ago" if passed > timedelta(0) else f"in {span}"


def instant(then: datetime, now: datetime) -> str:
    """Say when it was, exactly and in relation to now."""
    return f"{then:%Y-%m-%d %H:%M:%S} UTC ({ago(then, now)})"


def short(count: int) -> str:
    """Write a count in little room; none is a dash, so that what there is stands out.

    >>> short(0), short(12_345), short(1_234_567)
    ('-', '12,345', '1.2M')
    """
    if count < _LONG_COUNT:
        return f"{count:,}" if count else "-"
    return f"{count / 1e6:.1f}M" if count >= _MILLION else f"{count // 1000}k"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a count with its word.

    >>> counted(1, "try", "tries"), counted(2_000, "event")
    ('1 try', '2,000 events')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def first_line(text: str) -> str:
    """Return the first line with something on it, safe to show."""
    return safe(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def brief(failure: str) -> str:
    """Write a failure in little room: one of our own classes goes without its module.

    >>> brief("redrive.errors.Terminal: no such street"), brief("shop.errors.Refused: no")
    ('Terminal: no such street', 'shop.errors.Refused: no')
    """
    return failure.removeprefix(_OWN_ERRORS)


def title(delivery: Delivery) -> str:
    """Name a delivery by what goes where."""
    return f"{delivery.event_type} → {delivery.destination}"


def verdict(fault: Fault) -> str:
    """Say in a line what went wrong; of an HTTP answer its status, and its body or its reason."""
    kind, message = safe(fault.error_class), first_line(fault.message)
    if fault.code and fault.error_class == f"HTTP {fault.code}":
        _, _, said = message.partition(f" answered {safe(fault.code)} ")
        reason, _, body = said.partition(": ")
        return f"{kind} {body or reason}" if said else f"{kind}: {message}"
    code = f" {safe(fault.code)}" if fault.code else ""
    return f"{kind}{code}: {message}"
