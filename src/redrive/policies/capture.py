"""Capture: an exception as a fault, in bounded text that is safe to store."""

from __future__ import annotations

import errno
import traceback
from datetime import timedelta
from types import TracebackType

from redrive.model.duration import spell_duration
from redrive.model.outcome import Fault

__all__ = ["bounded_message", "capture", "timed_out"]

_LONGEST_MESSAGE = 2_000
_LONGEST_STACK = 8_000
_LONGEST_CODE = 100
_LARGEST_CODE = 10**18
_MOST_FRAMES = 50
_CODE_NAMES = ("sqlstate", "pgcode", "sqlite_errorname", "smtp_code", "code", "status")
_ENGINE = (
    *("redrive.executor", "redrive.pipeline", "redrive.testing", "redrive.transports"),
    "redrive.worker",
    *("asyncio", "concurrent.futures", "threading"),
)


def capture(error: BaseException, *, rule: str, place: str = "") -> Fault:
    """Write down a failure; never raises, and never prints a local variable.

    `place` is the first line of its stack instead of the engine's own: of a payload that does not
    fit, the handler that would have got it.
    """
    return Fault(
        error_class=_storable(_class_name(type(error))),
        message=_message(error),
        rule=rule,
        code=_code(error),
        stack=_stack(error, place),
    )


def timed_out(after: timedelta) -> Fault:
    """Return the fault of an attempt that was ended because it took too long."""
    return Fault(
        error_class="TimeoutError",
        message=f"No answer within {spell_duration(after)}, so the attempt was ended.",
        rule="timeout",
    )


def bounded_message(text: str) -> str:
    """Cut a message to the length a fault may have, and replace what a store would refuse."""
    text = _storable(text)
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"


def _class_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unreadable:  # noqa: BLE001 - a foreign __str__ may raise anything
        text = f"The message cannot be read: its __str__ raised {type(unreadable).__name__}."
    return bounded_message(text)


def _code(error: BaseException) -> str:
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return errno.errorcode.get(error.errno, str(error.errno))
    try:
        values = [getattr(error, name, None) for name in _CODE_NAMES]
    except Exception:  # noqa: BLE001 - a foreign property may raise anything
        return ""
    return next((code for code in map(_as_code, values) if code), "")


def _as_code(value: object) -> str:
    match value:
        case bool():
            return ""
        case int():
            return f"{value:d}" if abs(value) < _LARGEST_CODE else ""
        case str():
            return _storable(value)[:_LONGEST_CODE]
        case _:
            return ""


def _stack(error: BaseException, place: str) -> str:
    try:
        own = _without_engine(error.__traceback__)
        formatted = traceback.TracebackException(
            type(error), error, own or (None if place else error.__traceback__), limit=-_MOST_FRAMES
        )
        # A long message must not push out the place it was raised at.
        text = "".join(_bounded_lines(chunk) for chunk in formatted.format())
        text = f"{place}\n{text}" if place else text
    except Exception:  # noqa: BLE001 - formatting runs foreign code
        return ""
    text = _storable(text).rstrip()
    return text if len(text) <= _LONGEST_STACK else f"…{text[1 - _LONGEST_STACK :]}"


def _bounded_lines(chunk: str) -> str:
    return chunk if len(chunk) <= _LONGEST_MESSAGE else f"{chunk[: _LONGEST_MESSAGE - 2]}…\n"


def _without_engine(trace: TracebackType | None) -> TracebackType | None:
    rest = trace
    while rest is not None and _is_engine(rest):
        rest = rest.tb_next
    return rest


def _is_engine(trace: TracebackType) -> bool:
    name = str(trace.tb_frame.f_globals.get("__name__", ""))
    return any(name == engine or name.startswith(f"{engine}.") for engine in _ENGINE)


def _storable(text: str) -> str:
    """Some stores refuse NUL, and none takes half a surrogate pair."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
