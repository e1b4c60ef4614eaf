"""A client that speaks ASGI to an app in this process."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    cookies: tuple[str, ...] = ()

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was answered
        return msgspec.json.decode(self.body)


class Client:
    """Sends requests, with a token if it has one; a body may never come, or never end."""

    def __init__(
        self,
        asgi: ASGIApp,
        *,
        token: str | None = None,
        host: str = "localhost",
        is_slow: bool = False,
        is_endless: bool = False,
        scheme: str = "http",
        address: str = "127.0.0.1",
    ) -> None:
        self._asgi = asgi
        self._is_slow = is_slow
        self._is_endless = is_endless
        self._scheme = scheme
        self._address = address
        self._headers = {"host": host}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        encoded = b"" if body is None else msgspec.json.encode(body)
        return await self.send("POST", path, body=encoded, headers=headers)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        raw: tuple[tuple[bytes, bytes], ...] = (),
        root_path: str = "",
    ) -> Answer:
        given = {**self._headers, **({"content-type": "application/json"} if body else {})}
        given |= {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self._scheme,
            "path": root_path + unquote(path, errors="replace"),
            "raw_path": path.encode(),
            "root_path": root_path,
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()] + list(raw),
            "client": (self._address, 50000),
            "server": ("127.0.0.1", 8321),
        }
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if self._is_slow:
                await asyncio.Event().wait()
            if self._is_endless:
                return {"type": "http.request", "body": b" " * 2**16, "more_body": True}
            return incoming.pop(0) if incoming else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._asgi(scope, receive, send)
        start = sent[0]
        return Answer(
            start["status"],
            {k.decode(): v.decode() for k, v in start["headers"]},
            b"".join(one.get("body", b"") for one in sent[1:]),
            tuple(v.decode() for k, v in start["headers"] if k == b"set-cookie"),
        )
