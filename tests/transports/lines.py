"""A way as a user may write one, to a server that reads lines: what the suite is tried on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from redrive.model.delivery import Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Way
from redrive.transports.failures import broken
from redrive.transports.server import Server, read_server
from tests.conformance.transports import Site
from tests.servers.listening import listening

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SECRET = "a secret of the line"  # noqa: S105 - of the tests
BAD = b'{"order":"bad"}'


class LineServer(Site):
    """Answers `ok` to each line, and `no` to what it will never take."""

    secrets = (SECRET,)
    bad = BAD

    def __init__(self) -> None:
        self.ids: list[str] = []

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        options = {"allow_networks": allow_networks}
        return LineTransport(read_server(f"line://{host}:{port}", options, ports={"line": 1}))

    async def arrived(self) -> list[str]:
        return self.ids

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            number, _, payload = line.decode().partition(" ")
            is_good = payload.strip() != BAD.decode()
            if is_good:
                self.ids.append(number)
            writer.write(b"ok\n" if is_good else b"no\n")


@asynccontextmanager
async def line_server() -> AsyncIterator[LineServer]:
    site = LineServer()
    async with listening(site.serve) as site.port:
        yield site


class LineTransport:
    """One connection for each event that is under way, kept for the next."""

    batch = 5

    def __init__(self, server: Server) -> None:
        self.server = server
        self.free: list[Line] = []

    def __repr__(self) -> str:
        return f"LineTransport({self.server.shown!r})"

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [await self.attempt(one) for one in deliveries]

    async def attempt(self, one: Leased) -> Outcome:
        try:
            line = self.free.pop() if self.free else await self.connect()
        except OSError as error:
            return self.fault(error)
        try:
            answer = await self.ask(line, one)
        except (OSError, EOFError) as error:
            line[1].transport.abort()
            return self.fault(error)
        except asyncio.CancelledError:
            self.end(line)
            raise
        self.free.append(line)
        return self.judge(answer)

    async def connect(self) -> Line:
        return await self.server.open(tls=False)

    async def ask(self, line: Line, one: Leased) -> bytes:
        reader, writer = line
        writer.write(f"{one.event.id} ".encode() + bytes(one.event.payload) + b"\n")
        await writer.drain()
        return await reader.readuntil(b"\n")

    def end(self, line: Line) -> None:
        """Nobody knows what would come by it next."""
        line[1].transport.abort()

    def fault(self, error: Exception) -> Faulted:
        return broken(self.server, error, Terms())

    def judge(self, answer: bytes) -> Outcome:
        if answer == b"ok\n":
            return Succeeded()
        fault = Fault(error_class="Refused", message="the server said no", rule="said no")
        return Faulted(fault=fault, nature=Nature.TERMINAL)

    async def close(self) -> None:
        free, self.free = self.free, []
        for _, writer in free:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def replaced(server: Server, **fields: object) -> Server:
    return msgspec.structs.replace(server, **fields)
