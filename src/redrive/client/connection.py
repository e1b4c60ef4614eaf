"""Connections: how requests get to one server, and answers back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from redrive.errors import ConfigurationError

__all__ = ["Address", "AnswerLostError", "Connection", "NotConnectedError", "Reply", "Request"]

LONGEST_ANSWER = 64 * 2**20
"""More than any page holds; who answers more is no server of ours."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request; `path` has its query, and no header of it is ever shown."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotConnectedError(Exception):
    """The server was not reached, so nothing was done."""


class AnswerLostError(Exception):
    """The server was reached, and no whole answer came: what was asked may have been done."""


class Connection(Protocol):
    """Sends requests to one server, and follows no redirection."""

    async def send(self, request: Request) -> Reply:
        """Return the answer; raises `NotConnectedError` or `AnswerLostError` if there is none."""

    def stream(self, request: Request) -> AsyncIterator[bytes | Reply]:
        """Return the lines of an answer as they come, or the whole answer if it is a refusal."""

    async def close(self) -> None:
        """Let go of what is open; a later request opens it again."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is: by which scheme, host and port, and below which path."""

    scheme: str
    host: str
    port: int
    root: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == (443 if self.scheme == "https" else 80)
        return f"{self.scheme}://{host}{'' if is_usual else f':{self.port}'}{self.root}"

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read the URL of a server; a secret in it would end up in logs, so it is refused."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _no_server("It cannot be read as a URL") from None
        if parts.username is not None or parts.password is not None or parts.query:
            raise _no_server(
                "It has a name, a password or a query in it; a token goes into REDRIVE_TOKEN, or "
                "is an argument of the client"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_server(f"It is {url!r:.100}")
        usual = 443 if parts.scheme == "https" else 80
        root = parts.path.rstrip("/").removesuffix("/api/v1")
        return cls(scheme=parts.scheme, host=parts.hostname, port=port or usual, root=root)


def _no_server(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The address of the server is not good. {why}; write it like https://redrive.example.com."
    )
