"""Conditions: an expression that says of an event whether it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from redrive.conditions.grammar import Evaluate, Grammar
from redrive.conditions.values import kind_of
from redrive.errors import ConditionError, ConfigurationError
from redrive.model.event import Event, NewEvent

__all__ = ["CONDITION_NAMES", "Condition", "compile_condition"]

_KEPT = 4_096


class _Facts:
    """What is known of one event, its payload read at most once and only if it is asked for."""

    __slots__ = ("_payload", "event")

    def __init__(self, event: Event[Any] | NewEvent) -> None:
        self.event = event
        self._payload: object = msgspec.UNSET

    @property
    def payload(self) -> object:
        if self._payload is msgspec.UNSET:
            given = self.event.payload
            is_written = isinstance(given, msgspec.Raw)
            self._payload = msgspec.json.decode(given) if is_written else given
        return self._payload


_NAMES = {
    "headers": lambda facts: facts.event.headers,
    "key": lambda facts: facts.event.key,
    "payload": lambda facts: facts.payload,
    "severity": lambda facts: str(facts.event.severity),
    "source": lambda facts: facts.event.source,
    "tenant": lambda facts: facts.event.tenant,
    "type": lambda facts: facts.event.type,
}
CONDITION_NAMES = tuple(_NAMES)


class Condition:
    """A condition that was read and checked, to be asked as often as wanted, on any thread."""

    __slots__ = ("_decide", "needs_payload", "text")

    def __init__(self, text: str, decide: Evaluate, *, needs_payload: bool) -> None:
        self.text = text
        self.needs_payload = needs_payload
        self._decide = decide

    def holds(self, event: Event[Any] | NewEvent) -> bool:
        """Tell whether the event is wanted.

        The payload is read if the condition asks for it: decoded, or as `msgspec.Raw`. A field
        that is not there, or a comparison that means nothing, raises `ConditionError`.
        """
        held = self._decide(_Facts(event))
        if held is True or held is False:
            return held
        raise ConditionError(
            f"The condition gives {kind_of(held)}, neither true nor false; compare it, as in "
            "payload.count > 0."
        )

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


def compile_condition(text: object) -> Condition:
    """Return a condition, or say what is wrong with it and at which letter.

    The same text is compiled once.

    >>> condition = compile_condition('type == "order.paid" and payload.amount >= 100')
    >>> condition.holds(NewEvent(type="order.paid", payload={"amount": 250}))
    True
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            f"A condition is a {type(text).__name__}; write it as a string, such as "
            "'payload.amount > 100'."
        )
    return _compile(text)


@lru_cache(maxsize=_KEPT)
def _compile(text: str) -> Condition:
    known: Mapping[str, Any] = _NAMES
    grammar = Grammar(text, known)
    decide = grammar.read()
    return Condition(text, decide, needs_payload="payload" in grammar.names)
