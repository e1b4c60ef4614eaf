"""The server: listens at an address, and stops when it is told to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.errors import ConfigurationError

__all__ = ["HttpServer", "is_loopback", "listen"]

_HEADER_SECONDS = 10.0
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


class HttpServer(uvicorn.Server):
    """Serves an ASGI app until `stop`; then it answers what was asked, and is gone.

    `proxies` are the addresses whose word about who asks, and by which scheme, is taken.
    """

    def __init__(
        self, asgi: ASGIApp, *, proxies: Sequence[str], root_path: str, grace: float
    ) -> None:
        super().__init__(
            Config(
                asgi,
                http=_Impatient,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",  # that it serves, and where, is told by the command
                access_log=False,
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
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
