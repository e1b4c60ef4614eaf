"""A service that takes every request, as a process of its own: `python -m benchmarks.receiver`.

It does as little as a server can, so that the clients are what is measured.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

__all__ = ["Service"]


class Service(asyncio.Protocol):
    """Answers what asyncio hands it: enough of HTTP for requests that come whole."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        assert self._transport is not None
        self._rest += data
        while True:
            head, mark, body = self._rest.partition(b"\r\n\r\n")
            if not mark:
                return
            length = next(
                int(line[15:])
                for line in head.split(b"\r\n")
                if line[:15].lower() == b"content-length:"
            )
            if len(body) < length:
                return
            self._rest = body[length:]
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve())
    else:
        uvloop.run(_serve())
