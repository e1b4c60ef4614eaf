"""Shaping: gives deliveries the shape of the version of the rule that is pinned to them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any
from urllib.parse import quote

import msgspec

from redrive.app.gateway.rule import ReadRule, read_rule
from redrive.conditions import compile_condition
from redrive.errors import ConditionError, RedriveError, RenderError
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import Fault, Faulted, Nature, Succeeded
from redrive.model.recipient import split_pin
from redrive.store import Services
from redrive.templates import Template, event_names
from redrive.transport import Shape
from redrive.transports.http.headers import is_header_value

__all__ = ["Shaper", "rendered"]

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
        name, _ = split_pin(pin)
        for kept in await self._store.rule_versions([pin]):
            rule = self._rules[pin] = read_rule(name, kept.document)
            if len(self._rules) > _MOST_KEPT:
                self._rules.popitem(last=False)
            return rule
        raise RenderError("this store has no such version.")


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
