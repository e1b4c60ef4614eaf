"""Methods of templates: what can be called on a value, and `range`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.errors import RenderError
from redrive.templates.checks import ends, starts
from redrive.templates.filters import FILTERS
from redrive.templates.rendering import Rendering
from redrive.templates.signature import Signature
from redrive.templates.values import kind_of, text, whole

__all__ = ["METHODS", "make_range"]

_FURTHEST = 2**53
_LETTERS = 64


def make_range(_: Rendering, start: object, stop: object, step: object) -> range:
    """Return numbers that are counted when they are taken out."""
    numbers = [
        whole(one, "range", -_FURTHEST, _FURTHEST) for one in (start, stop, step) if one is not None
    ]
    if step == 0:
        raise RenderError("range cannot go on by 0.")
    return range(*numbers)


def _object(value: object, what: str) -> dict[str, Any]:
    if type(value) is dict:
        return value
    raise RenderError(f".{what}() works on an object, and got {kind_of(value)}.")


def _items(rendering: Rendering, value: object) -> list[list[Any]]:
    given = _object(value, "items")
    rendering.spend(len(given))
    rendering.build_list(4 * len(given))
    return [[name, one] for name, one in given.items()]


def _keys(rendering: Rendering, value: object) -> list[Any]:
    given = _object(value, "keys")
    rendering.spend(len(given))
    rendering.build_list(len(given))
    return list(given)


def _values(rendering: Rendering, value: object) -> list[Any]:
    given = _object(value, "values")
    rendering.spend(len(given))
    rendering.build_list(len(given))
    return list(given.values())


def _get(rendering: Rendering, value: object, name: object, otherwise: object) -> object:
    rendering.read(text(name, ".get()"))
    return _object(value, "get").get(text(name, ".get()"), otherwise)


def _split(rendering: Rendering, value: object, separator: object, most: object) -> list[str]:
    given = text(value, ".split()")
    between = text(separator, ".split()")
    if not between:
        raise RenderError(".split() needs something to split at.")
    limit = -1 if most is None else whole(most, ".split()", 0, _FURTHEST)
    rendering.read(given)
    parts = given.count(between) + 1
    if limit >= 0:
        parts = min(parts, limit + 1)
    rendering.spend(parts)
    # Each part is a text of its own, with what Python keeps beside its letters.
    rendering.build(len(given) + _LETTERS * parts)
    return given.split(between, limit)


METHODS: Mapping[str, Signature] = {
    "endswith": Signature(ends, ("suffix",), least=1),
    "get": Signature(_get, ("name", "default"), least=1),
    "items": Signature(_items),
    "keys": Signature(_keys),
    "lower": FILTERS["lower"],
    "replace": FILTERS["replace"],
    "split": Signature(_split, ("separator", "maxsplit"), least=1),
    "startswith": Signature(starts, ("prefix",), least=1),
    "strip": FILTERS["trim"],
    "title": FILTERS["title"],
    "upper": FILTERS["upper"],
    "values": Signature(_values),
}
