"""Words: what the text of a condition is made of, each with its place."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from redrive.errors import ConfigurationError

__all__ = ["LONGEST", "Word", "refuse", "words_of"]

LONGEST = 2_000
"""How many letters a condition may have."""

_LONGEST_NUMBER = 40
_WORD = re.compile(
    r"""\s*(?:
        (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
        | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
        | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
        | (?P<sign>==|!=|<=|>=|[<>().,\[\]-])
        | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Word(NamedTuple):
    """A name, a sign, a text, a number or the end, and where it begins, counted from 1."""

    kind: str
    value: Any
    place: int


def words_of(condition: str) -> list[Word]:
    """Return the words of a condition, the end last, or say where there is none."""
    if len(condition) > LONGEST:
        raise ConfigurationError(
            f"A condition has {len(condition):,} letters, more than the limit of {LONGEST:,}; "
            "say it shorter, or have several rules."
        )
    words, place = [], 0
    while True:
        found = _WORD.match(condition, place)
        if found is None:
            place += len(condition[place:]) - len(condition[place:].lstrip())
            refuse(place + 1, _complaint(condition[place:]))
        kind = str(found.lastgroup)
        start = found.start(kind)
        words.append(Word(kind, _value(kind, found[kind], start + 1), start + 1))
        if kind == "end":
            return words
        place = found.end()


def refuse(place: int, message: str) -> NoReturn:
    """Say at which letter of a condition something is wrong."""
    raise ConfigurationError(f"The condition is wrong at letter {place}: {message}")


def _value(kind: str, written: str, place: int) -> object:
    if kind == "text":
        # A backslash stays before what it means nothing to, so that patterns need not double it.
        return _ESCAPE.sub(_unescaped, written[1:-1])
    if kind != "number":
        return written
    if len(written) > _LONGEST_NUMBER:
        refuse(place, f"a number has at most {_LONGEST_NUMBER} digits.")
    value = int(written) if written.isdigit() else float(written)
    if value == float("inf"):
        refuse(place, "the number is too large.")
    return value


def _unescaped(found: re.Match[str]) -> str:
    letter = found[1]
    return _ESCAPES.get(letter, letter if letter in "\\'\"" else found[0])


def _complaint(rest: str) -> str:
    letter = rest[0]
    if letter in "\"'":
        return f"a text begins with {letter} and does not end with it."
    if letter == "=":
        return "write == to compare."
    if letter in "&|!":
        return "write and, or, not."
    return f"{letter!r} means nothing here."
