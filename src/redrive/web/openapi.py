"""The OpenAPI document, from the table of routes, and a page to read it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.policies.access import NEEDS
from redrive.web.problem import MEDIA_TYPE, Problem
from redrive.web.route import Route
from redrive.web.table import ROUTES

__all__ = ["PREFIX", "STYLE", "document", "page"]

PREFIX = "/api/v1"
_REFERENCES = "#/components/schemas/{name}"
_DURATION = {
    "type": "string",
    "pattern": r"^-?P(\d+D|(\d+D)?T\d+(\.\d+)?S)$",
    "description": "An ISO 8601 duration, whose seconds may have a fraction, such as PT0.25S.",
}
"""The `duration` of JSON Schema has no fractions."""
_PLACE = re.compile(r"{(\w+)(?::(\w+))?}")
_PROBLEM = {
    "description": "It was not done; the problem says why, and what to do.",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_ABOUT = (
    "Publish events, look at what became of them, and act on it. Every answer that is not 200 is a "
    "problem with a sentence of advice. Lists have a `next_cursor`, to be given as `cursor`."
)


def document(*, version: str, root: str = "") -> dict[str, Any]:
    """Return the document: OpenAPI 3.1, whose schemas come from the types themselves."""
    kinds = [one.result for one in ROUTES] + [one.given for one in ROUTES] + [Problem]
    schemas, components = msgspec.json.schema_components(
        kinds, schema_hook=_any, ref_template=_REFERENCES
    )
    for component in components.values():
        _say_how_durations_look(component)
    results, given = schemas[: len(ROUTES)], schemas[len(ROUTES) : 2 * len(ROUTES)]
    paths: dict[str, dict[str, Any]] = {}
    for route, answer, taken in zip(ROUTES, results, given, strict=True):
        path = _PLACE.sub(r"{\1}", f"{PREFIX}{route.path}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(
            route, answer, taken, components
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Redrive", "version": version, "description": _ABOUT},
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _say_how_durations_look(schema: Any) -> None:  # noqa: ANN401 - any part of a schema
    if isinstance(schema, dict):
        if schema.get("format") == "duration":
            del schema["format"]
            schema.update(_DURATION)
        for part in schema.values():
            _say_how_durations_look(part)
    elif isinstance(schema, list):
        for part in schema:
            _say_how_durations_look(part)


def _any(_: type) -> dict[str, Any]:
    return {}


def _operation(
    route: Route, answer: dict[str, Any], given: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    need = NEEDS[route.operation]
    told = (route.endpoint.__doc__ or "").strip()
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{route.operation}",
        "tags": [route.path.split("/")[1]],
        "summary": route.summary,
        "description": f"{told}\n\nNeeds the role `{need.role}`.",
        "parameters": list(_places(route)),
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            "default": _PROBLEM,
        },
    }
    if route.is_unsafe:
        content: dict[str, Any] = {"schema": given}
        if route.example is not None:
            content["example"] = route.example
        schema = components[given["$ref"].rpartition("/")[2]]
        operation["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {"application/json": content},
        }
    else:
        operation["parameters"] += _parameters(components[given["$ref"].rpartition("/")[2]])
    if route.operation == "publish":
        operation["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key from the same source stores once.",
                "schema": {"type": "string", "maxLength": 200},
            }
        )
    if route.operation == "edit":
        operation["parameters"].append(
            {
                "name": "If-Match",
                "in": "header",
                "description": "The ETag of the story that was looked at.",
                "schema": {"type": "string"},
            }
        )
    return operation


def _places(route: Route) -> Sequence[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 1} if kind == "int" else {"type": "string"},
        }
        for name, kind in _PLACE.findall(route.path)
    ]


def _parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": one}
        for name, one in schema.get("properties", {}).items()
    ]


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: CanvasText; background: Canvas; color-scheme: light dark; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid color-mix(in srgb, CanvasText 20%, transparent); }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border-radius: .4rem;
  background: color-mix(in srgb, CanvasText 7%, transparent); }
summary { cursor: pointer; padding: .3rem 0; }
.method { display: inline-block; min-width: 3.5rem; font-weight: 600; }
.role { opacity: .7; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
""".strip()


def page(told: dict[str, Any], *, root: str = "") -> str:
    """Return the document as a page for people: no script, nothing from elsewhere."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_shown(method, path, operation))
    parts = [
        f"<h2 id={tag!r}>{html.escape(tag)}</h2>{''.join(rows)}" for tag, rows in by_tag.items()
    ]
    schemas = [
        f"<details id={name!r}><summary><code>{html.escape(name)}</code></summary>"
        f"{_pre(schema)}</details>"
        for name, schema in told["components"]["schemas"].items()
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>Redrive API</title><link rel=stylesheet href='{html.escape(root)}/docs/style.css'>"
        f"<h1>Redrive API</h1><p>{html.escape(told['info']['description'])}</p>"
        f"<p>The same for programs: <a href='{html.escape(root)}/openapi.json'>openapi.json</a></p>"
        f"{''.join(parts)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _shown(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(one['name'])}</code><td>{one['in']}"
        f"<td><code>{html.escape(_written(one['schema']))}</code>"
        for one in operation["parameters"]
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    taken = f"<p>Body: {_linked(body['schema'])}</p>" if body else ""
    example = _pre(body["example"]) if "example" in body else ""
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    words = "".join(
        f"<p>{html.escape(' '.join(part.split()))}</p>"
        for part in operation["description"].split("\n\n")
    )
    return (
        f"<details><summary><span class=method>{method.upper()}</span> "
        f"<code>{html.escape(path)}</code> <span class=role>{html.escape(operation['summary'])}"
        f"</span></summary>{words}<table>{rows}</table>{taken}{example}"
        f"<p>Answer: {_linked(answer)}</p></details>"
    )


def _linked(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return f"<code>{html.escape(_written(schema))}</code>"
    return f"<a href='#{html.escape(name)}'><code>{html.escape(name)}</code></a>"


def _pre(value: object) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{html.escape(text)}</pre>"


def _written(schema: object) -> str:
    return msgspec.json.encode(schema).decode()
