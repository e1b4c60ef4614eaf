"""The connections: both clients against a server that really listens."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive import Redrive, ServerError
from redrive.client import AsyncClient, Client
from redrive.web.server import HttpServer, listen


class Running:
    """A server on a thread of its own, and the addresses at which to find it."""

    def __init__(self, app: Redrive, listening: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.server = HttpServer(app.asgi(login=False), proxies=(), root_path="", grace=5)
        self._listening = listening

    def run(self) -> None:
        asyncio.run(self.server.serve([self._listening]))


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    app = Redrive(f"sqlite:///{folder / 'shop.db'}")

    @app.handler("order.*", name="billing")
    async def bill(event: object) -> None: ...

    asyncio.run(_create(app))
    with listen("127.0.0.1", 0) as listening:
        server = Running(app, listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.server.stop()
            thread.join()


async def _create(app: Redrive) -> None:
    async with app:
        await app.operations.status()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served")) as server:
        yield server


def test_the_client_that_blocks_publishes_looks_and_listens(server: Running) -> None:
    with Client(server.url) as client:
        receipt = client.publish("order.paid", {"order": "ü"}, key="ä b/c?")
        events = [one.id for one in client.each_event()]
        for figures in client.live():
            assert [one.name for one in figures.destinations] == ["billing"]
            break

        assert receipt.event_id in events
        assert client.show_event(receipt.event_id).event.key == "ä b/c?"


def test_threads_share_a_client(server: Running) -> None:
    with Client(server.url) as client, ThreadPoolExecutor(4) as threads:
        receipts = list(threads.map(lambda one: client.publish("order.paid", one), range(20)))

    assert len({one.event_id for one in receipts}) == 20


async def test_the_async_client_does_the_same(server: Running) -> None:
    async with AsyncClient(server.url) as client:
        receipts = await asyncio.gather(
            *(client.publish("order.paid", number) for number in range(20))
        )
        figures = await anext(client.live())

        assert [one.name for one in figures.destinations] == ["billing"]
        told = await client.show_event(receipts[0].event_id)
        assert told.event.type == "order.paid"


async def test_nobody_at_the_address_is_told_with_it() -> None:
    with listen("127.0.0.1", 0) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

    async with AsyncClient(url, patience="0s") as client:
        with pytest.raises(ServerError, match=f"{url} cannot be reached"):
            await client.status()
    with pytest.raises(ServerError, match=f"{url} cannot be reached"):
        Client(url, patience="0s").status()


async def test_who_hangs_up_or_says_nothing_has_lost_the_answer() -> None:
    with listen("127.0.0.1", 0) as silent, ThreadPoolExecutor(1) as thread:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for timeout in ("30s", "200ms"):
            if timeout == "30s":
                thread.submit(_hang_up, silent, 2)
            async with AsyncClient(url, timeout=timeout) as client:
                with pytest.raises(ServerError, match="may have been done"):
                    await client.pause("billing", why="x")
            with pytest.raises(ServerError, match="may have been done"):
                Client(url, timeout=timeout).pause("billing", why="x")


def _hang_up(listening: socket.socket, times: int) -> None:
    for _ in range(times):
        connection, _ = listening.accept()
        connection.recv(10_000)
        connection.close()
