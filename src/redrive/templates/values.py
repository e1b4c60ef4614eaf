"""Values in templates: those of JSON and no others, how they are written and compared."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from redrive.errors import MissingFieldError, RenderError
from redrive.templates.rendering import LARGEST, Rendering

__all__ = [
    "OMIT",
    "are_equal",
    "compare",
    "items_of",
    "kind_of",
    "look_up",
    "number",
    "scalar",
    "spell",
    "text",
    "whole",
    "written",
]

_MOST_BITS = 256


class _Omit:
    """Stands for a field that is to be left out."""

    def __repr__(self) -> str:
        return "omit"


OMIT = _Omit()
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    (dict, "an object"),
    ((list, range), "a list"),
)


def kind_of(value: object) -> str:
    """Say in a word what kind of value it is; what it says is nobody's business."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "omit")


def look_up(value: object, name: object, where: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return what an object has by a name, or a list at a place."""
    if type(value) is dict and type(name) is str:
        try:
            return value[name]
        except KeyError:
            raise MissingFieldError(f"{where} is not there.") from None
    if isinstance(value, list | range | str) and type(name) is int:
        try:
            return value[name]
        except IndexError:
            raise MissingFieldError(f"{where} is not there: {len(value):,} are.") from None
    raise MissingFieldError(f"{where} is not there: what it is looked for in is {kind_of(value)}.")


def spell(rendering: Rendering, value: object) -> str:
    """Return a value as it stands in text; what is no text is written as JSON writes it."""
    if type(value) is str:
        return value
    if value is OMIT:
        raise RenderError("omit leaves out a field of a structured template, and is no text.")
    return written(rendering, value)


def written(rendering: Rendering, value: object) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(number(value))
    if isinstance(value, range):
        value = _listed(rendering, value)
    rendering.weigh(value)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise RenderError("It would build something that JSON cannot hold.") from None


def text(value: object, what: str) -> str:
    """Return a text, or say that something else stands in its place."""
    if type(value) is str:
        return value
    raise RenderError(f"{what} works on text, and got {kind_of(value)}.")


def number(value: object, what: str = "It") -> int | float:
    """Return a number that is small enough to count with."""
    if type(value) is int:
        if value.bit_length() > _MOST_BITS:
            raise RenderError(f"{what} has a number of more than {_MOST_BITS} bits.")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise RenderError(f"{what} has a number that JSON does not have.")
        return value
    raise RenderError(f"{what} works on numbers, and got {kind_of(value)}.")


def whole(value: object, what: str, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise RenderError(f"{what} takes a whole number from {least:,} to {most:,}.")
    return value


def scalar(value: object, what: str) -> str | int | float | bool | None:
    """Return what is no list and no object."""
    if value is None or type(value) in {str, int, float, bool}:
        return value  # type: ignore[return-value]  # just looked at
    raise RenderError(f"{what} works on text and numbers, and got {kind_of(value)}.")


def items_of(rendering: Rendering, value: object, what: str) -> list[Any]:
    """Return the elements of a list, counted."""
    if isinstance(value, range):
        return _listed(rendering, value)
    if isinstance(value, list):
        rendering.spend(len(value))
        return value
    if isinstance(value, dict):
        raise RenderError(f"{what} works on a list, and got an object; .items() makes one of it.")
    raise RenderError(f"{what} works on a list, and got {kind_of(value)}.")


def are_equal(rendering: Rendering, left: object, right: object) -> bool:
    """Compare as JSON does: `true` is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        if len(left) == len(right):
            rendering.read(left)
        return left == right
    if isinstance(left, range) or isinstance(right, range):
        return False
    if isinstance(left, dict | list) and type(left) is type(right):
        # Equal in length at every level, or they differ at once: weighing one bounds both.
        rendering.weigh(left)
        return left == right
    return left == right


def compare(rendering: Rendering, left: object, right: object) -> int:
    """Return whether the left is less, equal or more: numbers by size, text by its letters."""
    if type(left) is str and type(right) is str:
        rendering.read(left if len(left) < len(right) else right)
        return _ranked(left, right)
    if type(left) in {int, float} and type(right) in {int, float}:
        return _ranked(left, right)
    raise RenderError(
        f"{kind_of(left).capitalize()} cannot be compared with {kind_of(right)}; "
        "numbers go with numbers, and text with text."
    )


def _ranked(left: Any, right: Any) -> int:  # noqa: ANN401 - two numbers or two texts
    return bool(left > right) - bool(left < right)


def _listed(rendering: Rendering, value: range) -> list[Any]:
    if len(value) > LARGEST:
        raise RenderError(f"It would build a list of {len(value):,} numbers.")
    rendering.spend(len(value))
    rendering.build_list(len(value))
    return list(value)
