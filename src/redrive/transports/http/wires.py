"""Connections of HTTP ways: those that may reach the same networks can share them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.ssrf import AddressRefused, Network, check_address, guarded

__all__ = ["Wire", "Wires"]

_READ_BUFFER = 2**14


class Wires:
    """Sessions that the ways of one event loop share, one for each choice of networks.

    A connection is used again by whoever goes to the same place with the same TLS. The last way to
    leave a session closes it.
    """

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver
        self._shared: dict[tuple[Network, ...], _Shared] = {}

    def join(self, allowed: tuple[Network, ...]) -> aiohttp.ClientSession:
        """Return the session for these networks, to be left again."""
        shared = self._shared.get(allowed)  # once: the hash of a network is slow
        if shared is None:
            shared = self._shared[allowed] = _Shared(self._session(allowed))
        shared.users += 1
        return shared.session

    async def leave(self, allowed: tuple[Network, ...]) -> None:
        """Have one fewer use the session for these networks."""
        shared = self._shared[allowed]
        shared.users -= 1
        if not shared.users:
            del self._shared[allowed]
            await shared.session.close()

    def _session(self, allowed: tuple[Network, ...]) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # each way has a limit of its own
                resolver=_GuardedResolver(self._resolver, allowed),
                socket_factory=guarded(allowed),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER,
        )


class _Shared:
    """A session, and how many ways use it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.users = 0


class Wire:
    """The connections of one way: with its TLS, its time to connect, and so many at once."""

    def __init__(self, plan: HttpBlueprint, wires: Wires) -> None:
        self._plan = plan
        self._wires = wires
        self._session: aiohttp.ClientSession | None = None
        # The engine ends an attempt that takes too long; only connecting has its own limit.
        connect = plan.connect_timeout.total_seconds()
        self._options: Any = {
            "ssl": plan.tls or True,
            "timeout": aiohttp.ClientTimeout(sock_connect=connect),
            "allow_redirects": False,
        }
        self.places = asyncio.Semaphore(plan.connections)
        """How many more requests may be under way."""

    def request(self, method: str, url: str | URL, **options: Any) -> Any:  # noqa: ANN401 - aiohttp's
        """Send a request; the answer is read within the block that this begins."""
        if self._session is None:
            self._session = self._wires.join(self._plan.allowed)
        return self._session.request(method, url, **self._options, **options)

    async def close(self) -> None:
        """Leave the connections to others."""
        if self._session is not None:
            self._session = None
            await self._wires.leave(self._plan.allowed)


class _GuardedResolver(AbstractResolver):
    """Leaves out the addresses that the socket would refuse anyway.

    So a host that has a public address and a private one is reached by the first, and its failure
    is that of the first; one that has only private ones is refused.
    """

    def __init__(self, resolver: AbstractResolver | None, allowed: Sequence[Network]) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not found:
            raise OSError("the name has no address")
        refusals = [check_address(one["host"], self._allowed) for one in found]
        allowed = [one for one, why in zip(found, refusals, strict=True) if why is None]
        if not allowed:
            raise AddressRefused(found[0]["host"], refusals[0] or "")
        return allowed

    async def close(self) -> None:
        await self._resolver.close()
