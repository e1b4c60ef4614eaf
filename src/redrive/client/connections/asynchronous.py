"""HTTP by aiohttp: many requests at once on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from redrive.client.connection import (
    LONGEST_ANSWER,
    Address,
    AnswerLostError,
    NotConnectedError,
    Reply,
    Request,
)
from redrive.errors import ConfigurationError

try:
    import aiohttp
    from yarl import URL
except ModuleNotFoundError as error:
    raise ConfigurationError(
        f"The async client needs {error.name}, which is not installed; "
        "install it with: pip install 'redrive[http]'"
    ) from error

__all__ = ["AsyncConnection"]

_IDLE_SECONDS = 3.0
"""A server hangs up on who says nothing for five; what was sent then would be lost."""
_MOST_AT_ONCE = 100


class AsyncConnection:
    """Sends requests over connections that are kept for a moment, on the running event loop."""

    def __init__(self, address: Address, *, timeout: float) -> None:
        self._address = address
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._between_lines = aiohttp.ClientTimeout(sock_connect=timeout, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: Request) -> Reply:
        """Return the answer."""
        try:
            async with self._asked(request, self._timeout) as response:
                return await _read(response)
        except aiohttp.ClientConnectorError as error:
            raise NotConnectedError(_said(error)) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AnswerLostError(_said(error)) from error

    async def stream(self, request: Request) -> AsyncIterator[bytes | Reply]:
        """Return the lines of an answer as they come."""
        try:
            async with self._asked(request, self._between_lines) as response:
                if response.status != 200:  # noqa: PLR2004 - all else is a refusal
                    yield await _read(response)
                    return
                async for line in _lines(response):
                    yield line
        except aiohttp.ClientConnectorError as error:
            raise NotConnectedError(_said(error)) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AnswerLostError(_said(error)) from error

    async def close(self) -> None:
        """Close what is open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _asked(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.client._RequestContextManager:
        return self._opened().request(
            request.method,
            URL(f"{self._address}{request.path}", encoded=True),
            data=request.body or None,
            headers=request.headers,
            allow_redirects=False,
            timeout=timeout,
        )

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            connector = aiohttp.TCPConnector(keepalive_timeout=_IDLE_SECONDS, limit=_MOST_AT_ONCE)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar()
            )
            self._loop = loop
        return self._session


async def _read(response: aiohttp.ClientResponse) -> Reply:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LONGEST_ANSWER:
            raise AnswerLostError("the answer is longer than any of a server of Redrive's")
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status, headers=headers, body=bytes(body))


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Split what comes into lines of any length; aiohttp's own are short."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
