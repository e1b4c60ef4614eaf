"""The proxy of the tests does to connections what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.servers.listening import listening
from tests.servers.proxy import Proxy, proxying

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy to a server that repeats what it hears."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)

    async with listening(repeat) as port, proxying("127.0.0.1", port) as proxy:
        yield proxy


@pytest.fixture
async def line(proxy: Proxy) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await echo((reader, writer)) == b"hello"
    yield reader, writer
    writer.transport.abort()


async def echo(line: Line) -> bytes:
    reader, writer = line
    writer.write(b"hello")
    return await reader.readexactly(5)


async def is_silent(line: Line) -> bool:
    try:
        async with asyncio.timeout(0.2):
            await echo(line)
    except TimeoutError:
        return True
    return False


async def test_a_delay_and_a_narrow_line_let_everything_through(proxy: Proxy, line: Line) -> None:
    loop = asyncio.get_running_loop()
    proxy.delay(0.05)
    proxy.throttle(100)

    begun = loop.time()
    heard = await echo(line)

    assert heard == b"hello"
    assert loop.time() - begun >= 2 * (0.05 + 5 / 100) - 0.02


async def test_a_stalled_line_is_silent_until_it_is_resumed(proxy: Proxy, line: Line) -> None:
    proxy.stall()
    was_silent = await is_silent(line)
    proxy.resume()

    assert was_silent
    assert await line[0].readexactly(5) == b"hello"


async def test_a_frozen_line_stays_silent_and_new_ones_work(proxy: Proxy, line: Line) -> None:
    proxy.freeze()
    other = await asyncio.open_connection("127.0.0.1", proxy.port)

    assert await echo(other) == b"hello"
    assert await is_silent(line)
    assert proxy.accepted == 2
    other[1].transport.abort()


async def test_a_reset_line_breaks_at_once(proxy: Proxy, line: Line) -> None:
    proxy.reset()

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await line[0].readexactly(1)


async def test_a_half_closed_line_says_no_more(proxy: Proxy, line: Line) -> None:
    proxy.half_close()

    assert await line[0].read() == b""


async def test_a_line_is_cut_after_so_many_bytes_once(proxy: Proxy, line: Line) -> None:
    proxy.cut_after(12)
    heard = [await echo(line), await echo(line)]

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await echo(line)
    other = await asyncio.open_connection("127.0.0.1", proxy.port)

    assert heard == [b"hello"] * 2
    assert await echo(other) == b"hello"
    other[1].transport.abort()
