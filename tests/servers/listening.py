"""A small TCP server that leaves no connection open when its block ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

__all__ = ["listening", "reset"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_AT_ONCE = struct.pack("ii", 1, 0)


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """Serve each connection on a port of its own while the block lasts; yields the port.

    `asyncio.start_server` would do, were it not that it leaks whom it is just accepting when it
    is closed; this one accepts in a single step.
    """
    loop = asyncio.get_running_loop()
    serving: set[asyncio.Task[None]] = set()
    fresh: set[socket.socket] = set()

    def accept() -> None:
        with suppress(BlockingIOError):
            connection, _ = listener.accept()
            fresh.add(connection)
            task = loop.create_task(carry(connection))
            serving.add(task)
            task.add_done_callback(serving.discard)

    async def carry(connection: socket.socket) -> None:
        fresh.discard(connection)
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            with suppress(OSError, EOFError):  # the other side has gone
                await serve(reader, writer)
            writer.close()
        except asyncio.CancelledError:
            reset(writer)
            raise
        finally:
            with suppress(OSError):
                await writer.wait_closed()

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        listener.settimeout(0)
        loop.add_reader(listener, accept)
        try:
            yield listener.getsockname()[1]
        finally:
            loop.remove_reader(listener)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            for connection in fresh:  # their tasks were cancelled before they began
                connection.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, not with a farewell."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()
