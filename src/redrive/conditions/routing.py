"""Routing: who gets an event, by the conditions of the rules that are about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from redrive.conditions.condition import compile_condition
from redrive.errors import ConditionError, ConfigurationError
from redrive.model.destination import Routes
from redrive.model.event import Event
from redrive.model.rule import RuleRoute

__all__ = ["Skipped", "fulfils", "recipients"]

_log = logging.getLogger("redrive")

Skipped = Callable[[RuleRoute, Event[msgspec.Raw], str], None]
"""Is told which rule passes an event by because its condition fails, and why."""


def _unheard(_: RuleRoute, __: Event[msgspec.Raw], ___: str) -> None:
    """Leave it at the log."""


def recipients(
    routes: Routes, event: Event[msgspec.Raw], skipped: Skipped = _unheard
) -> tuple[str, ...]:
    """Return who gets an event: those it names, or those that want it; sorted."""
    if event.to:
        return event.to
    names, conditional = routes.found_for(event.type, event.tenant)
    return routes.recipients(event, partial(fulfils, skipped=skipped)) if conditional else names


def fulfils(
    route: RuleRoute | None, event: Event[msgspec.Raw], *, skipped: Skipped = _unheard
) -> bool:
    """Tell whether an event goes by a rule.

    Where its condition fails, the rule has said whether the event is held for a person, as the
    worker finds the same, or passed by. Where the condition cannot be read here, as for want of an
    extra, the worker decides.
    """
    if route is None or not route.condition:
        return True
    try:
        return compile_condition(route.condition).holds(event)
    except ConditionError as error:
        if route.on_error == "skip":
            _log.warning("The rule %s passes by event %s: %s", route.pin, event.id, error)
            skipped(route, event, str(error))
        return route.on_error == "hold"
    except ConfigurationError:
        return True
