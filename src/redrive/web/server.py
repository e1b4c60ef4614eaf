"""The server: listens at an address, and stops when it is told to."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.errors import ConfigurationError
from redrive.web.api import answer_problem
from redrive.web.guard import smuggled
from redrive.web.identity import PROXY_USER

__all__ = ["BehindProxy", "HttpServer", "collect_less", "is_loopback", "listen"]

_HEADER_SECONDS = 10.0
_COLLECT_AFTER = (10_000, 20, 50)
_MOST_CONNECTIONS = 1_000
_LONGEST_HEADERS = 32 * 1024


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"The server cannot listen at {host}:{port}: {error}. Choose another port or host."
        ) from error


def collect_less() -> None:
    """Have a process that serves look for cycles less often, and not in what it has loaded.

    A batch makes thousands of values at once and lets them go; with Python's thresholds, made for
    small programs, a fifth of the time of a batch went into looking for cycles among them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


class HttpServer(uvicorn.Server):
    """Serves an ASGI app until `stop`; then it answers what was asked, and is gone.

    `proxies` are the addresses whose word about who asks, and by which scheme, is taken, and with
    a `user_header` about which user they have let in.
    """

    def __init__(
        self,
        asgi: ASGIApp,
        *,
        proxies: Sequence[str],
        root_path: str,
        grace: float,
        user_header: str | None = None,
    ) -> None:
        super().__init__(
            Config(
                BehindProxy(asgi, proxies=proxies, user_header=user_header) if proxies else asgi,
                http=_Impatient,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",  # that it serves, and where, is told by the command
                access_log=False,
                proxy_headers=False,
                server_header=False,
                root_path=root_path,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=max(1, int(grace)),
                h11_max_incomplete_event_size=_LONGEST_HEADERS,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the process."""
        yield

    def stop(self) -> None:
        """Take no more requests, answer those there are, and end."""
        self.should_exit = True

    def quit(self) -> None:
        """End at once."""
        self.should_exit = self.force_exit = True


class BehindProxy:
    """Takes the word of the proxies that were named, and of nobody else."""

    def __init__(
        self, asgi: ASGIApp, *, proxies: Sequence[str], user_header: str | None = None
    ) -> None:
        self._inner = ProxyHeadersMiddleware(asgi, trusted_hosts=list(proxies))  # type: ignore[arg-type]
        self._user_header = user_header and user_header.lower().encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        peer = scope.get("client") or (None,)
        if scope["type"] == "http" and self._user_header and peer[0] in self._inner.trusted_hosts:
            said = [value for name, value in scope["headers"] if name.lower() == self._user_header]
            if len(said) > 1:
                refused = answer_problem(smuggled(f"{len(said)} headers that say who asks"))
                await refused(scope, receive, send)
                return
            scope[PROXY_USER] = said[0].decode("latin-1").strip() if said else ""
        await self._inner(scope, receive, send)  # type: ignore[arg-type]


class _Impatient(H11Protocol):
    """Hangs up on who takes too long to say what they want."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _expect(self) -> None:
        """Wait for the headers of a request, and for nothing else."""
        is_asking = self.cycle is not None and not self.cycle.response_complete
        if is_asking:
            self._calm()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._hang_up)

    def _calm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
