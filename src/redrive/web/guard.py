"""The guard: is a request for this server, and not sent by somebody else's web page?

Any page that an operator's browser shows may send requests to a port of their machine. So the name
in `Host` must be one of ours, which a rebound DNS name is not, and what a browser says of where a
request comes from must be this very server, with a login and without.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.clock import Clock
from redrive.policies.display import safe
from redrive.policies.redact import Redaction
from redrive.web.api import ROUTE, answer_problem
from redrive.web.identity import CALLER
from redrive.web.metrics import Requests
from redrive.web.problem import ProblemError

__all__ = ["LOOPBACK", "Guard", "host_name", "smuggled"]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names by which a machine calls itself."""

_SAFE = ("GET", "HEAD", "OPTIONS")
_ONCE = (
    *(b"host", b"content-length", b"content-type", b"authorization", b"idempotency-key"),
    *(b"if-match", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"transfer-encoding"),
)
_OWN_PAGE = (None, "same-origin", "none")
_LINK = (None, "navigate")
"""What a browser says of a link, as far as it says anything; a script asks in another way."""
_LONGEST_PATH = 2_000
_LONGEST_LOGGED = 200
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SECURE_HEADERS = (*_HEADERS, (b"strict-transport-security", b"max-age=31536000"))

_log = logging.getLogger("redrive.web")


class Guard:
    """Refuses what is not for us, sets the headers that browsers heed, and logs each request.

    `hosts` are the names that it answers to; `"*"` is any. Neither queries nor headers are logged.
    """

    def __init__(
        self,
        inner: ASGIApp,
        *,
        hosts: Collection[str],
        clock: Clock,
        redaction: Redaction,
        requests: Requests,
    ) -> None:
        self._inner = inner
        self._hosts = tuple(one.lower() for one in hosts)
        self._clock = clock
        self._redaction = redaction
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began, status = self._clock.monotonic(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message, is_secure=scope["scheme"] == "https")
            await send(message)

        try:
            try:
                self._check(scope)
            except ProblemError as refused:
                await answer_problem(refused)(scope, receive, send_guarded)
            else:
                await self._inner(scope, receive, send_guarded)
        finally:
            self._tell(scope, status, self._clock.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        given = _headers(scope)
        host = given.get(b"host", "")
        if "*" not in self._hosts and host_name(host) not in self._hosts:
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown-host",
                "This server does not answer to that name; start it with --allow-host for each "
                "name that it is reached by.",
            )
        if len(scope["path"]) > _LONGEST_PATH:
            raise ProblemError(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                "path-too-long",
                f"The path has more than {_LONGEST_PATH:,} characters, which leads nowhere here.",
            )
        if _is_foreign(given, host) and not _is_led_here(scope, given):
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "cross-site",
                "A web page of another site has sent this, which none may.",
            )
        if b"transfer-encoding" in given and b"content-length" in given:
            raise smuggled("both Content-Length and Transfer-Encoding")

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        template = scope.get(ROUTE)
        self._requests.count(scope["method"], template or "other", status, seconds)
        # What fits no route may be anything, also a token that was pasted into it.
        path = scope["path"][:_LONGEST_LOGGED] if template else "(not routed)"
        client = scope.get("client") or ("?",)
        _log.info(
            "%s %s %d",
            safe(scope["method"][:20]),
            safe(self._redaction.text(path)),
            status,
            extra={
                "caller": scope.get(CALLER),
                "client": client[0],
                "ms": round(seconds * 1000, 1),
            },
        )


def _headers(scope: Scope) -> dict[bytes, str]:
    """Return the headers that decide something; one that stands twice has two meanings."""
    found = [(name.lower(), value) for name, value in scope["headers"] if name.lower() in _ONCE]
    for name, count in Counter(name for name, _ in found).items():
        if count > 1:
            raise smuggled(f"{count} headers {name.decode('latin-1')}")
    return {name: value.decode("latin-1").strip() for name, value in found}


def _is_foreign(given: Mapping[bytes, str], host: str) -> bool:
    """Tell whether a page of another site has sent it, or led to it."""
    origin = given.get(b"origin")
    return given.get(b"sec-fetch-site") not in _OWN_PAGE or (
        origin is not None and origin.partition("://")[2].lower() != host.lower()
    )


def _is_led_here(scope: Scope, given: Mapping[bytes, str]) -> bool:
    """Tell whether somebody has followed a link to a page, which other sites may have."""
    return (
        scope["method"] in _SAFE
        and "/api/" not in scope["path"]
        and given.get(b"sec-fetch-mode") in _LINK
        and b"origin" not in given
    )


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    name, separator, port = host.rpartition(":")
    return (name if separator and port.isdigit() else host).lower().rstrip(".")


def smuggled(what: str) -> ProblemError:
    """Return the problem of a request that two readers could understand differently."""
    return ProblemError(
        HTTPStatus.BAD_REQUEST, "bad-request", f"The request has {what}, so it is read by nobody."
    )


def _add_headers(message: MutableMapping[str, Any], *, is_secure: bool) -> None:
    given = message.setdefault("headers", [])
    there = {name.lower() for name, _ in given}
    more = _SECURE_HEADERS if is_secure else _HEADERS
    message["headers"] = [*given, *(one for one in more if one[0] not in there)]
