"""Rendering: a model and a template become HTML; whatever others wrote stays text."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from redrive.model.duration import rough_duration
from redrive.model.settlement import FailureReason
from redrive.policies.display import safe_lines

__all__ = ["SCRIPT", "STYLE", "Renderer", "ago", "breakable", "counted", "reason_of"]

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "templates" / "style.css").read_text(encoding="utf-8")
SCRIPT = (_FOLDER / "templates" / "live.js").read_text(encoding="utf-8")
_VERSION = hashlib.sha256(f"{STYLE}{SCRIPT}".encode()).hexdigest()[:12]
"""Changes with what pages bring along, so that no browser keeps what is old."""
_SPACE, _PART = re.compile(r"(\s+)"), re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[._/])(?=\w)")
_LONG = 24
"""Letters, from which on a word may end a line within."""
_TIME = Markup('<time datetime="{exact}" title="{utc}">{ago}</time>')


_REASONS = {
    FailureReason.EXHAUSTED: "all tries are used up",
    FailureReason.TERMINAL: "trying again would not help",
    FailureReason.EXPIRED: "its deadline has passed",
    FailureReason.CRASH_LOOP: "workers crashed with it",
    FailureReason.RATE_LIMITED: "there was no room in its rate",
    FailureReason.RETRY_RATE_LIMITED: "there was no room in the rate of retries",
    FailureReason.CIRCUIT_OPEN: "its destination was down",
    FailureReason.CANCELLED: "it was given up",
    FailureReason.TRACKING_FAILED: "what became of it could not be kept",
}


class Renderer:
    """Makes HTML of templates; every value is escaped, and invisible characters are spelled out."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "breakable": breakable,
            "counted": counted,
            "number": _number,
            "reason": reason_of,
            "span": rough_duration,
        }
        self._environment.globals |= {"when": when, "assets": _VERSION}

    def render(self, template: str, **known: object) -> str:
        """Return the HTML of a page."""
        return self._environment.get_template(template).render(known)


def ago(then: datetime, now: datetime) -> str:
    """Say how long ago it was, or how long until it will be."""
    passed = now - then
    if abs(passed) < timedelta(seconds=1):
        return "just now"
    span = rough_duration(abs(passed))
    return f"{span} ago" if passed > timedelta(0) else f"in {span}"


def when(then: datetime | None, now: datetime) -> Markup | str:
    """Say when it was, in relation to now, with the exact instant at hand."""
    if then is None:
        return "-"
    utc = f"{then:%Y-%m-%d %H:%M:%S} UTC"
    return _TIME.format(exact=then.isoformat(), utc=utc, ago=ago(then, now))


def breakable(text: str) -> Markup:
    """Let long names end a line where a word in them begins, instead of anywhere.

    >>> breakable("ClientConnectorCertificateError: no <host>")
    Markup('Client<wbr>Connector<wbr>Certificate<wbr>Error: no &lt;host&gt;')
    """
    pieces = (
        _PART.split(word) if len(word) > _LONG else [word]
        for word in _SPACE.split(safe_lines(text))
    )
    return Markup("").join(Markup("<wbr>").join(map(escape, piece)) for piece in pieces)


def counted(count: int, one: str, many: str = "") -> str:
    """Write a count with its word.

    >>> counted(1, "try", "tries"), counted(2_000, "event")
    ('1 try', '2,000 events')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def reason_of(reason: FailureReason) -> str:
    """Say in a few words why something has failed for good."""
    return _REASONS[reason]


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"


def _visible(value: object) -> object:
    return safe_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value
