"""Filters of templates: what may stand behind `|`."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from redrive.errors import MissingFieldError, RenderError
from redrive.templates.rendering import Rendering
from redrive.templates.signature import Signature
from redrive.templates.values import (
    are_equal,
    compare,
    items_of,
    kind_of,
    look_up,
    number,
    scalar,
    spell,
    text,
    whole,
    written,
)

__all__ = ["FILTERS"]

_LONGEST_NUMBER = 40
_MOST_DIGITS = 15
_LONGEST_FORMAT = 100
_DIRECTIVES = frozenset("YmdHMSfzjabABy%")
_SORTING = 10
"""What finding its place among the others costs an element, at most."""


def _changed(what: str, change: Callable[[str], str]) -> Signature:
    """Make a filter of what gives a text that is hardly longer than the one it was given."""

    def apply(rendering: Rendering, value: object) -> str:
        given = text(value, what)
        rendering.build(len(given))
        return change(given)

    return Signature(apply)


def _enlarged(change: Callable[[str], str], times: int) -> Signature:
    """Make a filter of what gives a text that is at most so many times longer."""

    def apply(rendering: Rendering, value: object) -> str:
        given = spell(rendering, value)
        rendering.build(times * len(given))
        return change(given)

    return Signature(apply)


def _replace(rendering: Rendering, value: object, old: object, new: object, count: object) -> str:
    given, before, after = (text(one, "replace") for one in (value, old, new))
    if not before:
        raise RenderError("replace needs something to look for.")
    rendering.read(given)
    found = given.count(before)
    most = found if count is None else min(found, whole(count, "replace", 0, 2**53))
    rendering.build(len(given) + most * max(0, len(after) - len(before)))
    return given.replace(before, after, most)


def _truncate(rendering: Rendering, value: object, length: object, end: object) -> str:
    given = text(value, "truncate")
    most = 255 if length is None else whole(length, "truncate", 0, 2**20)
    last = "…" if end is None else text(end, "truncate")
    if len(given) <= most:
        return given
    kept = given[: max(0, most - len(last))]
    return rendering.build_text(kept) + last


def _join(rendering: Rendering, value: object, separator: object, attribute: object) -> str:
    between = "" if separator is None else text(separator, "join")
    items = _picked(items_of(rendering, value, "join"), attribute, "join")
    parts = [spell(rendering, one) for one in items]
    rendering.build(sum(map(len, parts)) + len(between) * max(0, len(parts) - 1))
    return between.join(parts)


def _length(_: Rendering, value: object) -> int:
    if isinstance(value, str | list | dict | range):
        return len(value)
    raise RenderError(f"length works on text, a list or an object, and got {kind_of(value)}.")


def _first(_: Rendering, value: object) -> object:
    return _at(value, 0, "first")


def _last(_: Rendering, value: object) -> object:
    return _at(value, -1, "last")


def _at(value: object, place: int, what: str) -> object:
    if not isinstance(value, str | list | range):
        raise RenderError(f"{what} works on text or a list, and got {kind_of(value)}.")
    if not value:
        raise MissingFieldError(f"{what} is not there: the list is empty.")
    return value[place]


def _to_int(_: Rendering, value: object, otherwise: object) -> object:
    return _to_number(int, "int", value, otherwise)


def _to_float(_: Rendering, value: object, otherwise: object) -> object:
    return _to_number(float, "float", value, otherwise)


def _to_number(
    make: Callable[[Any], int | float], what: str, value: object, otherwise: object
) -> object:
    try:
        if type(value) is str:
            if len(value) > _LONGEST_NUMBER:
                raise RenderError(f"{what} reads at most {_LONGEST_NUMBER} letters, and got more.")
            return number(make(value), what)
        if isinstance(value, bool):
            return make(value)
        return number(make(number(value, what)), what)
    except (ValueError, OverflowError):
        if otherwise is not None:
            return otherwise
        raise RenderError(f"{what} got text that is no number.") from None


def _round(_: Rendering, value: object, precision: object) -> int | float:
    given = number(value, "round")
    if precision is None:
        return round(given)
    return round(given, whole(precision, "round", -_MOST_DIGITS, _MOST_DIGITS))


def _fixed(_: Rendering, value: object, digits: object) -> str:
    places = 2 if digits is None else whole(digits, "fixed", 0, _MOST_DIGITS)
    given = number(value, "fixed")
    try:
        return f"{given:.{places}f}"
    except OverflowError:
        raise RenderError("fixed got a number that is too large.") from None


def _absolute(_: Rendering, value: object) -> int | float:
    return abs(number(value, "abs"))


def _sum(rendering: Rendering, value: object, attribute: object, start: object) -> int | float:
    total = number(0 if start is None else start, "sum")
    for one in _picked(items_of(rendering, value, "sum"), attribute, "sum"):
        total = number(total + number(one, "sum"), "sum")
    return total


def _map(rendering: Rendering, value: object, attribute: object, otherwise: object) -> list[Any]:
    items = items_of(rendering, value, "map")
    rendering.build_list(len(items))
    if otherwise is None:
        return _picked(items, attribute, "map")
    name = text(attribute, "map")
    return [one.get(name, otherwise) if type(one) is dict else otherwise for one in items]


def _selected(*, wanted: bool) -> Callable[..., list[Any]]:
    what = "select" if wanted else "reject"

    def apply(rendering: Rendering, value: object, attribute: object, equals: object) -> list[Any]:
        items = items_of(rendering, value, what)
        rendering.build_list(len(items))
        name = text(attribute, what)
        return [one for one in items if _fits(rendering, one, name, equals) is wanted]

    return apply


def _fits(rendering: Rendering, value: object, name: str, equals: object) -> bool:
    if type(value) is not dict or name not in value:
        return False
    found = value[name]
    return bool(found) if equals is None else are_equal(rendering, found, equals)


def _picked(items: list[Any], attribute: object, what: str) -> list[Any]:
    if attribute is None:
        return items
    name = text(attribute, what)
    return [look_up(one, name, f"{what}(attribute={name!r}) of an element") for one in items]


def _sort(rendering: Rendering, value: object, attribute: object, reverse: object) -> list[Any]:
    items = items_of(rendering, value, "sort")
    rendering.spend(_SORTING * len(items))
    rendering.build_list(2 * len(items))
    keys = _picked(items, attribute, "sort")
    if all(type(one) is str for one in keys):
        rendering.spend(_SORTING * sum(len(one) // 64 for one in keys))
    elif not all(type(one) in {int, float} for one in keys):
        raise RenderError("sort works on numbers, or on text, and got something else among them.")
    places = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[place] for place in places]


def _unique(rendering: Rendering, value: object, attribute: object) -> list[Any]:
    items = items_of(rendering, value, "unique")
    rendering.spend(len(items))
    rendering.build_list(4 * len(items))
    keys = _picked(items, attribute, "unique")
    first: dict[tuple[type, object], Any] = {}
    for key, one in zip(keys, items, strict=True):
        if isinstance(key, str):
            rendering.read(key)
        first.setdefault((type(key), scalar(key, "unique")), one)
    return list(first.values())


def _reverse(rendering: Rendering, value: object) -> object:
    if isinstance(value, str):
        rendering.build(len(value))
        return value[::-1]
    items = items_of(rendering, value, "reverse")
    rendering.build_list(len(items))
    return items[::-1]


def _extreme(what: str, wanted: int) -> Signature:
    def apply(rendering: Rendering, value: object, attribute: object) -> object:
        items = items_of(rendering, value, what)
        if not items:
            raise MissingFieldError(f"{what} is not there: the list is empty.")
        rendering.spend(len(items))
        keys = _picked(items, attribute, what)
        best = 0
        for place in range(1, len(items)):
            if compare(rendering, keys[place], keys[best]) == wanted:
                best = place
        return items[best]

    return Signature(apply, ("attribute",))


def _listed(rendering: Rendering, value: object) -> list[Any]:
    if isinstance(value, str):
        rendering.spend(len(value))
        rendering.build(64 * len(value))
        return list(value)
    return items_of(rendering, value, "list")


def _items(rendering: Rendering, value: object) -> list[list[Any]]:
    if not isinstance(value, dict):
        raise RenderError(f"items works on an object, and got {kind_of(value)}.")
    rendering.spend(len(value))
    rendering.build_list(4 * len(value))
    return [[name, one] for name, one in value.items()]


def _as_text(rendering: Rendering, value: object) -> str:
    return rendering.build_text(spell(rendering, value))


def _as_json(rendering: Rendering, value: object) -> str:
    return rendering.build_text(written(rendering, value))


def _digest(name: str) -> Signature:
    def apply(rendering: Rendering, value: object) -> str:
        given = text(value, name)
        rendering.build(len(given))
        return hashlib.new(name, given.encode("utf-8", "surrogatepass")).hexdigest()

    return Signature(apply)


def _encode_base64(given: str) -> str:
    return base64.b64encode(given.encode("utf-8", "surrogatepass")).decode()


def _encode_url(given: str) -> str:
    return quote(given, safe="", errors="replace")


def _instant(value: object, what: str) -> datetime:
    try:
        read = datetime.fromisoformat(text(value, what)[:_LONGEST_NUMBER])
    except ValueError:
        raise RenderError(
            f"{what} reads an instant such as 2026-03-01T12:00:00Z, and got other text."
        ) from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _timestamp(_: Rendering, value: object) -> int:
    return int(_instant(value, "timestamp").timestamp())


def _date(rendering: Rendering, value: object, form: object) -> str:
    wanted = "%Y-%m-%d" if form is None else text(form, "date")
    directives = wanted.replace("%%", "").split("%")[1:]
    if len(wanted) > _LONGEST_FORMAT or any(
        not one or one[0] not in _DIRECTIVES for one in directives
    ):
        known = " ".join(f"%{one}" for one in sorted(_DIRECTIVES))
        raise RenderError(f"date takes at most {_LONGEST_FORMAT} letters with {known} in them.")
    return rendering.build_text(_instant(value, "date").strftime(wanted))


FILTERS: Mapping[str, Signature] = {
    "abs": Signature(_absolute),
    "b64encode": _enlarged(_encode_base64, 6),
    "capitalize": _changed("capitalize", str.capitalize),
    "count": Signature(_length),
    "date": Signature(_date, ("format",)),
    "e": _enlarged(html.escape, 6),
    "escape": _enlarged(html.escape, 6),
    "first": Signature(_first),
    "fixed": Signature(_fixed, ("digits",)),
    "float": Signature(_to_float, ("default",)),
    "int": Signature(_to_int, ("default",)),
    "items": Signature(_items),
    "join": Signature(_join, ("separator", "attribute")),
    "last": Signature(_last),
    "length": Signature(_length),
    "list": Signature(_listed),
    "lower": _changed("lower", str.lower),
    "map": Signature(_map, ("attribute", "default"), least=1),
    "max": _extreme("max", 1),
    "min": _extreme("min", -1),
    "reject": Signature(_selected(wanted=False), ("attribute", "equals"), least=1),
    "replace": Signature(_replace, ("old", "new", "count"), least=2),
    "reverse": Signature(_reverse),
    "round": Signature(_round, ("precision",)),
    "select": Signature(_selected(wanted=True), ("attribute", "equals"), least=1),
    "sha256": _digest("sha256"),
    "sort": Signature(_sort, ("attribute", "reverse")),
    "string": Signature(_as_text),
    "sum": Signature(_sum, ("attribute", "start")),
    "timestamp": Signature(_timestamp),
    "title": _changed("title", str.title),
    "tojson": Signature(_as_json),
    "trim": _changed("trim", str.strip),
    "truncate": Signature(_truncate, ("length", "end")),
    "unique": Signature(_unique, ("attribute",)),
    "upper": _changed("upper", str.upper),
    "urlencode": _enlarged(_encode_url, 12),
}
"""Besides `default`, which looks at whether there is a value at all."""
