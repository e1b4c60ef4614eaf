"""The table of tools: each operation is one to read by, to suggest, to mutate, or left out."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from redrive.web.route import Route
from redrive.web.table import LEFT_OUT as WITHOUT_ROUTE
from redrive.web.table import ROUTES

__all__ = [
    "LEFT_OUT",
    "MUTATING",
    "PLACE",
    "READING",
    "REVEALING",
    "ROUTE_OF",
    "SUGGEST",
    "TELLING",
    "Kind",
    "Tool",
    "tools",
]

SUGGEST = "suggest_"
PLACE = re.compile(r"{(\w+)(?::(\w+))?}")
ROUTE_OF = {one.operation: one for one in ROUTES}

MUTATING = (
    *("replay", "resolve", "reopen", "delete", "cancel", "reschedule", "prioritise", "edit"),
    *("start_replay", "pause_replay", "resume_replay", "cancel_replay"),
    *("pause", "resume", "override", "end_override"),
    *("open_breaker", "reset_breaker", "reset_breakers", "pause_tenant", "resume_tenant"),
    *("pause_schedule", "resume_schedule", "run_schedule", "try_service"),
)
"""What is suggested first, and carried out by its plan."""

READING = (
    *("status", "trends", "examine", "schema_version", "gates", "lanes", "tenants", "audit"),
    *("deliveries", "dead_letters", "groups", "outdated_groups", "stuck", "show", "conditions"),
    *("find_events", "show_event", "delivery_of", "events", "result", "reveal", "reveal_event"),
    *("plan_replay", "replays", "show_replay", "auto_replays", "preview_edit", "plan_backfill"),
    *("schedules", "show_schedule", "projections", "projection", "reached", "prunable"),
    *("request_log", "services", "rules", "sources", "journal", "journal_records"),
    *("preview_rule", "past_versions"),
)
"""What changes nothing; who has seen what is revealed is written down."""

REVEALING = (
    *("reveal", "reveal_event", "result", "preview_edit", "edit", "preview_rule"),
    "try_service",
)
"""What shows pieces of payloads, or is of no use without them."""

TELLING = ("payload", "text")
"""The arguments that show payloads, or look for a text in them, again and again until it fits."""

_WHOLE = "its size is that of a destination or of the log, which no plan bounds; people do it"
_ADMIN = "it needs the role admin, and an assistant operates at most"
LEFT_OUT = {
    **WITHOUT_ROUTE,
    "export_page": "payloads leave whole, and go where nobody sees; people export",
    "restore": "letters come from files, and files are with people",
    "move": _WHOLE,
    "fail_pending": _WHOLE,
    "delete_pending": _WHOLE,
    "backfill": _WHOLE,
    "drain_journal": "its size is that of a journal, which no plan bounds; what tracks drains it",
    "prune": _ADMIN,
    "recount": _ADMIN,
    "plan_erase": _ADMIN,
    "erase": _ADMIN,
    "remove_destination": _ADMIN,
    "restore_destination": _ADMIN,
    "reset_projection": _ADMIN,
    "drop_projection": _ADMIN,
    "swap_projection": _ADMIN,
    "rebuild_projection": _ADMIN,
    "cancel_rebuild": _ADMIN,
    "apply_gateway": _ADMIN,
    "save_service": _ADMIN,
    "alter_service": _ADMIN,
    "delete_service": _ADMIN,
    "save_rule": _ADMIN,
    "alter_rule": _ADMIN,
    "delete_rule": _ADMIN,
    "save_source": _ADMIN,
    "alter_source": _ADMIN,
    "delete_source": _ADMIN,
    "save_schedule": _ADMIN,
    "alter_schedule": _ADMIN,
    "delete_schedule": _ADMIN,
    "render_again": "it goes with a rule that was changed, which people do",
    "plan_gateway": "it is of use only to who applies",
    "export_gateway": "services, rules, sources and schedules tell the same, one by one",
    "tokens": "who may is for people to decide, and to know",
    "create_token": "as above",
    "revoke_token": "as above",
    "secrets": "who is let in where is for people to decide, and to know",
    "set_secret": "as above, and what an assistant is told is kept by others",
    "rotate_secrets": _ADMIN,
    "delete_secret": _ADMIN,
    "encryption": _ADMIN,
    "encrypt": _ADMIN,
    "decrypt": _ADMIN,
    "finish_encryption": _ADMIN,
    "publish": "programs publish what has happened; an assistant mends what became of it",
    "publish_many": "as above",
}
"""The operations without a tool, each with the reason."""

_FOR_GOOD = ("delete", "cancel", "edit", "cancel_replay")


class Kind(StrEnum):
    """What a tool does: look, say what could be done, or do it."""

    READ = "read"
    SUGGEST = "suggest"
    MUTATE = "mutate"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool; `schema` is of its arguments, and `is_for_good` says that it cannot be undone."""

    name: str
    kind: Kind
    operation: str
    about: str
    schema: dict[str, Any]
    is_for_good: bool = False


def tools(*, may_operate: bool, may_reveal: bool) -> dict[str, Tool]:
    """Return the tools there are, by name, where so much is allowed."""
    found = [_reading(ROUTE_OF[name]) for name in READING if may_reveal or name not in REVEALING]
    for name in MUTATING:
        if may_reveal or name not in REVEALING:
            found.append(_suggesting(ROUTE_OF[name]))
            if may_operate:
                found.append(_mutating(ROUTE_OF[name]))
    if not may_reveal:
        for one in found:
            _take_away_telling(one.schema)
    return {one.name: one for one in found}


def _take_away_telling(schema: dict[str, Any]) -> None:
    """Take the arguments away that show what events carry, or let one guess at it."""
    for part in (schema, *schema.get("$defs", {}).values()):
        for name in TELLING:
            part.get("properties", {}).pop(name, None)


def _reading(route: Route) -> Tool:
    schema = _schema(route)
    return Tool(
        name=route.operation,
        kind=Kind.READ,
        operation=route.operation,
        about=_about(route),
        schema=schema,
    )


def _suggesting(route: Route) -> Tool:
    schema = _schema(route)
    schema["required"] = sorted({*schema.get("required", ()), "why"})
    return Tool(
        name=f"{SUGGEST}{route.operation}",
        kind=Kind.SUGGEST,
        operation=route.operation,
        about=f"Suggest this, which changes nothing and returns a plan: {_about(route)}",
        schema=schema,
    )


def _mutating(route: Route) -> Tool:
    return Tool(
        name=route.operation,
        kind=Kind.MUTATE,
        operation=route.operation,
        about=f"Carry out a plan of {SUGGEST}{route.operation}, once: {_about(route)}",
        schema={
            "type": "object",
            "properties": {
                "plan": {"type": "string", "description": f"Of {SUGGEST}{route.operation}."}
            },
            "required": ["plan"],
            "additionalProperties": False,
        },
        is_for_good=route.operation in _FOR_GOOD,
    )


def _about(route: Route) -> str:
    return " ".join((route.endpoint.__doc__ or "").split())


def _schema(route: Route) -> dict[str, Any]:
    """Return what a route takes in its path, and in its query or body, as one object."""
    whole = msgspec.json.schema(route.given, schema_hook=lambda _: {})
    parts: dict[str, Any] = whole.get("$defs", {})
    schema: dict[str, Any] = parts.pop(whole["$ref"].rpartition("/")[2])
    places = {
        name: {"type": "integer", "minimum": 1} if kind == "int" else {"type": "string"}
        for name, kind in PLACE.findall(route.path)
    }
    schema["properties"] = {**places, **schema.get("properties", {})}
    schema["required"] = [*places, *schema.get("required", ())]
    return {**schema, "$defs": parts} if parts else schema
