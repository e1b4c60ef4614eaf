"""How fast each way out sends, without a store, beside a bare client of its library in a loop.

Ours is handed deliveries as a worker hands them over.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from itertools import count
from typing import Any

import aio_pika
import aiohttp
import aiosmtplib
import nats as nats_library
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from redis.asyncio import Redis

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.engine import TYPE
from benchmarks.measures.queue import PAYLOAD
from benchmarks.servers.http import Receiver
from benchmarks.study import Scale, Section, Study, turns
from redrive.clock import SystemClock
from redrive.model.outcome import Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Blueprint, Closing, Way
from redrive.transports.amqp import amqp
from redrive.transports.loki import loki
from redrive.transports.nats import nats
from redrive.transports.otlp import otlp
from redrive.transports.redis_stream import redis_stream
from redrive.transports.sentry import sentry
from redrive.transports.ses import ses
from redrive.transports.smtp import smtp
from tests.conformance.transports import a_delivery
from tests.servers.brokers import Nats, Rabbit, Valkey, a_broker
from tests.servers.daemon import free_port
from tests.waiting import eventually

__all__ = ["STUDY", "WAYS", "bare", "compare"]

_HERE = ["127.0.0.1"]
_TASKS = 100
_BATCH = 100
_BATCHES = 2
_LINES = 10
_MAILS = 5
_BODY = json.dumps(PAYLOAD).encode()
_REGION = "eu-central-1"
_KEY = "c0ffee00"
_numbers = count(time.time_ns() // 1_000_000)
_NAME = "bench"
_MAIL: dict[str, Any] = {
    "sender": "shop@example.com",
    "to": "ann@example.com",
    "subject": "Order",
    "text": "Hi.",
}

Send = Callable[[], Awaitable[None]]
"""Sends once: one event, or as many as the way sends together."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """One way and its bare client: how many tasks the client has, and how many events they send."""

    serve: Callable[[], Any]
    """Runs what is sent to while its block lasts, and gives its address."""
    way: Callable[[str], Way]
    client: Callable[[str, AsyncExitStack], Awaitable[Send]]
    tasks: int = _TASKS
    together: int = 1
    has_lines: bool = False
    """Whether each task of the client has a connection of its own."""
    smaller: int = 1
    """By how much fewer events are sent than by others, where each takes long."""


def bare(way: str) -> str:
    """Return the point of the bare client to compare with."""
    return f"{way}, bare"


async def compare(name: str, contest: Contest, scale: Scale) -> AsyncIterator[Run]:
    """Measure one way and its bare client by turns."""
    sample = max(_BATCH, scale.sample // contest.smaller)
    with contest.serve() as url:
        points = {bare(name): _theirs, name: _ours}
        for measure in points.values():  # what is done first is slower than the rest
            await measure(contest, url, _BATCH)
        for point, measure in turns(points, scale.rounds):
            yield Run(figures={"per_second": await measure(contest, url, sample)}, point=point)


async def _ours(contest: Contest, url: str, sample: int) -> float:
    way = contest.way(url)
    assert isinstance(way, Blueprint)
    transport = way.build(terms=Terms(), clock=SystemClock())
    deliveries = [a_delivery(next(_numbers), _BODY) for _ in range(sample)]
    size = transport.batch
    batches = iter([deliveries[begin : begin + size] for begin in range(0, sample, size)])

    async def loop() -> None:
        for batch in batches:
            for outcome in await transport.send(batch):
                assert isinstance(outcome, Succeeded), outcome

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        # While the last of a batch is awaited, the next is under way, as it is in a worker.
        for _ in range(max(_BATCHES, contest.tasks * contest.together // size)):
            group.create_task(loop())
    seconds = time.perf_counter() - began
    assert isinstance(transport, Closing)
    await transport.close()
    return sample / seconds


async def _theirs(contest: Contest, url: str, sample: int) -> float:
    calls = iter(range(-(-sample // contest.together)))
    async with AsyncExitStack() as stack:
        clients = contest.tasks if contest.has_lines else 1
        sends = [await contest.client(url, stack) for _ in range(clients)]

        async def loop(send: Send) -> None:
            for _ in calls:
                await send()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for task in range(contest.tasks):
                group.create_task(loop(sends[task % clients]))
        seconds = time.perf_counter() - began
    return sample / seconds


@contextmanager
def _receiver() -> Iterator[str]:
    with ExitStack() as stack, Receiver(stack).lend() as url:
        yield url.removesuffix("/hooks")


@contextmanager
def _mailbox() -> Iterator[str]:
    port = free_port()
    options = ["-n", "-l", f"127.0.0.1:{port}", "-c", "aiosmtpd.handlers.Sink"]
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "aiosmtpd", *options])
    try:
        yield f"smtp://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _broker(kind: type[Any], scheme: str) -> Callable[[], Any]:
    @contextmanager
    def serve() -> Iterator[str]:
        with a_broker(kind) as broker:
            yield f"{scheme}://127.0.0.1:{broker.port}"

    return serve


async def _stream(url: str, stack: AsyncExitStack) -> Send:
    client = Redis.from_url(url, max_connections=_LINES)
    stack.push_async_callback(client.aclose)

    async def send() -> None:
        pipeline = client.pipeline(transaction=False)
        for _ in range(_BATCH):
            pipeline.xadd(_NAME, {"id": "1", "type": TYPE, "payload": _BODY})
        await pipeline.execute()

    return send


async def _jetstream(url: str, stack: AsyncExitStack) -> Send:
    client = await nats_library.connect(url)
    stack.push_async_callback(client.close)
    stream = client.jetstream()
    await stream.add_stream(name=_NAME, subjects=[f"{_NAME}.>"])
    numbers = count()

    async def send() -> None:
        headers = {"Nats-Msg-Id": f"{time.time_ns()}-{next(numbers)}"}
        await stream.publish(f"{_NAME}.{TYPE}", _BODY, headers=headers)

    return send


async def _exchange(url: str, stack: AsyncExitStack) -> Send:
    connection = await aio_pika.connect(f"{url.replace('//', '//guest:guest@')}/")
    stack.push_async_callback(connection.close)
    channel = await connection.channel(publisher_confirms=True)
    await channel.declare_queue(_NAME, durable=True)

    async def send() -> None:
        message = aio_pika.Message(_BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, _NAME, mandatory=True)

    return send


async def _mailer(url: str, stack: AsyncExitStack) -> Send:
    port = int(url.rpartition(":")[2])
    client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, use_tls=False, start_tls=False)

    async def connect() -> bool:
        try:
            await client.connect()
        except aiosmtplib.SMTPConnectError:
            return False
        return True

    await eventually(connect, what="the mail server answers")
    stack.push_async_callback(client.quit)

    async def send() -> None:
        await client.sendmail(_MAIL["sender"], [_MAIL["to"]], _message())

    return send


def _posting(
    path: str, kind: str, body: Callable[[], bytes], *, sign: bool = False
) -> Callable[[str, AsyncExitStack], Awaitable[Send]]:
    """Return a client that posts what is made anew for each request."""
    signer = SigV4Auth(Credentials("AKID", "secret"), "ses", _REGION)

    async def client(url: str, stack: AsyncExitStack) -> Send:
        connector = aiohttp.TCPConnector(limit=_TASKS)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

        async def send() -> None:
            content, headers = body(), {"content-type": kind}
            if sign:
                request = AWSRequest("POST", url + path, headers, content)
                signer.add_auth(request)
                headers = dict(request.headers.items())
            async with session.post(url + path, data=content, headers=headers) as answer:
                answer.raise_for_status()
                await answer.read()

        return send

    return client


def _id() -> str:
    return str(next(_numbers))


def _push() -> bytes:
    lines = [json.dumps({"id": _id(), "type": TYPE, "payload": PAYLOAD}) for _ in range(_BATCH)]
    values = [[str(time.time_ns()), line] for line in lines]
    return json.dumps({"streams": [{"stream": {"job": "bench"}, "values": values}]}).encode()


def _export() -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(_BATCH):
        record = records.add(time_unix_nano=time.time_ns(), observed_time_unix_nano=time.time_ns())
        record.severity_number, record.severity_text, record.event_name = 9, "INFO", TYPE
        record.attributes.add(key="id").value.string_value = _id()
        for name, value in PAYLOAD.items():
            record.body.kvlist_value.values.add(key=name).value.string_value = str(value)
    return bytes(request.SerializeToString())


def _envelope() -> bytes:
    event = {
        "event_id": _id().zfill(32),
        "logentry": {"formatted": TYPE},
        "extra": {"payload": PAYLOAD},
    }
    content = json.dumps(event).encode()
    head = json.dumps({"type": "event", "length": len(content)}).encode()
    return b"\n".join([b'{"event_id":"' + b"0" * 32 + b'"}', head, content, b""])


def _message() -> bytes:
    message = EmailMessage(policy=SMTP)
    message["Message-ID"] = f"<{next(_numbers)}@example.com>"
    message["From"], message["To"] = _MAIL["sender"], _MAIL["to"]
    message["Date"], message["Subject"] = datetime.now(UTC), _MAIL["subject"]
    message.set_content(_MAIL["text"])
    return message.as_bytes()


def _letter() -> bytes:
    raw = base64.b64encode(_message()).decode()
    said = {"Destination": {"ToAddresses": [_MAIL["to"]]}, "Content": {"Raw": {"Data": raw}}}
    return json.dumps(said).encode()


WAYS: dict[str, Contest] = {
    "redis_stream": Contest(
        serve=_broker(Valkey, "redis"),
        way=lambda url: redis_stream(url, stream=_NAME, allow_networks=_HERE),
        client=_stream,
        tasks=_LINES,
        together=_BATCH,
    ),
    "nats": Contest(
        serve=_broker(Nats, "nats"),
        way=lambda url: nats(url, prefix=_NAME, stream=_NAME, allow_networks=_HERE),
        client=_jetstream,
    ),
    "amqp": Contest(
        serve=_broker(Rabbit, "amqp"),
        way=lambda url: amqp(url, routing_key=_NAME, allow_networks=_HERE),
        client=_exchange,
        smaller=4,
    ),
    "smtp": Contest(
        serve=_mailbox,
        way=lambda url: smtp(url, starttls=False, allow_networks=_HERE, **_MAIL),
        client=_mailer,
        tasks=_MAILS,
        has_lines=True,
        smaller=20,
    ),
    "loki": Contest(
        serve=_receiver,
        way=lambda url: loki(url, allow_networks=_HERE),
        client=_posting("/loki/api/v1/push", "application/json", _push),
        tasks=_LINES,
        together=_BATCH,
    ),
    "otlp": Contest(
        serve=_receiver,
        way=lambda url: otlp(url, allow_networks=_HERE),
        client=_posting("/v1/logs", "application/x-protobuf", _export),
        tasks=_LINES,
        together=_BATCH,
    ),
    "sentry": Contest(
        serve=_receiver,
        way=lambda url: sentry(f"{url}/42", key=_KEY, allow_networks=_HERE),
        client=_posting("/api/42/envelope/", "application/x-sentry-envelope", _envelope),
        smaller=4,
    ),
    "ses": Contest(
        serve=_receiver,
        way=lambda url: ses(
            _REGION,
            endpoint=url,
            allow_networks=_HERE,
            access_key="AKID",
            secret_key="secret",  # noqa: S106 - of nobody
            **_MAIL,
        ),
        client=_posting("/v2/email/outbound-emails", "application/json", _letter, sign=True),
        smaller=20,
    ),
}
"""The ways that lead to a server, but for HTTP itself, which has an arena of its own."""


async def _measure(
    scale: Scale,
    arena: Arena,  # noqa: ARG001 - there is one
    place: Place,  # noqa: ARG001 - nothing is kept
) -> AsyncIterator[Run]:
    for name, contest in WAYS.items():
        async for run in compare(name, contest, scale):
            yield run


STUDY = Study(
    title="sending by each way",
    section=Section.PROMISES,
    axis="sent by",
    figures=("per_second",),
    measure=_measure,
    arenas=(Arena.SQLITE,),
)
