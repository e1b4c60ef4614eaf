"""Shaping: gives deliveries the shape of the version of the rule that is pinned to them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from redrive.app.gateway.rule import ReadRule, read_rule
from redrive.conditions import compile_condition
from redrive.errors import ConditionError, RedriveError, RenderError
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import Fault, Faulted, Nature, Succeeded
from redrive.model.recipient import split_pin
from redrive.model.rule import Stored
from redrive.store import Services
from redrive.templates import Template, event_names
from redrive.transport import Shape
from redrive.transports.http.headers import is_header_value

__all__ = ["Shaper", "rendered"]


T = TypeVar("T")
_log = logging.getLogger("redrive")

_PASSED_BY = Succeeded(code="passed by", is_sent=False)
"""What a publisher would have passed by, had it been able to decide the condition."""
_MOST_KEPT = 20_000
_OF_PATHS = "/?&=:@!$'()*+,;~%-._"
"""What stays in a rendered path as it is; blanks and the like are escaped."""


class Shaper:
    """Reads versions of rules once: a version never changes."""

    def __init__(self, store: Services) -> None:
        self._store = store
        self._rules: OrderedDict[str, ReadRule] = OrderedDict()
        self._documents: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def learn(self, rules: Sequence[Stored]) -> None:
        """Keep documents of rules that somebody has read anyway, until they are needed."""
        for one in rules:
            if one.pin not in self._rules:
                _keep(self._documents, one.pin, one.document)

    async def shape(self, leased: Leased) -> Shape | Faulted | Succeeded:
        """Return the shape of a delivery, or why it can have none."""
        rule: ReadRule | None = None
        try:
            rule = self._rules.get(leased.rule) or await self._read(leased.rule)
            return rendered(rule, leased.event)
        except RenderError as error:
            return _refused("template", f"The rule {leased.rule} cannot be rendered: {error}")
        except ConditionError as error:
            if rule is not None and rule.on_error == "skip":
                _log.warning(
                    "The rule %s passes by event %s: %s", leased.rule, leased.event.id, error
                )
                return _PASSED_BY
            return _refused(
                "condition", f"The condition of the rule {leased.rule} cannot be decided: {error}"
            )
        except NotFulfilled:
            return _PASSED_BY
        except RedriveError as error:
            return _refused("rule", f"The rule {leased.rule} cannot be carried out: {error}")

    async def _read(self, pin: str) -> ReadRule:
        document = self._documents.pop(pin, None)
        if document is None:
            for kept in await self._store.rule_versions([pin]):
                document = kept.document
        if document is None:
            raise RenderError("this store has no such version.")
        rule = read_rule(split_pin(pin)[0], document)
        _keep(self._rules, pin, rule)
        return rule


def _keep(kept: OrderedDict[str, T], pin: str, value: T) -> None:
    kept[pin] = value
    if len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


class NotFulfilled(Exception):  # noqa: N818 - it is no error of anybody
    """The event does not fulfil the condition: its publisher could not tell."""


def rendered(rule: ReadRule, event: Event[Any]) -> Shape:
    """Return the shape that a rule gives an event; raises if it gives it none."""
    if rule.condition and not compile_condition(rule.condition).holds(event):
        raise NotFulfilled
    names = event_names(event)
    body = None if rule.body is None else _render("the body", rule.body, names)
    is_text = rule.body is not None and rule.body.form == "text"
    return Shape(
        method=rule.method,
        path="" if rule.path is None else _path(_render("path", rule.path, names)),
        headers={
            name: _header(name, _render(f"headers.{name}", one, names))
            for name, one in rule.headers
        },
        content_type=rule.content_type or ("text/plain; charset=utf-8" if is_text else ""),
        body=None
        if rule.body is None
        else (str(body).encode() if is_text else msgspec.json.encode(body)),
    )


def _render(what: str, template: Template, names: dict[str, object]) -> Any:  # noqa: ANN401 - JSON
    try:
        return template.render(names)
    except RenderError as error:
        raise error.about(what) from error


def _header(name: str, value: str) -> str:
    if not is_header_value(value):
        raise RenderError(f"headers.{name}: it has a character that no header may hold.")
    return value


def _path(path: str) -> str:
    return quote(path, safe=_OF_PATHS)


def _refused(code: str, message: str) -> Faulted:
    fault = Fault(error_class="RuleError", message=message, rule=code, code=code)
    return Faulted(fault=fault, nature=Nature.TERMINAL)
