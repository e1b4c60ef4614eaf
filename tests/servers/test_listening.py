"""The small servers of the tests leave nothing open, whenever they end."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.servers.listening import listening
from tests.waiting import spend


@pytest.mark.parametrize("steps", range(6))
def test_a_server_that_ends_while_somebody_connects_leaves_nothing_open(steps: int) -> None:
    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())

    async def connect_and_leave(client: socket.socket) -> None:
        async with listening(hear) as port:
            client.connect(("127.0.0.1", port))
            for _ in range(steps):
                await spend(0)

    with warnings.catch_warnings(record=True) as said, socket.socket() as client:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(connect_and_leave(client))
        gc.collect()

    assert [str(one.message) for one in said] == []
