"""A server at an address that somebody has named: read, guarded, connected to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration
from redrive.transports.options import read_connect_timeout, read_networks, read_tls
from redrive.transports.ssrf import NO_ADDRESS, AddressRefused, Network, check_address, guarded

__all__ = ["Server", "ServerOptions", "read_login", "read_server"]

_LOCAL = ("127.0.0.1", "::1")


class ServerOptions(TypedDict, total=False):
    """What every way takes that connects to a server by itself."""

    user: str | None
    """Who we are to the server."""
    password: str | None
    """The password that goes with it."""
    allow_private: bool
    """Whether private addresses may be connected to."""
    allow_networks: Sequence[str]
    """Networks that may be connected to, although they are not public."""
    tls: ssl.SSLContext | None
    """A context of your own, for certificates that nobody else knows."""
    connect_timeout: Duration
    """How long it may take to connect."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and which addresses may be reached on the way to it."""

    scheme: str
    host: str
    port: int
    path: str
    allowed: tuple[Network, ...]
    tls: ssl.SSLContext | None
    connect_timeout: timedelta

    @property
    def shown(self) -> str:
        """The server as people see it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """Return how TLS is spoken with it."""
        return self.tls or ssl.create_default_context()

    async def connect(self) -> socket.socket:
        """Return a connection to the first of its addresses that may be reached and answers.

        The very address that is connected to is checked, whatever the name says a moment later.
        """
        loop = asyncio.get_running_loop()
        make, failure = guarded(self.allowed), OSError("the name has no address")
        async with asyncio.timeout(self.connect_timeout.total_seconds()):
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            # One that may not be reached says least of why the others failed.
            found.sort(key=lambda one: check_address(str(one[4][0]), self.allowed) is not None)
            for info in found:
                try:
                    line = make(info)
                except AddressRefused as refusal:
                    failure = refusal if info is found[0] else failure
                    continue
                try:
                    line.settimeout(0)
                    await loop.sock_connect(line, info[4])
                    with suppress(OSError):
                        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except OSError as error:
                    line.close()
                    failure = error
                except BaseException:
                    line.close()
                    raise
                else:
                    return line
        raise failure

    async def open(
        self, *, tls: bool, limit: int = 2**16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the two ends of a new connection."""
        line = await self.connect()
        try:
            async with asyncio.timeout(self.connect_timeout.total_seconds()):
                return await asyncio.open_connection(
                    sock=line,
                    limit=limit,
                    ssl=self.trust() if tls else None,
                    server_hostname=self.host if tls else None,
                )
        except BaseException:
            line.close()
            raise


def read_server(url: object, options: Mapping[str, object], *, ports: Mapping[str, int]) -> Server:
    """Take the address of a server apart; `ports` has the usual port of each scheme.

    A message about a wrong one shows no more of it than its host.
    """
    example = f"{next(iter(ports))}://server.example.com"
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise ConfigurationError(
            "The address of a server is not text, or has a blank or a line break in it; write one "
            f'such as "{example}".'
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigurationError(
            "The address of a server cannot be read: its port is not a number up to 65535, or the "
            f'brackets of an IPv6 address are not closed; write one such as "{example}".'
        ) from None
    if parts.scheme not in ports:
        raise ConfigurationError(
            f"The address of a server begins with {parts.scheme!r}; it begins with "
            f'{" or ".join(ports)}, such as "{example}".'
        )
    _refuse_more(parts, host, port, example)
    given_private = options.get("allow_private", False)
    allowed = read_networks(given_private, options.get("allow_networks", ()))
    _check_host(host, allowed)
    return Server(
        scheme=parts.scheme,
        host=host,
        port=port or ports[parts.scheme],
        path=unquote(parts.path.removeprefix("/")),
        allowed=allowed,
        tls=read_tls(options.get("tls")),
        connect_timeout=read_connect_timeout(options.get("connect_timeout", "10s")),
    )


def read_login(options: Mapping[str, object]) -> tuple[str, str] | None:
    """Return the user and the password, if there are any."""
    user, password = options.get("user"), options.get("password")
    if user is None and password is None:
        return None
    for name, value in (("user", user), ("password", password)):
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ConfigurationError(
                f"The {name} for the server is missing, not text, or has a character that is not "
                "printable; pass both user and password, or neither. A line break at the end, as "
                "files have it, is a common cause."
            )
    return str(user), str(password)


def _refuse_more(parts: SplitResult, host: str, port: int | None, example: str) -> None:
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"The address of {host!r} holds a user or a password, which would show wherever an "
            "address is shown; pass user=… and password=… instead."
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"The address of {host!r} has something after a '?' or a '#', which nothing reads; "
            "pass options by their names."
        )
    if not host or port == 0:
        raise ConfigurationError(
            f'The address of a server names no host, or the port 0; write one such as "{example}".'
        )


def _check_host(host: str, allowed: Sequence[Network]) -> None:
    """Refuse an address that every delivery would be refused for; names are looked up later."""
    addresses = _LOCAL if host.rstrip(".") == "localhost" else (host,)
    kinds = {check_address(one, allowed) for one in addresses}
    if kinds & {None, NO_ADDRESS}:
        return
    raise ConfigurationError(
        f"The server is at {host!r}, an address that is {kinds.pop()}, and only public ones are "
        f'connected to; pass allow_networks=["{addresses[0]}"] to allow this one, or '
        "allow_private=True to allow all."
    )
