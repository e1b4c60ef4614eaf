"""A TCP proxy that spoils connections on demand: slow, silent, cut or reset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.servers.listening import listening, reset
from tests.waiting import spend

__all__ = ["Proxy", "proxying"]

_MOST_AT_ONCE = 64 * 1024


class Proxy:
    """Stands between clients and one server; what it does to them may change at any moment."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.accepted = 0
        self._target = (host, port)
        self._lines: set[_Line] = set()
        self._latency = 0.0
        self._rate: int | None = None
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()
        self._left: int | None = None

    @property
    def carried(self) -> int:
        """How many connections there are."""
        return len(self._lines)

    def delay(self, seconds: float) -> None:
        """Pass everything on this much later; 0 heals."""
        self._latency = seconds

    def throttle(self, bytes_per_second: int | None) -> None:
        """Pass on no more than this, in each direction of each connection."""
        self._rate = bytes_per_second

    def stall(self) -> None:
        """Pass nothing on, of connections new and old, and close none, until `resume`."""
        self._is_flowing.clear()

    def freeze(self) -> None:
        """Never pass anything on again for the connections there are; new ones work."""
        for line in self._lines:
            line.is_frozen = True

    def resume(self) -> None:
        """Let everything flow again."""
        self._is_flowing.set()

    def reset(self) -> None:
        """Reset every connection there is, as a firewall does that has forgotten them."""
        for line in tuple(self._lines):
            line.abort()

    def half_close(self) -> None:
        """Tell the clients that the server has no more to say, but go on listening to them."""
        for line in tuple(self._lines):
            line.end_answers()

    def cut_after(self, count: int) -> None:
        """Pass on this many bytes of answers, then reset the connection they belong to, once."""
        self._left = count

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until either side ends."""
        self.accepted += 1
        try:
            there, towards = await asyncio.open_connection(*self._target)
        except OSError:
            reset(writer)
            return
        line = _Line(writer, towards)
        self._lines.add(line)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(line, reader, towards, is_answer=False))
                group.create_task(self._pump(line, there, writer, is_answer=True))
        finally:
            self._lines.discard(line)
            line.abort()

    async def _pump(
        self,
        line: _Line,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        with suppress(OSError, RuntimeError):  # either side is gone, or was half closed
            while data := await source.read(min(_MOST_AT_ONCE, self._rate or _MOST_AT_ONCE)):
                if self._latency:
                    await spend(self._latency)
                if self._rate is not None:
                    await spend(len(data) / self._rate)
                await self._is_flowing.wait()
                if line.is_frozen:
                    await asyncio.Event().wait()
                if is_answer and self._is_used_up(len(data)):
                    break
                target.write(data)
                await target.drain()
            else:
                if target.can_write_eof():
                    target.write_eof()
                return
        line.abort()

    def _is_used_up(self, count: int) -> bool:
        if self._left is None:
            return False
        self._left -= count
        if self._left > 0:
            return False
        self._left = None
        return True


class _Line:
    """One client's connection, and ours to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client = client
        self._server = server
        self.is_frozen = False

    def abort(self) -> None:
        reset(self._client)
        reset(self._server)

    def end_answers(self) -> None:
        if not self._client.is_closing():
            self._client.write_eof()


@asynccontextmanager
async def proxying(host: str, port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a server on a port of its own while the block lasts."""
    proxy = Proxy(host, port)
    async with listening(proxy.carry) as proxy.port:
        yield proxy
