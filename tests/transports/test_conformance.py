"""Our own ways against the suite: HTTP, files, standard output, brokers on real servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import aio_pika
import pytest
from nats import connect
from redis import Redis

from redrive import http
from redrive.transport import Way
from redrive.transports.amqp import amqp
from redrive.transports.file import file
from redrive.transports.http import Bearer
from redrive.transports.nats import nats
from redrive.transports.redis_stream import redis_stream
from redrive.transports.stdout import stdout
from tests.conformance.transports import LocalWayConformance, RemoteWayConformance, Site
from tests.http.receiver import Receiver, receiving
from tests.servers.brokers import Broker
from tests.transports.sinks import LokiSite, OtlpSite, SentrySite

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105 - of the tests
PASSWORD = "a-password-that-nobody-may-see"  # noqa: S105 - of the tests
BAD = b'{"order":"bad"}'


class HttpSite(Site):
    secrets = (TOKEN,)
    bad = BAD
    batch: int | None = None

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.port = int(receiver.url.rpartition(":")[2])
        receiver.refuses(BAD, status=422)

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return http(
            f"http://{host}:{port}/hooks?key={TOKEN}",
            auth=Bearer(TOKEN),
            allow_networks=allow_networks,
            batch=self.batch,
        )

    async def arrived(self) -> list[str]:
        good = [one for one in self._receiver.requests if BAD not in one.body]
        if self.batch is None:
            return [one.headers["webhook-id"] for one in good]
        return [event["id"] for one in good for event in json.loads(one.body)]


class HttpBatchSite(HttpSite):
    batch = 5


class FileSite(Site):
    def __init__(self, path: Path) -> None:
        self._path = path

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return file(str(self._path))

    async def arrived(self) -> list[str]:
        return _ids(self._path.read_text("utf-8"))


class StdoutSite(Site):
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return stdout()

    async def arrived(self) -> list[str]:
        return _ids(self._capture.readouterr().out)


class TestHttp(RemoteWayConformance):
    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with receiving() as receiver:
            yield HttpSite(receiver)


class TestHttpInBatches(RemoteWayConformance):
    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with receiving() as receiver:
            yield HttpBatchSite(receiver)


class TestLoki(RemoteWayConformance):
    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with receiving() as receiver:
            yield LokiSite(receiver)


class TestOtlp(RemoteWayConformance):
    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with receiving() as receiver:
            yield OtlpSite(receiver)


class TestSentry(RemoteWayConformance):
    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with receiving() as receiver:
            yield SentrySite(receiver)


class TestFile(LocalWayConformance):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        return FileSite(tmp_path / "events.jsonl")


class TestStdout(LocalWayConformance):
    @pytest.fixture
    def site(self, capfd: pytest.CaptureFixture[str]) -> Site:
        return StdoutSite(capfd)


class ValkeySite(Site):
    secrets = (PASSWORD,)

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = Redis(port=port, decode_responses=True)
        self.client.flushall()
        self.admit()

    def admit(self) -> None:
        """Let the user in, whom a restart has forgotten."""
        self.client.acl_setuser(
            "shop", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"]
        )

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return redis_stream(
            f"redis://{host}:{port}/0",
            stream="orders",
            user="shop",
            password=PASSWORD,
            allow_networks=allow_networks,
        )

    async def arrived(self) -> list[str]:
        entries = cast("list[tuple[str, dict[str, str]]]", self.client.xrange("orders"))
        return [fields["id"] for _, fields in entries]


class NatsSite(Site):
    """Its stream takes only small messages, and knows repeats."""

    bad = b'{"order":"' + b"x" * 5000 + b'"}'

    def __init__(self, port: int) -> None:
        self.port = port
        self.name = f"S{uuid4().hex}"

    async def reconnect(self) -> None:
        """Look at it by a connection of its own."""
        self.client = await connect(f"nats://127.0.0.1:{self.port}", allow_reconnect=False)
        self.stream = self.client.jetstream()

    async def prepare(self) -> None:
        await self.reconnect()
        await self.stream.add_stream(name=self.name, subjects=[f"{self.name}.>"], max_msg_size=2000)

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return nats(
            f"nats://{host}:{port}",
            prefix=self.name,
            stream=self.name,
            user="shop",
            password=PASSWORD,
            allow_networks=allow_networks,
        )

    async def arrived(self) -> list[str]:
        state = (await self.stream.stream_info(self.name)).state
        found = [
            await self.stream.get_msg(self.name, number) for number in range(1, state.last_seq + 1)
        ]
        return [(one.headers or {})["Redrive-Id"] for one in found]


class RabbitSite(Site):
    """Its queue takes what the exchange leads there: one routing key leads nowhere."""

    secrets = (PASSWORD,)

    def __init__(self, port: int) -> None:
        self.port = port
        self.name = f"orders-{uuid4().hex}"

    async def prepare(self) -> None:
        self.connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/")
        self.channel = await self.connection.channel()
        exchange = await self.channel.declare_exchange(self.name, "topic")
        self.queue = await self.channel.declare_queue(self.name)
        await self.queue.bind(exchange, "order.#")

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return amqp(f"amqp://{host}:{port}/", exchange=self.name, allow_networks=allow_networks)

    async def arrived(self) -> list[str]:
        found: list[str] = []
        while message := await self.queue.get(fail=False):
            found.append(message.message_id or "")
        return found


class TestRedisStream(RemoteWayConformance):
    @pytest.fixture
    def site(self, valkey: Broker) -> Iterator[Site]:
        site = ValkeySite(valkey.port)
        yield site
        site.client.close()


class TestNats(RemoteWayConformance):
    @pytest.fixture
    async def site(self, nats_server: Broker) -> AsyncIterator[Site]:
        site = NatsSite(nats_server.port)
        await site.prepare()
        yield site
        await site.stream.delete_stream(site.name)
        await site.client.close()


class TestAmqp(RemoteWayConformance):
    @pytest.fixture
    async def site(self, rabbit: Broker) -> AsyncIterator[Site]:
        site = RabbitSite(rabbit.port)
        await site.prepare()
        yield site
        await site.queue.delete(if_unused=False, if_empty=False)
        await site.connection.close()


def _ids(lines: str) -> list[str]:
    read: list[dict[str, Any]] = [json.loads(line) for line in lines.splitlines()]
    return [one["id"] for one in read]
