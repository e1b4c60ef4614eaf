"""Tests of templates: what may stand behind `is`."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.templates.rendering import Rendering
from redrive.templates.signature import Signature
from redrive.templates.values import text, whole

__all__ = ["CHECKS", "ends", "starts"]

_LARGEST = 2**256


def _is_odd(_: Rendering, value: object) -> bool:
    return whole(value, "odd", -_LARGEST, _LARGEST) % 2 == 1


def _is_even(_: Rendering, value: object) -> bool:
    return whole(value, "even", -_LARGEST, _LARGEST) % 2 == 0


def starts(rendering: Rendering, value: object, start: object) -> bool:
    """Tell whether a text begins like that."""
    begin = text(start, "starting")
    rendering.read(begin)
    return text(value, "starting").startswith(begin)


def ends(rendering: Rendering, value: object, end: object) -> bool:
    """Tell whether a text ends like that."""
    last = text(end, "ending")
    rendering.read(last)
    return text(value, "ending").endswith(last)


CHECKS: Mapping[str, Signature] = {
    "boolean": Signature(lambda _, value: isinstance(value, bool)),
    "ending": Signature(ends, ("end",), least=1),
    "even": Signature(_is_even),
    "false": Signature(lambda _, value: value is False),
    "float": Signature(lambda _, value: isinstance(value, float)),
    "integer": Signature(lambda _, value: type(value) is int),
    "mapping": Signature(lambda _, value: isinstance(value, dict)),
    "none": Signature(lambda _, value: value is None),
    "number": Signature(lambda _, value: type(value) in {int, float}),
    "odd": Signature(_is_odd),
    "sequence": Signature(lambda _, value: isinstance(value, list | range)),
    "starting": Signature(starts, ("start",), least=1),
    "string": Signature(lambda _, value: isinstance(value, str)),
    "true": Signature(lambda _, value: value is True),
}
"""Besides `defined` and `undefined`, which look at whether there is a value at all."""
