"""Fingerprints: which failures are the same one, told from what stays when ids and numbers go."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby, pairwise
from pathlib import Path, PurePath

import msgspec

from redrive.model.outcome import Fault

__all__ = ["Fingerprint", "fingerprint", "grouped", "normalised"]

_MARK = "#"
_LONGEST_INPUT = 4_000
_LONGEST_MESSAGE = 300
_LONGEST_BODY = 200
_LONGEST_NAME = 60
_LONGEST_TITLE = 200
_ID_BYTES = 6

_QUOTES = "'\"`"
_IN_WORDS = "_-.:,/\\@+~"
_JOINS = frozenset("_-.:,+")
_SIGNS = frozenset("-+")
_HEX_WORD = frozenset("0123456789abcdefABCDEF:-")
_HEX = frozenset("0123456789abcdefABCDEF")
_UUID_PARTS = (8, 4, 4, 4, 12)
_UUID_LENGTH = 36
_LEAST_HEX_WORD = 12
_LEAST_HEX = 6
_LEAST_RANDOM = 10
_LEAST_TEMPORARY = 8

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

    The same are: destination, error class, the message without what varies, and the file and
    function it was raised in; of an HTTP answer its status and the start of its body. The line
    number does not count, so that an edit above it does not make a new cause.
    """
    message = _essence(fault)
    place = _call_site(fault.stack)
    parts = (destination, fault.error_class, message, *place)
    digest = blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=_ID_BYTES)
    return Fingerprint(id=digest.hexdigest(), title=_title(fault.error_class, message, place))


def grouped(fault: Fault, destination: str) -> Fault:
    """Return the fault of a dead letter with the group it belongs to."""
    found = fingerprint(fault, destination)
    return msgspec.structs.replace(fault, group=found.id, title=found.title)


def normalised(text: str, *, keeps_names: bool = False, keeps_quoted: bool = False) -> str:
    """Return a text on one line, with `#` for what differs from one failure to the next.

    That is numbers, hexadecimal, UUIDs, e-mail addresses, instants, such parts of paths, and
    whatever is quoted: all of it, unless `keeps_quoted`, or `keeps_names` and it is a name.

    >>> normalised("user 'ann' <ann@example.org> has 17 orders in /tmp/tmpx3k_9/a.csv")
    "user '#' <#> has # orders in /tmp/#/a.csv"
    """
    pieces = _pieces(text[:_LONGEST_INPUT], keeps_names=keeps_names, keeps_quoted=keeps_quoted)
    return "".join(_joined(pieces)).strip()


def _essence(fault: Fault) -> str:
    if fault.code and fault.error_class == f"HTTP {fault.code}":
        # The status is known already; an answer's words are mostly in quotes, as JSON has them.
        words = fault.message.replace(f" {fault.code} ", " ", 1)
        return normalised(words, keeps_quoted=True)[:_LONGEST_BODY]
    keeps_names = fault.error_class.rpartition(".")[2] in _NAME_ERRORS
    return normalised(fault.message, keeps_names=keeps_names)[:_LONGEST_MESSAGE]


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


def _joined(pieces: Iterator[str]) -> list[str]:
    """Write several values in a row as one, so that lists and instants of any length agree."""
    out: list[str] = []
    for piece in pieces:
        if piece == " " and out[-1:] == [" "]:
            continue
        if piece == _MARK:
            if out[-3:] == [_MARK, ",", " "]:
                del out[-2:]
                continue
            if len(out) > 1 and out[-1] in _JOINS and out[-2] == _MARK:
                out.pop()
                continue
            if out and out[-1] in _SIGNS and not (len(out) > 1 and out[-2][-1].isalnum()):
                out.pop()
        out.append(piece)
    return out


def _pieces(text: str, *, keeps_names: bool, keeps_quoted: bool) -> Iterator[str]:
    begin = 0
    for start, end in () if keeps_quoted else _quotations(text):
        yield from _words(text[begin:start])
        quote, inner = text[start], text[start + 1 : end]
        is_name = keeps_names and len(inner) <= _LONGEST_NAME and _is_name(inner)
        yield quote + (inner if is_name else _MARK) + quote
        begin = end + 1
    yield from _words(text[begin:])


def _quotations(text: str) -> Iterator[tuple[int, int]]:
    """Find where quotations begin and end; an apostrophe inside a word is none."""
    closed = 0
    for quote_at in range(len(text)):
        quote = text[quote_at]
        if quote_at < closed or quote not in _QUOTES or text[quote_at - 1 : quote_at].isalnum():
            continue
        end = text.find(quote, quote_at + 1)
        while end > 0 and text[end + 1 : end + 2].isalnum():
            end = text.find(quote, end + 1)
        if end < 0:
            # Nothing closes this kind of quote from here on, so none is looked for again.
            text = text.replace(quote, " ")
            continue
        yield quote_at, end
        closed = end + 1


def _words(text: str) -> Iterator[str]:
    for kind, letters in groupby(text, key=_kind):
        run = "".join(letters)
        if kind == "word":
            yield from _word(run)
        elif kind == "space":
            yield " "
        else:
            yield from run


def _kind(letter: str) -> str:
    if letter.isalnum() or letter in _IN_WORDS:
        return "word"
    return "other" if letter.isprintable() and letter != " " else "space"


def _word(word: str) -> Iterator[str]:
    begin = 0
    for start in _uuids(word):
        yield from _plain_word(word[begin:start])
        yield _MARK
        begin = start + _UUID_LENGTH
    yield from _plain_word(word[begin:])


def _uuids(word: str) -> Iterator[int]:
    """Find where UUIDs begin: cut at their hyphens, their parts look like words."""
    end = 0
    for hyphen, letter in enumerate(word):
        start = hyphen - _UUID_PARTS[0]
        if letter == "-" and start >= end:
            parts = word[start : start + _UUID_LENGTH].split("-")
            if tuple(map(len, parts)) == _UUID_PARTS and _HEX.issuperset("".join(parts)):
                yield start
                end = start + _UUID_LENGTH


def _plain_word(word: str) -> Iterator[str]:
    core = word.rstrip(".,:")
    if _is_address(core) or _is_hex(core):
        yield _MARK
    elif "/" in core or "\\" in core:
        for is_separator, letters in groupby(core, key=lambda one: one in "/\\"):
            part = "".join(letters)
            yield part if is_separator or not _is_variable_part(part) else _MARK
    else:
        yield from _parts(core)
    yield from word[len(core) :]


def _is_address(word: str) -> bool:
    name, _, host = word.partition("@")
    return bool(name and host)


def _is_hex(word: str) -> bool:
    return len(word) >= _LEAST_HEX_WORD and _HEX_WORD.issuperset(word) and _has_digit(word)


def _is_variable_part(part: str) -> bool:
    return _has_digit(part) or (part.startswith("tmp") and len(part) >= _LEAST_TEMPORARY)


def _parts(word: str) -> Iterator[str]:
    for is_part, letters in groupby(word, key=str.isalnum):
        run = "".join(letters)
        if not is_part:
            yield from run
        elif not _has_digit(run):
            yield run
        elif (
            run[0].isdigit()
            or len(run) >= _LEAST_RANDOM
            or (len(run) >= _LEAST_HEX and _HEX.issuperset(run))
        ):
            yield _MARK
        else:
            for is_number, some in groupby(run, key=str.isdigit):
                yield _MARK if is_number else "".join(some)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_name(text: str) -> bool:
    return text.isascii() and text.replace(".", "_").isidentifier() and not _has_digit(text)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
