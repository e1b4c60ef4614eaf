"""The options of an HTTP destination, each read into what it means or refused with advice."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Literal, TypedDict
from urllib.parse import SplitResult, parse_qsl, unquote_plus, urlsplit

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration
from redrive.transports.envelope import Body
from redrive.transports.http.auth import ApiKey, Auth, Basic, Bearer, OAuth2
from redrive.transports.http.headers import check_header_names
from redrive.transports.ssrf import NO_ADDRESS, Network, check_address

__all__ = [
    "HttpOptions",
    "LineOptions",
    "Method",
    "RequestOptions",
    "find_secrets",
    "read_auth",
    "read_forwarded",
    "read_keys",
    "read_statuses",
    "read_url",
]

Method = Literal["POST", "PUT", "PATCH", "DELETE"]

_LOCAL = ("127.0.0.1", "::1")
_STATUSES = range(300, 600)
_SHORTEST_SECRET = 8
_SHORTEST_SECRET_IN_PATH = 16


class LineOptions(TypedDict, total=False):
    """What every way takes that speaks HTTP, about the connections and the answers."""

    retry_on_status: Collection[int] | None
    """Exactly these statuses are retried, instead of the usual ones."""
    allow_private: bool
    """Whether private addresses may be connected to."""
    allow_networks: Sequence[str]
    """Networks that may be connected to, although they are not public."""
    tls: ssl.SSLContext | None
    """A context of your own, for certificates that nobody else knows."""
    connect_timeout: Duration
    """How long it may take to connect."""
    connections: int
    """How many connections a worker keeps to it at once."""
    response_limit: int
    """How many bytes of an answer are read."""


class RequestOptions(LineOptions, total=False):
    """The same, and what its requests say of us."""

    headers: Mapping[str, str]
    """Headers of every request."""
    auth: Auth | None
    """How to log in: `Bearer`, `Basic`, `ApiKey` or `OAuth2`."""


class HttpOptions(RequestOptions, total=False):
    """What `http` takes beside the URL; see there."""

    method: Method
    """The method of the requests; `POST` by default."""
    forward_headers: Sequence[str]
    """Headers of the event that travel on."""
    signing_keys: str | Sequence[str]
    """The key that signs each request, or several while they are changed."""
    body: Body
    """What is sent: the payload alone, or the whole event."""
    batch: int | None
    """How many events one request carries at most."""


def read_url(url: object) -> SplitResult:
    """Take a URL apart; a message about a wrong one shows no more of it than its host."""
    if not isinstance(url, str):
        raise ConfigurationError(
            f"The URL of a destination is a {type(url).__name__}; write text such as "
            '"https://api.example.com/hooks".'
        )
    if not url.isprintable() or " " in url:
        raise ConfigurationError(
            "The URL of a destination has a blank, a line break or another character that no URL "
            "may hold; a line break at its end, as files have it, is a common cause."
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError(
            "The URL of a destination cannot be read: its port is not a number up to 65535, or the "
            'brackets of an IPv6 address are not closed; write it as "https://[2001:db8::1]:8443/".'
        ) from None
    if parts.scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"The URL of a destination begins with {parts.scheme!r}; "
            'write http or https, such as "https://api.example.com/hooks".'
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"The URL of {host!r} holds a user or a password, which would show wherever a URL is "
            "shown; pass auth=Basic(user, password) instead."
        )
    if not host or port == 0 or not _is_host(host):
        raise ConfigurationError(
            f"The URL of a destination has the host {parts.netloc!r}, which nothing can be sent "
            'to; write one such as "https://api.example.com/hooks".'
        )
    return parts


def check_host(url: SplitResult, allowed: Sequence[Network]) -> None:
    """Refuse an address that every delivery would be refused for; names are looked up later."""
    host = url.hostname or ""
    addresses = _LOCAL if host.rstrip(".") == "localhost" else (host,)
    kinds = {check_address(one, allowed) for one in addresses}
    if kinds & {None, NO_ADDRESS}:
        return
    raise ConfigurationError(
        f"The URL of a destination has the host {host!r}, an address that is {kinds.pop()}, and "
        f'only public ones are connected to; pass allow_networks=["{addresses[0]}"] to allow this '
        "one, or allow_private=True to allow all."
    )


def read_auth(auth: object, headers: Mapping[str, str]) -> Auth | None:
    """Return who we are to the destination, told in one place only."""
    if auth is None:
        return None
    if not isinstance(auth, Bearer | Basic | ApiKey | OAuth2):
        raise ConfigurationError(
            f"auth is a {type(auth).__name__}; "
            "pass Bearer(token), Basic(user, password), ApiKey(header, value) or OAuth2(token_url, "
            "client_id, client_secret)."
        )
    if auth.header in headers:
        raise ConfigurationError(
            f"The header {auth.header!r} comes from headers and from auth; leave one out."
        )
    return auth


def read_keys(keys: object) -> tuple[str, ...]:
    """Return the signing keys, one or several, still as text."""
    several = (keys,) if isinstance(keys, str) else keys
    if not isinstance(several, Sequence):
        raise ConfigurationError(
            f"signing_keys is a {type(keys).__name__}; pass one key, or a list of keys."
        )
    return tuple(several)


def read_forwarded(names: object, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return which headers of an event travel on; none may take the place of a declared one."""
    forwarded = check_header_names(names)
    for name in forwarded:
        if name in headers:
            raise ConfigurationError(
                f"The header {name!r} would come from each event (forward_headers) and from the "
                "declaration; leave one out."
            )
    return forwarded


def read_statuses(statuses: object) -> frozenset[int] | None:
    """Return the statuses that are retried in place of the usual ones, or `None` for those."""
    if statuses is None:
        return None
    if not isinstance(statuses, Collection) or not all(
        isinstance(one, int) and one in _STATUSES for one in statuses
    ):
        raise ConfigurationError(
            f"retry_on_status is {statuses!r}; it is a set of statuses from 300 to 599, such as "
            "{429, 503}, and the empty set never retries on an answer."
        )
    return frozenset(statuses)


def find_secrets(
    url: SplitResult, headers: Mapping[str, str], auth: Auth | None, keys: Sequence[str]
) -> tuple[str, ...]:
    """Return what must never be shown, the longest first.

    Any header, query value or part of the path may be a secret. A short one hardly is, and
    blanking it would blank half of every message.
    """
    query = [value for _, value in parse_qsl(url.query)]
    query += [unquote_plus(one) for one in url.query.split("&") if "=" not in one]
    secrets = [one for one in (*headers.values(), *query) if len(one) >= _SHORTEST_SECRET]
    secrets += [one for one in url.path.split("/") if len(one) >= _SHORTEST_SECRET_IN_PATH]
    secrets += [*keys, *(key.removeprefix("whsec_") for key in keys)]
    secrets += [] if auth is None else auth.secrets
    return tuple(sorted(dict.fromkeys(secrets), key=lambda one: (-len(one), one)))


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        # What ends in a number is an IPv4 address to many resolvers: 127.1 is 127.0.0.1.
        *_, last = host.rstrip(".").split(".")
        return not last.isdigit() and not last.startswith("0x") and _is_name(host)
    return True


def _is_name(host: str) -> bool:
    try:
        return bool(host.rstrip(".").encode("idna"))
    except UnicodeError:
        return False
