"""A connection to a server in this process, which can be cut at will."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.types import ASGIApp

from redrive.client.connection import AnswerLostError, NotConnectedError, Reply, Request
from tests.web.client import Client


class AsgiConnection:
    """Sends requests to an ASGI app; `trouble` says what becomes of the next ones."""

    def __init__(self, asgi: ASGIApp, *trouble: str) -> None:
        self._client = Client(asgi)
        self.trouble = list(trouble)
        self.sent: list[Request] = []

    async def send(self, request: Request) -> Reply:
        self.sent.append(request)
        fate = self.trouble.pop(0) if self.trouble else ""
        if fate == "refused":
            raise NotConnectedError("nobody listens")
        if fate == "busy":
            return Reply(status=503, headers={"retry-after": "2"}, body=b"busy")
        if fate == "foreign":
            return Reply(status=404, headers={}, body=b"<html>not here</html>")
        if fate == "moved":
            return Reply(status=307, headers={"location": "https://evil.example"}, body=b"")
        answer = await self._client.send(
            request.method,
            request.path,
            body=request.body,
            headers={
                name: value for name, value in request.headers.items() if name != "content-type"
            },
        )
        if fate == "lost":
            raise AnswerLostError("the line was cut")
        return Reply(status=answer.status, headers=answer.headers, body=answer.body)

    async def stream(self, request: Request) -> AsyncIterator[bytes | Reply]:
        self.sent.append(request)
        fate = self.trouble.pop(0) if self.trouble else ""
        if fate == "lost":
            raise AnswerLostError("the line was cut")
        answer = await self._client.send(
            request.method, request.path, headers=dict(request.headers)
        )
        if answer.status != 200:
            yield Reply(status=answer.status, headers=answer.headers, body=answer.body)
            return
        for line in answer.body.split(b"\n"):
            yield line

    async def close(self) -> None:
        pass
