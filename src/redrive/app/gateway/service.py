"""Documents of services: every key checked, and made into a declaration with its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.app.declaration import DestinationOptions, check_health, read_options
from redrive.app.gateway.rule import OF_A_REQUEST
from redrive.app.gateway.secrets import (
    Resolve,
    placeholder,
    references_in,
    refuse_written_headers,
    refuse_written_url,
    resolved_url,
)
from redrive.app.gateway.ways import KINDS, WayKind
from redrive.clock import Clock
from redrive.errors import ConfigurationError, RedriveError, refuse_unknown
from redrive.model.destination import BY_RULES, Destination
from redrive.model.fairness import Fairness
from redrive.model.health import HealthCheck
from redrive.model.limits import Breaker, SharedRate
from redrive.model.replay import AutoReplay
from redrive.model.request_log import RequestLog
from redrive.model.retention import Keep
from redrive.model.rule import RuleRoute
from redrive.policies.retry import Proportional, Retry
from redrive.policies.terms import Terms
from redrive.sealing import check_reference
from redrive.transport import Blueprint, Shaping, Transport

if TYPE_CHECKING:
    from redrive.transports.http.wires import Wires

__all__ = ["ReadService", "check_request", "kind_of", "read_service"]

T = TypeVar("T")
_OWN = ("kind", "enabled", "description")
_TERMS = tuple(
    name
    for name in DestinationOptions.__annotations__
    if name not in ("terminal", "transient", "environments")
)
_DEFAULT_KIND = "http"


class ReadService(msgspec.Struct, frozen=True, kw_only=True):
    """A service as its document says: what the engine knows of it, and the way there."""

    name: str
    kind: str
    known: dict[str, Any]
    terms: Terms
    way: Blueprint
    is_enabled: bool
    written_url: str = ""
    """Its address as the document has it, without what that refers to."""

    def build(self, *, clock: Clock, shaping: Shaping, wires: Wires) -> Transport:
        """Return the way for one worker, over wires that all its ways share."""
        return KINDS[self.kind].build(self.way, self.terms, clock, shaping, wires)

    def destination(self, version: int, rules: tuple[RuleRoute, ...]) -> Destination:
        """Return the service as a destination."""
        return Destination(
            name=self.name,
            patterns=BY_RULES,
            service=version,
            rules=rules,
            is_disabled=not self.is_enabled,
            **self.known,
        )


def read_service(
    name: str, document: Mapping[str, object], *, resolve: Resolve = placeholder
) -> ReadService:
    """Read a document; a mistake in it names the service and the key."""
    try:
        return _read(name, document, resolve)
    except RedriveError as error:
        raise ConfigurationError(f"The service {name!r}: {error}") from error


def _read(name: str, document: Mapping[str, object], resolve: Resolve) -> ReadService:
    given = dict(document)
    kind = kind_of(given)
    if kind not in KINDS:
        raise ConfigurationError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}.")
    way_kind: WayKind = KINDS[kind]
    refuse_unknown(given, (*_OWN, *_TERMS, *way_kind.keys), what="key of a service")
    _refuse_written(given)
    for one in references_in(given):
        check_reference(one, what="A secret")
    if way_kind.speaks_http and "url" in given:
        given["url"] = resolved_url(given["url"], resolve)
    options = {key: given[key] for key in _TERMS if key in given}
    for key, read in _READERS.items():
        if key in options:
            options[key] = read(key, options[key])
    if "profile" not in options and way_kind.has_breaker:
        options.setdefault("breaker", Breaker())
    options.setdefault("request_log", RequestLog())
    known, terms = read_options(options)
    way = way_kind.read({key: given[key] for key in way_kind.keys if key in given}, resolve)
    check_health(terms.health, known["limits"], way)
    if not isinstance(given.get("description", ""), str):
        raise ConfigurationError(f"description is {given['description']!r}; it is text.")
    service = ReadService(
        name=name,
        kind=kind,
        known=dict(known),
        terms=terms,
        way=way,
        is_enabled=_flag("enabled", given.get("enabled", True)),
        written_url=str(document.get("url", "")),
    )
    service.destination(1, ())  # what routing gets of it is checked there
    return service


def _refuse_written(given: Mapping[str, Any]) -> None:
    """Refuse secrets that are written out where anybody who may view sees them."""
    for key in ("url", "endpoint"):
        refuse_written_url(key, given.get(key))
    for key, inner in (("health", "ask"), ("auth", "oauth2")):
        table = given.get(key)
        value = table.get(inner) if isinstance(table, Mapping) else None
        if isinstance(value, Mapping):
            refuse_written_url(f"{key}.{inner}.token_url", value.get("token_url"))
        else:
            refuse_written_url(f"{key}.{inner}", value)
    refuse_written_headers("headers", given.get("headers"))


def kind_of(document: Mapping[str, object]) -> str:
    """Return the kind of a service as its document says it."""
    return str(document.get("kind", _DEFAULT_KIND))


def check_request(rule: str, document: Mapping[str, object], kind: str) -> None:
    """Refuse a rule that says what a service of this kind has no use for."""
    if kind in KINDS and not KINDS[kind].takes_requests:
        for key in OF_A_REQUEST:
            if key in document:
                raise ConfigurationError(
                    f"The rule {rule!r}: {key} is part of an HTTP request, and its service is of "
                    f"the kind {kind!r}, which takes the body alone; leave {key} out."
                )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}; write true or false.")
    return value


def _made(kind: Callable[..., T], fields: tuple[str, ...]) -> Callable[[str, object], T | None]:
    """Return what reads a table into a value."""

    def read(name: str, value: object) -> T | None:
        if value is None or value is False:
            return None
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"{name} is {value!r}; write a table, such as {name} = {{ {fields[0]} = … }}."
            )
        refuse_unknown(value, fields, what=f"key of {name}")
        try:
            return kind(**value)
        except TypeError as error:
            raise ConfigurationError(f"{name}: {error}.") from None

    return read


def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return kind.__struct_fields__


def _retry(**given: Any) -> Retry:  # noqa: ANN401 - as a document has it
    """Return a retry; a jitter that is a number is a share of the wait to either side."""
    jitter = given.get("jitter")
    if isinstance(jitter, float | int) and not isinstance(jitter, bool):
        given = {**given, "jitter": Proportional(float(jitter))}
    return Retry(**given)


def _read_retry(name: str, value: object) -> object:
    if isinstance(value, str):
        return Retry.preset(value)
    return _made(_retry, _fields(Retry))(name, value)


def _read_overrides(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {pattern: _read_retry(f"{name}.{pattern}", one) for pattern, one in value.items()}


_READERS: Mapping[str, Callable[[str, Any], object]] = {
    "retry": _read_retry,
    "retry_overrides": _read_overrides,
    "breaker": _made(Breaker, _fields(Breaker)),
    "health": _made(HealthCheck, _fields(HealthCheck)),
    "fairness": _made(Fairness, _fields(Fairness)),
    "auto_replay": _made(AutoReplay, _fields(AutoReplay)),
    "dead_letters": _made(Keep, _fields(Keep)),
    "shared_rate": _made(SharedRate, _fields(SharedRate)),
    "request_log": _made(RequestLog, _fields(RequestLog)),
}
