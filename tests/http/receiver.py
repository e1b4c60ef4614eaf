"""A real HTTP server on loopback that answers by script and remembers what reached it."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from tests.servers.listening import listening, reset

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Received(NamedTuple):
    """One request; `peer` tells connections apart, and header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: object


class Receiver:
    """Gives the answers of its script, one per request, and 204 when that is over."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.most_at_once = 0
        self.script: deque[Answer] = deque()
        self.url = ""
        self._at_once = 0
        self._always: Answer | None = None
        self._refused: bytes | None = None
        self._refusal: Answer = answer(400)

    def answers(self, *answers: Answer) -> None:
        """Add to the script."""
        self.script.extend(answers)

    def always(self, given: Answer) -> None:
        """Give this answer to every request."""
        self._always = given

    def refuses(self, part: bytes, *, status: int) -> None:
        """Answer with this status whenever the body holds that part."""
        self._refused, self._refusal = part, answer(status)

    @property
    def connections(self) -> int:
        """How many connections the requests came by."""
        return len({one.peer for one in self.requests})

    @property
    def ids(self) -> list[str]:
        """The message ids, in order."""
        return [one.headers["webhook-id"] for one in self.requests]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Take note, and answer."""
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.requests.append(
                Received(
                    method=request.method,
                    path=request.path_qs,
                    headers={name.lower(): value for name, value in request.headers.items()},
                    body=await request.read(),
                    peer=request.transport and request.transport.get_extra_info("peername"),
                )
            )
            if self._refused is not None and self._refused in self.requests[-1].body:
                return await self._refusal(request)
            if self._always is not None:
                return await self._always(request)
            if self.script:
                return await self.script.popleft()(request)
            return web.Response(status=204)
        finally:
            self._at_once -= 1


def answer(status: int, body: str = "", *, reason: str | None = None, **headers: str) -> Answer:
    """Answer with a status, a text and headers (`retry_after="5"` is `Retry-After: 5`)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, reason=reason, headers=named)

    return give


def bytes_answer(status: int, body: bytes, **headers: str) -> Answer:
    """Answer with a status and bytes as they are."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=named)

    return give


def endless(status: int) -> Answer:
    """Answer with a body that goes on until the other side has had enough."""

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"a" * 2**16)
        return response

    return give


class Silence:
    """Answers nothing; its events tell that a request has come, and that its sender has gone."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, _: web.Request) -> web.StreamResponse:
        self.began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended.set()
        raise AssertionError


@asynccontextmanager
async def receiving(
    *, tls: ssl.SSLContext | None = None, name: str = "127.0.0.1"
) -> AsyncIterator[Receiver]:
    """Run a receiver beside the block."""
    receiver = Receiver()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        _, port = runner.addresses[0]
        receiver.url = f"http{'s' if tls else ''}://{name}:{port}"
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering_bytes(answered: bytes, *, resets: bool = False) -> AsyncIterator[str]:
    """Run a server that reads one request, answers these bytes and hangs up; yields its URL.

    With `resets` it hangs up as one that crashes does.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answered)
        await writer.drain()
        if resets:
            reset(writer)

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}"
