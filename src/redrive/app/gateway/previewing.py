"""What a rule makes of an event, without sending it."""

from __future__ import annotations

from typing import Any

import msgspec

from redrive.app.gateway.rule import ReadRule
from redrive.app.gateway.service import ReadService
from redrive.app.gateway.shaping import NotFulfilled, rendered
from redrive.conditions import compile_condition
from redrive.errors import ConditionError, RenderError
from redrive.model.event import Event
from redrive.operations.drafting import Decide, Preview, Previewed
from redrive.transport import Shape
from redrive.transports.envelope import encode_event
from redrive.transports.http import HttpBlueprint

__all__ = ["decider", "previewer"]


def decider(service: ReadService, rule: ReadRule) -> Decide:
    """Return what tells whether a rule would give an event to its service."""
    destination = service.destination(1, (rule.route(1),))
    condition = compile_condition(rule.condition) if rule.condition else None

    def decide(event: Event[msgspec.Raw]) -> bool:
        is_meant = bool(destination.recipients(event.type, event.tenant))
        return is_meant and (condition is None or condition.holds(event))

    return decide


def previewer(service: ReadService, rule: ReadRule, *, version: int) -> Preview:
    """Return what tells of events what the rule makes of them."""
    destination = service.destination(1, (rule.route(max(1, version)),))

    def preview(event: Event[msgspec.Raw]) -> Previewed:
        if not destination.serves(event.tenant):
            whose = "nobody" if event.tenant is None else repr(event.tenant)
            return _none(
                event,
                f"It belongs to {whose}, and the service to the tenant {destination.tenant!r}.",
            )
        if not destination.recipients(event.type, event.tenant):
            return _none(event, f"The rule is about {', '.join(rule.patterns)}.")
        try:
            return _sent(service, rendered(rule, event), event)
        except NotFulfilled:
            return _none(event, "It does not fulfil the condition.")
        except ConditionError as error:
            why = f"The condition cannot be decided: {error}"
            return _none(event, why, is_held=rule.on_error == "hold")
        except RenderError as error:
            return _none(event, f"It cannot be rendered: {error}", is_held=True)

    return preview


def _none(event: Event[msgspec.Raw], why: str, *, is_held: bool = False) -> Previewed:
    return Previewed(
        event_id=event.id,
        event_type=event.type,
        published_at=event.published_at,
        verdict="held" if is_held else "passed by",
        why=why,
    )


def _sent(service: ReadService, shape: Shape, event: Event[msgspec.Raw]) -> Previewed:
    way, known = service.way, dict[str, Any]()
    body = shape.body
    if isinstance(way, HttpBlueprint):
        of_service = way.headers.get("content-type", "")
        content_type = shape.content_type or of_service
        known = {
            "method": shape.method or way.method,
            "url": service.written_url,
            "path": shape.path,
            "headers": {
                **shape.headers,
                **({"content-type": content_type} if content_type else {}),
            },
        }
        body = encode_event(event, way.body) if body is None else body
    body = bytes(event.payload) if body is None else body
    return Previewed(
        event_id=event.id,
        event_type=event.type,
        published_at=event.published_at,
        verdict="sent",
        body=body.decode("utf-8", "replace"),
        **known,
    )
