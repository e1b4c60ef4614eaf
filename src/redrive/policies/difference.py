"""Difference: what has changed between two payloads, place by place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, zip_longest

import msgspec

from redrive.model.edit import Change, ChangeKind

__all__ = ["MOST_CHANGES", "difference", "spelled"]

MOST_CHANGES = 100
"""How many changes of one edit are written down."""
_LONGEST_VALUE = 200
_LONGEST_LINE = 1_000
_DEEPEST = 40
_NOTHING = object()
_PLAIN_KEY = re.compile(r"\w+")


def difference(before: object, after: object) -> tuple[tuple[Change, ...], int]:
    """Return the places that differ, as many as are kept, and how many more there are.

    >>> changes, _ = difference({"total": 1, "tip": 2}, {"total": 3, "lines": []})
    >>> [(one.kind.value, one.path, one.before, one.after) for one in changes]
    [('changed', 'total', '1', '3'), ('removed', 'tip', '2', ''), ('added', 'lines', '', '[]')]
    """
    found = _walk("", before, after, depth=0)
    kept = tuple(islice(found, MOST_CHANGES))
    return kept, sum(1 for _ in found)


def spelled(before: object, after: object) -> str:
    """Return what differs in one line, which is cut if it is long.

    >>> spelled({"path": "/v1"}, {"path": "/v2", "method": "PUT"})
    'path: "/v1" → "/v2"; method: nothing → "PUT"'
    """
    changes, more = difference(before, after)
    parts = [f"{one.path}: {one.before or 'nothing'} → {one.after or 'nothing'}" for one in changes]
    said = "; ".join([*parts, *([f"and {more} more"] if more else [])])
    return said if len(said) <= _LONGEST_LINE else said[: _LONGEST_LINE - 1] + "…"


def _walk(path: str, before: object, after: object, *, depth: int) -> Iterator[Change]:
    if depth < _DEEPEST and isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            inner = _member(path, key)
            yield from _walk(
                inner, before.get(key, _NOTHING), after.get(key, _NOTHING), depth=depth + 1
            )
    elif depth < _DEEPEST and isinstance(before, list) and isinstance(after, list):
        yield from _items(path, before, after, depth=depth + 1)
    elif not _is_same(before, after):
        yield _change(path or "$", before, after)


def _items(path: str, before: list[object], after: list[object], *, depth: int) -> Iterator[Change]:
    """Compare lists from both ends: an item put in the middle must not change all behind it."""
    shorter = min(len(before), len(after))
    front = next(
        (place for place in range(shorter) if not _is_same(before[place], after[place])), shorter
    )
    back = next(
        (
            place
            for place in range(shorter - front)
            if not _is_same(before[-1 - place], after[-1 - place])
        ),
        shorter - front,
    )
    old, new = before[front : len(before) - back], after[front : len(after) - back]
    for place, (one, other) in enumerate(zip_longest(old, new, fillvalue=_NOTHING), start=front):
        yield from _walk(f"{path}[{place}]", one, other, depth=depth)


def _is_same(one: object, other: object) -> bool:
    # In Python 1 == 1.0 == True; in a payload they are three things.
    if one is _NOTHING or other is _NOTHING:
        return one is other
    return one == other and msgspec.json.encode(one) == msgspec.json.encode(other)


def _change(path: str, before: object, after: object) -> Change:
    if before is _NOTHING:
        return Change(path=path, kind=ChangeKind.ADDED, after=_text(after))
    if after is _NOTHING:
        return Change(path=path, kind=ChangeKind.REMOVED, before=_text(before))
    return Change(path=path, kind=ChangeKind.CHANGED, before=_text(before), after=_text(after))


def _member(path: str, key: str) -> str:
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{_text(key)}]"
    return f"{path}.{key}" if path else key


def _text(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
