"""Documents of rules: every key checked, and made into routes and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast, get_args

import msgspec

from redrive.app.gateway.secrets import refuse_written_headers, refuse_written_url
from redrive.conditions import compile_condition
from redrive.errors import ConfigurationError, RedriveError, refuse_unknown
from redrive.model.destination import check_destination_name
from redrive.model.rule import RuleRoute, Stored
from redrive.templates import Form, Template, compile_template
from redrive.transports.http.headers import check_headers
from redrive.transports.http.options import Method

__all__ = ["OF_A_REQUEST", "ReadRule", "read_rule", "route_of"]

OF_A_REQUEST = ("content_type", "method", "path", "headers")
"""Keys that say of a request more than its body."""

_KEYS = (
    "service",
    "event",
    "enabled",
    "description",
    "condition",
    "on_error",
    "template",
    "text",
    *OF_A_REQUEST,
)
_ON_ERROR = ("hold", "skip")


class ReadRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as its document says, its templates and its condition read."""

    name: str
    service: str
    patterns: tuple[str, ...]
    is_enabled: bool
    condition: str = ""
    on_error: str = "hold"
    body: Template | None = None
    content_type: str = ""
    method: str = ""
    path: Template | None = None
    headers: tuple[tuple[str, Template], ...] = ()

    def route(self, version: int) -> RuleRoute:
        """Return what routing knows of it."""
        return RuleRoute(
            rule=self.name,
            version=version,
            patterns=self.patterns,
            condition=self.condition,
            on_error=cast("Any", self.on_error),
        )


def read_rule(name: str, document: Mapping[str, object]) -> ReadRule:
    """Read a document; a mistake in it names the rule and the key."""
    try:
        return _read(name, document)
    except RedriveError as error:
        raise ConfigurationError(f"The rule {name!r}: {error}") from error


def _read(name: str, document: Mapping[str, object]) -> ReadRule:
    check_destination_name(name)
    refuse_unknown(document, _KEYS, what="key of a rule")
    service = _text("service", document.get("service"), 'service = "crm"')
    event = document.get("event")
    patterns = (event,) if isinstance(event, str) else event
    if not isinstance(patterns, list | tuple) or not patterns:
        raise ConfigurationError(
            f'event is {event!r}; write which types it is about, such as event = "order.*".'
        )
    if "template" in document and "text" in document:
        raise ConfigurationError(
            "template and text are both given; write template for JSON, or text for anything else."
        )
    enabled = document.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigurationError(f"enabled is {enabled!r}; write true or false.")
    _text("description", document.get("description", ""), '"what is paid"', may_lack=True)
    on_error = document.get("on_error", "hold")
    if on_error not in _ON_ERROR:
        raise ConfigurationError(f"on_error is {on_error!r}; it is one of {', '.join(_ON_ERROR)}.")
    method = document.get("method", "")
    if method and method not in get_args(Method):
        raise ConfigurationError(
            f"method is {method!r}; it is one of {', '.join(get_args(Method))}."
        )
    path = document.get("path")
    if path is not None and (not isinstance(path, str) or not path.startswith("/")):
        raise ConfigurationError(f'path is {path!r}; it begins with a slash, such as "/orders".')
    refuse_written_url("path", path)
    refuse_written_headers("headers", document.get("headers"))
    rule = ReadRule(
        name=name,
        service=check_destination_name(service),
        patterns=tuple(patterns),
        is_enabled=enabled,
        condition=_condition(document.get("condition", "")),
        on_error=str(on_error),
        body=_body(document),
        content_type=_text(
            "content_type", document.get("content_type", ""), '"text/plain"', may_lack=True
        ),
        method=str(method),
        path=None if path is None else _compiled("path", path, form="text"),
        headers=_headers(document.get("headers", {})),
    )
    rule.route(1)  # its patterns are checked there
    return rule


def _condition(text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"condition is {text!r}; write an expression as text.")
    if text:
        with _named("condition"):
            compile_condition(text)
    return text


def _body(document: Mapping[str, object]) -> Template | None:
    if "text" in document:
        return _compiled("text", document["text"], form="text")
    if "template" in document:
        return _compiled("template", document["template"], form="structured")
    return None


def _headers(given: object) -> tuple[tuple[str, Template], ...]:
    headers = check_headers(cast("Any", given))
    return tuple(
        (name, _compiled(f"headers.{name}", value, form="text")) for name, value in headers.items()
    )


def _compiled(name: str, source: object, *, form: Form) -> Template:
    with _named(name):
        return compile_template(source, form=form)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Have an error say of which key it is."""
    try:
        yield
    except ConfigurationError as error:
        raise error.about(key) from error


def _text(name: str, value: object, example: str, *, may_lack: bool = False) -> str:
    if not isinstance(value, str) or not (value or may_lack):
        raise ConfigurationError(f"{name} is {value!r}; write text, such as {example}.")
    return value


def route_of(rule: Stored) -> RuleRoute | None:
    """Return what routing knows of a stored rule; nothing of one that is disabled."""
    read = read_rule(rule.name, rule.document)
    return read.route(rule.version) if read.is_enabled else None
