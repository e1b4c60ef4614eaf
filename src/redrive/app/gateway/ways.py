"""Kinds of ways that a document can ask for, each with its keys."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.app.gateway.reshaped import ReshapedTransport
from redrive.app.gateway.secrets import Resolve, is_reference, placeholder
from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.policies.terms import Terms
from redrive.transport import Blueprint, Shaping, Transport
from redrive.transports import kinds
from redrive.transports.http import ApiKey, Basic, Bearer, HttpBlueprint, OAuth2, http
from redrive.transports.options import without_libraries

if TYPE_CHECKING:
    from redrive.transports.http.wires import Wires

__all__ = ["KINDS", "WayKind"]


class WayKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of way: the keys of its documents, and what reads them."""

    keys: tuple[str, ...]
    read: Callable[[dict[str, Any], Resolve], Blueprint]
    build: Callable[[Any, Terms, Clock, Shaping, Wires], Transport]
    takes_requests: bool = False
    """Whether a rule may say of a request more than its body."""

    @property
    def speaks_http(self) -> bool:
        """Whether its address may have a query."""
        return "headers" in self.keys and "url" in self.keys

    @property
    def has_breaker(self) -> bool:
        """Whether it has a breaker unless its document says otherwise: it goes over a network."""
        return "connect_timeout" in self.keys


_OF_TLS = ("certificate", "authority")
_AUTHS: Mapping[str, tuple[str, ...]] = {
    "bearer": (),
    "basic": ("user", "password"),
    "api_key": ("header", "value"),
    "oauth2": ("token_url", "client_id", "client_secret"),
}


def _read_http(given: dict[str, Any], resolve: Resolve) -> Blueprint:
    options = dict(given)
    url = options.pop("url", None)
    if url is None:
        raise ConfigurationError(
            'url is missing; write where to send to, such as url = "https://api.example.com/hooks".'
        )
    auth = options.pop("auth", None)
    if auth is not None:
        options["auth"] = _read_auth(auth, resolve)
    if "signing_keys" in options:
        keys = options["signing_keys"]
        keys = [keys] if isinstance(keys, str) else keys
        if not isinstance(keys, list | tuple):
            raise ConfigurationError(
                "signing_keys is no list; write where each key is, such as "
                '["env:CRM_KEY"], two while they are changed.'
            )
        options["signing_keys"] = [_secret("signing_keys", one, resolve) for one in keys]
    headers = options.get("headers")
    if isinstance(headers, Mapping):
        options["headers"] = {
            name: resolve(value) if is_reference(value) else value
            for name, value in headers.items()
        }
    tls = _read_tls(options.pop("certificate", None), options.pop("authority", None), resolve)
    if tls is not None:
        options["tls"] = tls
    return http(url, **options)


def _read_auth(auth: object, resolve: Resolve) -> Bearer | Basic | ApiKey | OAuth2:
    if not isinstance(auth, Mapping) or len(auth) != 1:
        raise ConfigurationError(
            f"auth is a table with one of {', '.join(_AUTHS)}, such as "
            'auth = { bearer = "env:CRM_TOKEN" }.'
        )
    refuse_unknown(auth, _AUTHS, what="kind of auth")
    [(kind, value)] = auth.items()
    if kind == "bearer":
        return Bearer(_secret("auth.bearer", value, resolve))
    known = _AUTHS[kind]
    if not isinstance(value, Mapping) or any(key not in value for key in known):
        raise ConfigurationError(f"auth.{kind} is a table with {' and '.join(known)}.")
    keys = kinds.KEYS_OF_OAUTH2 if kind == "oauth2" else known
    refuse_unknown(value, keys, what=f"key of auth.{kind}")
    if kind == "oauth2":
        secret = _secret("auth.oauth2.client_secret", value["client_secret"], resolve)
        given: dict[str, Any] = {key: _resolved(one, resolve) for key, one in value.items()}
        return OAuth2(**{**given, "client_secret": secret})
    first, second = known
    secret = _secret(f"auth.{kind}.{second}", value[second], resolve)
    return Basic(value[first], secret) if kind == "basic" else ApiKey(value[first], secret)


def _secret(name: str, value: object, resolve: Resolve) -> str:
    """Return a secret by its reference; one that is written out is refused, and not shown."""
    if not isinstance(value, str) or not is_reference(value):
        raise ConfigurationError(
            f"{name} is not said by reference, and a document is no place for a secret; write "
            "where it is: env:NAME for a variable of the worker, file:/path for a file, or "
            "secret:NAME for one that `redrive secret set` has stored."
        )
    return resolve(value)


def _read_tls(certificate: object, authority: object, resolve: Resolve) -> ssl.SSLContext | None:
    """Return how TLS is spoken with a certificate of ours, or by an authority of theirs."""
    for name, value in (("certificate", certificate), ("authority", authority)):
        if value is not None and (not isinstance(value, str) or not value.startswith("file:")):
            raise ConfigurationError(
                f'{name} is {value!r}; write where the PEM file is, such as "file:/run/client.pem".'
            )
    if certificate is None and authority is None:
        return None
    context = ssl.create_default_context()
    if resolve is placeholder:  # only checked: the files are where the worker is
        return context
    try:
        if authority is not None:
            context.load_verify_locations(str(authority).removeprefix("file:"))
        if certificate is not None:
            context.load_cert_chain(str(certificate).removeprefix("file:"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The certificate cannot be read: {type(error).__name__}; give the worker a PEM file "
            "with the certificate and its key."
        ) from None
    return context


def _build_http(
    way: HttpBlueprint, terms: Terms, clock: Clock, shaping: Shaping, wires: Wires
) -> Transport:
    return way.build(terms=terms, clock=clock, shaping=shaping, wires=wires)


def _other(kind: str) -> WayKind:
    """Return a kind whose way is made by its own function; of a rule it gets the body alone."""
    known = kinds.KINDS[kind]
    keys = _keys(known)
    hidden = [key for key in known.secrets if key not in (known.address, "auth", "headers")]

    def read(given: dict[str, Any], resolve: Resolve) -> Any:  # noqa: ANN401 - as the kind has it
        if known.address and known.address not in given:
            raise ConfigurationError(f"{known.address} is missing; write where it leads.")
        options = {
            key: _secret(key, one, resolve)
            if key in hidden
            else _read_auth(one, resolve)
            if key == "auth"
            else _resolved(one, resolve)
            for key, one in given.items()
            if key not in _OF_TLS
        }
        context = _read_tls(given.get("certificate"), given.get("authority"), resolve)
        if context is not None:
            options["tls"] = context
        address = [options.pop(known.address)] if known.address else []
        return known.declare(*address, **options)

    def build(
        way: Any,  # noqa: ANN401 - as the kind has it
        terms: Terms,
        clock: Clock,
        shaping: Shaping,
        wires: Wires,  # noqa: ARG001 - its connections are its own
    ) -> Transport:
        inner = way.build(terms=terms, clock=clock) if isinstance(way, Blueprint) else way
        return ReshapedTransport(inner, shaping)

    return WayKind(keys=keys, read=_as_said(read), build=build)


def _keys(known: kinds.Kind) -> tuple[str, ...]:
    """Return the keys of a document: the options of the function, and what stands for `tls`."""
    options = known.options
    keys = (*([known.address] if known.address else []), *options)
    said = tuple(key for key in keys if key != "tls")
    return (*said, *_OF_TLS) if "tls" in options else said


def _resolved(value: object, resolve: Resolve) -> object:
    """Return a value with the secrets that it refers to."""
    if isinstance(value, Mapping):
        return {name: _resolved(one, resolve) for name, one in value.items()}
    return resolve(str(value)) if is_reference(value) else value


def _as_said(read: Callable[[dict[str, Any], Resolve], Blueprint]) -> Any:  # noqa: ANN401 - the same
    """Have a document be checked where the library of its kind is not: it is where it is sent."""

    def reading(given: dict[str, Any], resolve: Resolve) -> Blueprint:
        if resolve is not placeholder:
            return read(given, resolve)
        with without_libraries():
            return read(given, resolve)

    return reading


_NOT_OF_A_RULE = ("batch",)
_HTTP = tuple(key for key in _keys(kinds.KINDS["http"]) if key not in _NOT_OF_A_RULE)

KINDS: dict[str, WayKind] = {
    name: WayKind(keys=_HTTP, read=_read_http, build=_build_http, takes_requests=True)
    if name == "http"
    else _other(name)
    for name in kinds.KINDS
}
"""The kinds of ways, by what a document calls them."""
