"""The declaration of an HTTP destination: every option checked before anything is sent."""

from __future__ import annotations

import ssl
from datetime import timedelta
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Unpack, get_args
from urllib.parse import urljoin

import msgspec

from redrive.clock import Clock
from redrive.errors import refuse_unknown
from redrive.policies.redact import without_secrets
from redrive.policies.terms import Terms
from redrive.transport import Shaping, Transport
from redrive.transports.envelope import Body
from redrive.transports.http.auth import OAuth2
from redrive.transports.http.headers import check_headers
from redrive.transports.http.options import (
    HttpOptions,
    Method,
    check_host,
    find_secrets,
    read_auth,
    read_forwarded,
    read_keys,
    read_statuses,
    read_url,
)
from redrive.transports.options import (
    need,
    read_choice,
    read_connect_timeout,
    read_count,
    read_networks,
    read_tls,
)
from redrive.transports.signing import SigningKey
from redrive.transports.ssrf import Network

if TYPE_CHECKING:
    from redrive.transports.http.wires import Wires

__all__ = ["HttpBlueprint", "http"]

_LEAST_RESPONSE = 2**12


class HttpBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked HTTP destination, from which each worker makes a transport of its own.

    It shows itself by its host only: the rest of a URL is often a secret.
    """

    url: str
    host: str
    method: Method
    headers: dict[str, str]
    forward_headers: tuple[str, ...]
    signing_keys: tuple[SigningKey, ...]
    retry_on_status: frozenset[int] | None
    body: Body
    batch: int | None
    allowed: tuple[Network, ...]
    tls: ssl.SSLContext | None
    connect_timeout: timedelta
    connections: int
    response_limit: int
    secrets: tuple[str, ...]
    oauth2: OAuth2 | None = None

    def build(
        self,
        *,
        terms: Terms,
        clock: Clock,
        shaping: Shaping | None = None,
        wires: Wires | None = None,
    ) -> Transport:
        """Return a transport for one worker; it connects when it first sends."""
        from redrive.transports.http.transport import HttpTransport  # noqa: PLC0415 - aiohttp

        return HttpTransport(self, terms=terms, clock=clock, shaping=shaping, wires=wires)

    def health_url(self, target: str) -> str:
        """Return the URL that a health check asks: a path at this host, or a URL of its own."""
        address = read_url(urljoin(self.url, target))
        check_host(address, self.allowed)
        return address.geturl()

    def redact(self, text: str) -> str:
        """Return the text without the secrets of this destination, however they are spelled."""
        return without_secrets(text, self.secrets)

    def __repr__(self) -> str:
        return f"http({self.host!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("host", self.host)]


@cache
def _user_agent() -> str:
    return f"redrive/{version('redrive')}"


def http(url: str, **options: Unpack[HttpOptions]) -> HttpBlueprint:
    """Declare the way to an HTTP service, for `app.destination(..., transport=http(...))`.

    - `method`: `"POST"` unless you say otherwise; `headers` are sent with every request
    - `auth`: `Bearer(token)`, `Basic(user, password)`, `ApiKey(header, value)`, or
      `OAuth2(token_url, client_id, client_secret)`, whose tokens are fetched and renewed
    - `signing_keys`: one or several `"whsec_…"`; the request then carries a Standard Webhooks
      signature by each of them
    - `body`: `"payload"` sends the payload as it was published, `"event"` an object with the
      event's id, type, time, key, tenant and source around it
    - `batch`: send up to so many events as one array, by default of `"event"` objects
    - `forward_headers`: the headers of an event that travel on, `("traceparent",)` by default
    - `retry_on_status`: exactly these statuses are retried, in place of the usual ones
    - `allow_private`, `allow_networks`: addresses that may be reached although they are not
      public: all, or those in networks such as `"10.1.0.0/16"`
    - `tls`: an `ssl.SSLContext` with an authority or a client certificate of your own
    - `connect_timeout`, `connections`, `response_limit`: how long to wait for a connection, how
      many to hold, and how many bytes of an answer to read

    >>> http("https://api.example.com/hooks?token=hidden")
    http('api.example.com', …)
    """
    refuse_unknown(options, HttpOptions.__annotations__, what="http option")
    need("HTTP destinations", extra="http", modules=("aiohttp",))
    address, batch = read_url(url), options.get("batch")
    allowed = read_networks(options.get("allow_private", False), options.get("allow_networks", ()))
    check_host(address, allowed)
    declared = check_headers(options.get("headers", {}))
    auth = read_auth(options.get("auth"), declared)
    oauth2 = auth if isinstance(auth, OAuth2) else None
    if oauth2 is not None:
        check_host(read_url(oauth2.token_url), allowed)
    keys = read_keys(options.get("signing_keys", ()))
    headers = {
        "content-type": "application/json",
        "user-agent": _user_agent(),
        # An answer is read to be shown, and what was never packed cannot be a bomb.
        "accept-encoding": "identity",
        **declared,
        **({} if auth is None or isinstance(auth, OAuth2) else {auth.header: auth.value}),
    }
    usual_body: Body = "payload" if batch is None else "event"
    return HttpBlueprint(
        url=url,
        host=address.netloc,
        method=read_choice("method", options.get("method", "POST"), get_args(Method)),
        headers=headers,
        forward_headers=read_forwarded(options.get("forward_headers", ("traceparent",)), headers),
        signing_keys=tuple(SigningKey(key) for key in keys),
        retry_on_status=read_statuses(options.get("retry_on_status")),
        body=read_choice("body", options.get("body", usual_body), get_args(Body)),
        batch=None if batch is None else read_count("batch", batch),
        allowed=allowed,
        tls=read_tls(options.get("tls")),
        connect_timeout=read_connect_timeout(options.get("connect_timeout", "10s")),
        connections=read_count("connections", options.get("connections", 100)),
        response_limit=read_count(
            "response_limit", options.get("response_limit", 2**16), least=_LEAST_RESPONSE
        ),
        secrets=find_secrets(address, declared, auth, keys),
        oauth2=oauth2,
    )
