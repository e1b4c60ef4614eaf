"""Grammar: the words of a condition made into one function, part by part.

condition  = all { "or" all }
all        = part { "and" part }
part       = "not" part | "exists" field | comparison
comparison = value [ operator value ]
value      = field | text | number | "true" | "false" | "null" | list | "(" condition ")"
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from redrive.conditions.matching import Patterns
from redrive.conditions.values import (
    compare,
    contains,
    is_equal,
    kind_of,
    look_up,
    searchable,
    within,
)
from redrive.conditions.words import Word, refuse, words_of
from redrive.errors import ConditionError, ConfigurationError, refuse_unknown

__all__ = ["Evaluate", "Grammar"]

Known = Mapping[str, Callable[[Any], object]]
Evaluate = Callable[[Any], Any]

_DEEPEST = 20
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_OPERATORS = ("contains", "ends", "in", "matches", "starts")
_RESERVED = frozenset({*_CONSTANTS, *_OPERATORS, "and", "exists", "not", "or"})
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Grammar:
    """Reads one condition; `known` says how each name is read from what it is asked of."""

    def __init__(self, condition: str, known: Known) -> None:
        self._words = words_of(condition)
        self._at = 0
        self._depth = 0
        self._known = known
        self._patterns = Patterns()
        self.names: set[str] = set()
        """Those that the condition asks for, once it was read."""

    def read(self) -> Evaluate:
        """Return what decides the condition."""
        if self._next.kind == "end":
            refuse(1, 'it is empty; leave it out, or write one such as type == "order.paid".')
        decide = self._any()
        if self._next.kind != "end":
            refuse(self._next.place, f"{_shown(self._next)} cannot follow here; join by and, or.")
        return decide

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _take(self) -> Word:
        word = self._next
        self._at += word.kind != "end"
        return word

    def _is(self, kind: str, *values: str) -> bool:
        return self._next.kind == kind and self._next.value in values

    def _took(self, kind: str, value: str) -> bool:
        taken = self._is(kind, value)
        self._at += taken
        return taken

    def _any(self) -> Evaluate:
        self._depth += 1
        if self._depth > _DEEPEST:
            refuse(self._next.place, f"it is nested more than {_DEEPEST} levels deep.")
        parts = [self._all()]
        while self._took("name", "or"):
            parts.append(self._all())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _either(parts)

    def _all(self) -> Evaluate:
        parts = [self._part()]
        while self._took("name", "and"):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else _every(parts)

    def _part(self) -> Evaluate:
        turns = 0
        while self._took("name", "not"):
            turns += 1
        if self._took("name", "exists"):
            read = self._field()
            decide: Evaluate = _exists(read)
        else:
            decide = self._comparison()
        return _no(decide) if turns % 2 else decide if not turns else _yes(decide)

    def _comparison(self) -> Evaluate:
        left = self._value()
        word = self._next
        if word.kind == "sign" and word.value in {"==", "!=", *_ORDERS}:
            self._take()
            return _compared(str(word.value), left, self._value())
        negated = self._is("name", "not") and self._words[self._at + 1][:2] == ("name", "in")
        self._at += negated
        word = self._next
        if word.kind != "name" or word.value not in _OPERATORS:
            return left
        self._take()
        decide = self._named(str(word.value), left)
        return _no(decide) if negated else decide

    def _named(self, name: str, left: Evaluate) -> Evaluate:
        if name == "matches":
            return self._matching(left)
        right = self._value()
        match name:
            case "in":
                return lambda facts: within(left(facts), right(facts))
            case "contains":
                return lambda facts: contains(left(facts), right(facts))
            case "starts":
                return lambda facts: searchable("starts", left(facts)).startswith(
                    searchable("starts", right(facts))
                )
        return lambda facts: searchable("ends", left(facts)).endswith(
            searchable("ends", right(facts))
        )

    def _matching(self, left: Evaluate) -> Evaluate:
        word = self._take()
        if word.kind != "text":
            refuse(word.place, 'matches is followed by a pattern in quotes, such as "^A[0-9]+$".')
        try:
            fits = self._patterns.compile(word.value)
        except ConfigurationError as error:
            refuse(word.place, str(error))
        return lambda facts: fits(left(facts))

    def _value(self) -> Evaluate:
        word = self._next
        match word.kind, word.value:
            case "text" | "number", value:
                self._take()
                return lambda _: value
            case "sign", "-":
                self._take()
                number = self._take()
                if number.kind != "number":
                    refuse(number.place, "- stands before a number only.")
                return lambda _: -number.value
            case "sign", "[":
                items = self._list()
                return lambda _: items
            case "sign", "(":
                self._take()
                inner = self._any()
                if not self._took("sign", ")"):
                    refuse(self._next.place, f"( at letter {word.place} is not closed.")
                return inner
            case "name", ("true" | "false" | "null") as constant:
                self._take()
                return lambda _: _CONSTANTS[constant]
        return self._field()

    def _list(self) -> list[object]:
        opened = self._take()
        items: list[object] = []
        while not self._took("sign", "]"):
            if items and not self._took("sign", ","):
                refuse(self._next.place, f"[ at letter {opened.place} needs , or ] here.")
            items.append(self._constant())
        return items

    def _constant(self) -> object:
        word = self._next
        is_negative = self._took("sign", "-")
        word = self._take()
        if word.kind == "number":
            return -word.value if is_negative else word.value
        if word.kind == "text" and not is_negative:
            return word.value
        if word.kind == "name" and word.value in _CONSTANTS and not is_negative:
            return _CONSTANTS[word.value]
        return refuse(word.place, "a list holds texts, numbers, true, false and null.")

    def _field(self) -> Evaluate:
        word = self._take()
        if word.kind != "name" or word.value in _RESERVED:
            self._refuse_value(word)
        name = str(word.value)
        if name not in self._known:
            try:
                refuse_unknown((name,), sorted(self._known), what="name")
            except ConfigurationError as error:
                refuse(word.place, f"{error} Texts stand in quotes.")
        self.names.add(name)
        read, fields, steps = self._known[name], *self._path(name)
        if not fields:
            return read
        return lambda facts: look_up(read(facts), fields, steps)

    def _path(self, name: str) -> tuple[tuple[str | int, ...], tuple[str, ...]]:
        fields: list[str | int] = []
        steps: list[str] = []
        while self._is("sign", ".", "["):
            sign, word = self._take(), self._take()
            if sign.value == ".":
                if word.kind != "name":
                    refuse(word.place, 'a field follows the dot; write ["…"] for an unusual name.')
                if word.value.startswith("_"):
                    refuse(word.place, f'write ["{word.value}"] for a field that begins with _.')
                name = f"{name}.{word.value}"
            else:
                if word.kind not in {"text", "number"} or isinstance(word.value, float):
                    refuse(word.place, "a field's name in quotes or a place stands between [ ].")
                if not self._took("sign", "]"):
                    refuse(self._next.place, f"[ at letter {sign.place} is not closed.")
                name = f"{name}[{word.value!r}]"
            fields.append(word.value)
            steps.append(name)
        return tuple(fields), tuple(steps)

    def _refuse_value(self, word: Word) -> NoReturn:
        refuse(word.place, f"a field, a text or a number is missing before {_shown(word)}.")


def _shown(word: Word) -> str:
    return "the end" if word.kind == "end" else repr(word.value)


def _truth(value: object) -> bool:
    if value is True or value is False:
        return value
    raise ConditionError(
        f"{kind_of(value)} is neither true nor false; compare it, as in payload.count > 0."
    )


def _every(parts: Sequence[Evaluate]) -> Evaluate:
    return lambda facts: all(_truth(part(facts)) for part in parts)


def _either(parts: Sequence[Evaluate]) -> Evaluate:
    return lambda facts: any(_truth(part(facts)) for part in parts)


def _no(decide: Evaluate) -> Evaluate:
    return lambda facts: not _truth(decide(facts))


def _yes(decide: Evaluate) -> Evaluate:
    return lambda facts: _truth(decide(facts))


def _exists(read: Evaluate) -> Evaluate:
    def decide(facts: object) -> bool:
        try:
            return read(facts) is not None
        except ConditionError:
            return False

    return decide


def _compared(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if sign == "==":
        return lambda facts: is_equal(left(facts), right(facts))
    if sign == "!=":
        return lambda facts: not is_equal(left(facts), right(facts))
    holds = _ORDERS[sign]
    return lambda facts: compare(sign, holds, left(facts), right(facts))
