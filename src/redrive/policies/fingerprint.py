"""Fingerprints: which failures are the same one, told from what stays when ids and numbers go."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from pathlib import Path, PurePath

import msgspec

from redrive.model.outcome import Fault
from redrive.policies.wording import normalised

__all__ = ["GROUPING", "Fingerprint", "fingerprint", "grouped"]

GROUPING = "g"
"""What the ids of groups begin with since fingerprints are made as they are here.

Whoever changes them takes the next letter: ids that come before it in the alphabet are outdated,
and a worker gives those letters new ones. The first fingerprints had no letter, only hexadecimal.
"""

_LONGEST_MESSAGE = 300
_LONGEST_BODY = 200
_LONGEST_NAME = 60
_LONGEST_TITLE = 200
_LONGEST_CODE = 40
_MOST_DIGITS = 5
_ID_BYTES = 6

# What these errors put in quotes are names of the program, not values that passed through it.
_NAME_ERRORS = (
    *("AttributeError", "ImportError", "KeyError", "ModuleNotFoundError", "NameError"),
    *("TypeError", "UnboundLocalError"),
)
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_ENGINE = Path(__file__).parents[1]


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What a failure has in common with others of its cause: a short id, and a line to read."""

    id: str
    title: str


def fingerprint(fault: Fault, destination: str) -> Fingerprint:
    """Return what tells the cause of a fault at one destination; never raises.

    The same are: destination, error class and code, the message without what varies, and the file
    and function it was raised in; of an HTTP answer its status and the start of its body. The line
    number does not count, so that an edit above it does not make a new cause.
    """
    message = _essence(fault)
    place = _call_site(fault.stack)
    parts = (destination, fault.error_class, _kept_code(fault.code), message, *place)
    digest = blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=_ID_BYTES)
    title = _title(fault.error_class, message, place)
    return Fingerprint(id=f"{GROUPING}{digest.hexdigest()}", title=title)


def grouped(fault: Fault, destination: str) -> Fault:
    """Return the fault of a dead letter with the group it belongs to."""
    found = fingerprint(fault, destination)
    return msgspec.structs.replace(fault, group=found.id, title=found.title)


def _essence(fault: Fault) -> str:
    if fault.code and fault.error_class == f"HTTP {fault.code}":
        # The status is known already; an answer's words are mostly in quotes, as JSON has them.
        words = fault.message.replace(f" {fault.code} ", " ", 1)
        return normalised(words, keeps_quoted=True)[:_LONGEST_BODY]
    keeps_names = fault.error_class.rpartition(".")[2] in _NAME_ERRORS
    return normalised(fault.message, keeps_names=keeps_names)[:_LONGEST_MESSAGE]


def _kept_code(code: str) -> str:
    """Return a code that stands for a kind of failure, and not for one of them."""
    digits = sum(map(str.isdigit, code))
    return code if len(code) <= _LONGEST_CODE and digits <= _MOST_DIGITS else ""


def _title(error_class: str, message: str, place: tuple[str, ...]) -> str:
    where = f" ({_cut(', '.join(place), _LONGEST_NAME)})" if place else ""
    what = " ".join(_printable(f"{_cut(error_class, _LONGEST_NAME)}: {message}").split())
    return f"{_cut(what, _LONGEST_TITLE - len(where))}{where}"


def _call_site(stack: str) -> tuple[str, ...]:
    """Return the file and the function of the innermost frame that is the user's own."""
    frames = [frame for line in stack.splitlines() if (frame := _frame(line))]
    own = [frame for frame in frames if not _is_foreign(frame[0])]
    for path, function in reversed(own or frames):
        return (_printable(PurePath(path).name), _printable(function))
    return ()


def _frame(line: str) -> tuple[str, str] | None:
    # In the stack of an exception group, bars stand before the lines.
    begin, found, rest = line.partition('File "')
    if not found or begin.strip(" |+"):
        return None
    path, _, place = rest.rpartition('", line ')
    return path, place.partition(", in ")[2].strip()


def _is_foreign(path: str) -> bool:
    file = PurePath(path)
    parts = file.parts
    is_standard = any(
        folder in {"lib", "lib64"} and inner.startswith("python3")
        for folder, inner in pairwise(parts)
    )
    return (
        is_standard
        or path.startswith("<frozen ")
        or file.is_relative_to(_ENGINE)
        or any(part in _LIBRARIES for part in parts)
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
