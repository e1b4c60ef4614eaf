"""Values in conditions: how those of JSON are looked up and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redrive.errors import ConditionError

__all__ = ["compare", "contains", "is_equal", "kind_of", "look_up", "searchable", "within"]

_LONGEST_TEXT = 2**16
_MOST_ITEMS = 10_000
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    (dict, "an object"),
    (list, "a list"),
)


def kind_of(value: object) -> str:
    """Say in a word what kind of value it is; what it says is nobody's business."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "no JSON")


def look_up(value: object, fields: Sequence[str | int], names: Sequence[str]) -> Any:  # noqa: ANN401 - a JSON value
    """Return the field that a path leads to; `names` say it step by step."""
    for field, name in zip(fields, names, strict=True):
        if isinstance(field, str):
            if not isinstance(value, dict) or field not in value:
                raise _missing(name, value)
            value = value[field]
        else:
            if not isinstance(value, list) or not field < len(value):
                raise _missing(name, value)
            value = value[field]
    return value


def is_equal(left: object, right: object) -> bool:
    """Compare as JSON does: `true` is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def compare(sign: str, holds: Callable[[Any, Any], bool], left: object, right: object) -> bool:
    """Compare two numbers or two texts."""
    if type(left) is str and type(right) is str:
        return holds(left, right)
    if type(left) in {int, float} and type(right) in {int, float}:
        return holds(left, right)
    raise ConditionError(
        f"{kind_of(left)} {sign} {kind_of(right)}: numbers are compared with numbers, and text "
        "with text."
    )


def within(value: object, items: object) -> bool:
    """Tell whether a list has the value."""
    if not isinstance(items, list):
        raise ConditionError(f"in looks into a list, and got {kind_of(items)}.")
    if len(items) > _MOST_ITEMS:
        raise ConditionError(f"A list has more than {_MOST_ITEMS:,} elements.")
    return any(is_equal(value, one) for one in items)


def contains(value: object, part: object) -> bool:
    """Tell whether a text has another in it, or a list an element."""
    if isinstance(value, list):
        return within(part, value)
    return searchable("contains", part) in searchable("contains", value)


def searchable(what: str, value: object, longest: int = _LONGEST_TEXT) -> str:
    """Return a text that is short enough to look through."""
    if not isinstance(value, str):
        raise ConditionError(f"{what} works on text, and got {kind_of(value)}.")
    if len(value) > longest:
        raise ConditionError(f"{what} got a text of more than {longest:,} letters.")
    return value


def _missing(name: str, value: object) -> ConditionError:
    where = "" if isinstance(value, dict | list) else f"; it is looked for in {kind_of(value)}"
    return ConditionError(f"{name} is not there{where}.")
