"""The standard library's HTTP: needs nothing else, and blocks its thread."""

from __future__ import annotations

import select
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple

from redrive.client.connection import (
    LONGEST_ANSWER,
    Address,
    AnswerLostError,
    NotConnectedError,
    Reply,
    Request,
)
from redrive.clock import Clock

__all__ = ["StandardConnection"]

_IDLE_SECONDS = 3.0
"""A server hangs up on who says nothing for five; what was sent then would be lost."""
_MOST_IDLE = 10


class _Idle(NamedTuple):
    connection: HTTPConnection
    since: float


class StandardConnection:
    """Sends requests over connections that are kept for a moment; any thread may use it."""

    def __init__(self, address: Address, *, timeout: float, clock: Clock) -> None:
        self._address = address
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []
        self._tls: ssl.SSLContext | None = None

    async def send(self, request: Request) -> Reply:
        """Return the answer."""
        connection, response = self._ask(request)
        try:
            body = response.read(LONGEST_ANSWER + 1)
        except (OSError, HTTPException) as error:
            connection.close()
            raise AnswerLostError(_said(error)) from error
        if len(body) > LONGEST_ANSWER:
            connection.close()
            raise AnswerLostError("the answer is longer than any of a server of Redrive's")
        self._keep(connection, response)
        return _reply(response, body)

    async def stream(self, request: Request) -> AsyncIterator[bytes | Reply]:
        """Return the lines of an answer as they come."""
        connection, response = self._ask(request)
        try:
            if response.status != 200:  # noqa: PLR2004 - all else is a refusal
                yield _reply(response, response.read(LONGEST_ANSWER))
                return
            while line := response.readline(LONGEST_ANSWER):
                yield line.rstrip(b"\r\n")
        except (OSError, HTTPException) as error:
            raise AnswerLostError(_said(error)) from error
        finally:
            connection.close()

    async def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.connection.close()

    def _ask(self, request: Request) -> tuple[HTTPConnection, HTTPResponse]:
        connection = self._take()
        try:
            if connection.sock is None:
                connection.connect()
        except (OSError, HTTPException) as error:
            connection.close()
            raise NotConnectedError(_said(error)) from error
        try:
            connection.request(
                request.method,
                f"{self._address.root}{request.path}",
                body=request.body or None,
                headers=dict(request.headers),
            )
            return connection, connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise AnswerLostError(_said(error)) from error

    def _take(self) -> HTTPConnection:
        now = self._clock.monotonic()
        while True:
            with self._lock:
                idle = self._idle.pop() if self._idle else None
            if idle is None:
                return self._new()
            if now - idle.since < _IDLE_SECONDS and not _is_hung_up(idle.connection):
                return idle.connection
            idle.connection.close()

    def _keep(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        if response.will_close:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(_Idle(connection, self._clock.monotonic()))
                return
        connection.close()

    def _new(self) -> HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._address.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)


def _is_hung_up(connection: HTTPConnection) -> bool:
    """Tell whether the server has closed it: nothing else can be read between two requests."""
    with suppress(OSError, ValueError):
        return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])
    return True


def _reply(response: HTTPResponse, body: bytes) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(status=response.status, headers=headers, body=body)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
