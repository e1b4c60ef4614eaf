"""Every way by the name of its kind, made from a document such as a store keeps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast, get_args, get_type_hints

import msgspec

from redrive.errors import ConfigurationError, refuse_unknown
from redrive.transport import Way
from redrive.transports.http.auth import ApiKey, Auth, Basic, Bearer, OAuth2

__all__ = ["KEYS_OF_OAUTH2", "KINDS", "Kind", "way_of"]

KEYS_OF_OAUTH2 = ("token_url", "client_id", "client_secret", "scope", "audience", "send_as")
"""What a document may say of OAuth2: what it takes in code."""


class Kind(msgspec.Struct, frozen=True):
    """Where the function is that declares a way, and what its first argument is called.

    `secrets` are those of its options that nobody may see.
    """

    module: str
    function: str
    address: str = ""
    secrets: tuple[str, ...] = ()

    @property
    def declare(self) -> Callable[..., Way]:
        """The function."""
        return cast("Callable[..., Way]", getattr(import_module(self.module), self.function))

    @property
    def options(self) -> tuple[str, ...]:
        """The options of its function, as it declares them."""
        [declared] = get_args(get_type_hints(self.declare)["options"])
        return tuple(declared.__annotations__)


_LOGIN = ("password",)
_REQUEST = ("url", "headers", "auth")

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "amqp": Kind("redrive.transports.amqp", "amqp", "url", _LOGIN),
        "file": Kind("redrive.transports.file", "file", "path"),
        "http": Kind(
            "redrive.transports.http", "http", "url", ("url", "headers", "auth", "signing_keys")
        ),
        "loki": Kind("redrive.transports.loki", "loki", "url", _REQUEST),
        "nats": Kind("redrive.transports.nats", "nats", "url", _LOGIN),
        "otlp": Kind("redrive.transports.otlp", "otlp", "url", _REQUEST),
        "redis_stream": Kind("redrive.transports.redis_stream", "redis_stream", "url", _LOGIN),
        "sentry": Kind("redrive.transports.sentry", "sentry", "url", (*_REQUEST, "key")),
        "ses": Kind("redrive.transports.ses", "ses", "region", ("secret_key", "session_token")),
        "smtp": Kind("redrive.transports.smtp", "smtp", "url", _LOGIN),
        "stdout": Kind("redrive.transports.stdout", "stdout"),
    }
)
"""What `kind` may be; a module is imported when the first way of its kind is made."""


def way_of(kind: str, document: Mapping[str, Any]) -> Way:
    """Return the way that a document describes: the options of its function, as JSON has them.

    `auth` is an object with one key: `{"bearer": token}`, `{"basic": [user, password]}`,
    `{"api_key": [header, value]}`, or `{"oauth2": {…}}` with what `OAuth2` takes. What only code
    can say, such as `tls`, is refused.

    >>> way_of("file", {"path": "events.jsonl", "body": "payload"})
    file('events.jsonl', …)
    """
    refuse_unknown([kind], KINDS, what="kind of way")
    known = KINDS[kind]
    given = dict(document)
    if "tls" in given:
        raise ConfigurationError(
            f"A way of the kind {kind!r} cannot have tls in a document: a context is made by code."
        )
    if known.address and known.address not in given:
        raise ConfigurationError(
            f"A way of the kind {kind!r} needs {known.address}, which says where it leads."
        )
    if "auth" in given:
        given["auth"] = _read_auth(given["auth"])
    declare = known.declare
    address = [given.pop(known.address)] if known.address else []
    required = [
        name
        for name, one in inspect.signature(declare).parameters.items()
        if one.kind is one.KEYWORD_ONLY and one.default is one.empty and name not in given
    ]
    if required:
        raise ConfigurationError(f"A way of the kind {kind!r} needs {' and '.join(required)}.")
    return declare(*address, **given)


def _read_auth(auth: object) -> Auth:
    match auth:
        case {"bearer": str(token)}:
            return Bearer(token)
        case {"basic": [str(user), str(password)]}:
            return Basic(user, password)
        case {"api_key": [str(header), str(value)]}:
            return ApiKey(header, value)
        case {"oauth2": {"token_url": str(), "client_id": str(), "client_secret": str()} as given}:
            refuse_unknown(given, KEYS_OF_OAUTH2, what="key of auth.oauth2")
            return OAuth2(**given)
    raise ConfigurationError(
        'auth is an object with one key: {"bearer": token}, {"basic": [user, password]}, '
        '{"api_key": [header, value]} or {"oauth2": {"token_url": …, "client_id": …, '
        '"client_secret": …}}.'
    )
