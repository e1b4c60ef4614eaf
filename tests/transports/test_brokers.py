"""Valkey, NATS and RabbitMQ through outages, dead letters and replays: nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from redrive import Redrive, Retry
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.model.outcome import Faulted, Nature
from redrive.policies.terms import Terms
from redrive.transport import Blueprint, Closing, Way
from redrive.transports.amqp import AmqpOptions, amqp
from redrive.transports.nats import NatsOptions, nats
from redrive.transports.redis_stream import RedisStreamOptions, redis_stream
from tests.conformance.transports import Site, a_delivery
from tests.docs.pages import ROOT, table_of
from tests.servers.brokers import Broker
from tests.servers.proxy import Proxy, proxying
from tests.transports.test_conformance import NatsSite, RabbitSite, ValkeySite

HERE = ("127.0.0.1",)
HIDDEN = "hidden"
TWICE = Retry(max_attempts=2, base="0s", cap="0s", jitter="none")


class Place(NamedTuple):
    site: Site
    proxy: Proxy


@pytest.fixture(params=["valkey", "nats_server", "rabbit"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    broker: Broker = request.getfixturevalue(request.param)
    async with at_broker(broker) as site, proxying("127.0.0.1", broker.port) as proxy:
        yield Place(site, proxy)


@asynccontextmanager
async def at_broker(broker: Broker) -> AsyncIterator[Site]:
    match type(broker).__name__:
        case "Valkey":
            valkey = ValkeySite(broker.port)
            yield valkey
            valkey.client.close()
        case "Nats":
            stream = NatsSite(broker.port)
            await stream.prepare()
            yield stream
            await stream.stream.delete_stream(stream.name)
            await stream.client.close()
        case _:
            rabbit = RabbitSite(broker.port)
            await rabbit.prepare()
            yield rabbit
            await rabbit.queue.delete(if_unused=False, if_empty=False)
            await rabbit.connection.close()


async def test_nothing_is_lost_through_an_outage_a_dead_letter_and_a_replay(place: Place) -> None:
    app = Redrive("memory://")
    way = place.site.way("127.0.0.1", place.proxy.port, HERE)
    app.destination("broker", "order.*", transport=way, retry=TWICE, breaker=None, timeout="500ms")

    async with app:
        before = [await app.publish("order.paid", {"order": number}) for number in range(50)]
        flowing = await app.drain()
        place.proxy.stall()
        during = [await app.publish("order.paid", {"order": number}) for number in range(50, 60)]
        down = await app.drain()
        place.proxy.resume()
        place.proxy.reset()
        letters = (await app.operations.dead_letters()).deliveries
        await app.operations.replay([one.id for one in letters], by="ann", why="it is back")
        back = await app.drain()

    assert flowing.delivered == 50
    assert (down.retried, down.failed) == (10, 10)
    assert {one.fault.rule for one in letters if one.fault} == {"timeout"}
    assert back.delivered == 10
    arrived = Counter(await place.site.arrived())
    assert set(arrived) == {one.event_id for one in (*before, *during)}


async def fail(way: Way, payload: bytes = b'{"order":42}') -> Faulted:
    assert isinstance(way, Blueprint)
    transport = way.build(terms=Terms(), clock=SystemClock())
    try:
        [outcome] = await transport.send([a_delivery(1, payload)])
    finally:
        assert isinstance(transport, Closing)
        await transport.close()
    assert isinstance(outcome, Faulted)
    assert "hidden" not in msgspec.json.encode(outcome).decode()
    return outcome


def verdict(outcome: Faulted) -> tuple[Nature, str, str]:
    return outcome.nature, outcome.fault.rule, outcome.fault.code


async def test_a_crash_of_valkey_and_of_nats_loses_nothing(
    valkey: Broker, nats_server: Broker
) -> None:
    for broker in (valkey, nats_server):
        async with at_broker(broker) as site:
            app = Redrive("memory://")
            way = site.way("127.0.0.1", broker.port, HERE)
            app.destination("broker", "order.*", transport=way, retry=TWICE, breaker=None)
            async with app:
                first = await app.publish("order.paid")
                await app.drain()
                broker.stop()
                second = await app.publish("order.paid")
                down = await app.drain()
                broker.start()
                if isinstance(site, ValkeySite):
                    site.admit()
                [letter] = (await app.operations.dead_letters()).deliveries
                await app.operations.replay([letter.id], by="ann", why="it is back")
                back = await app.drain()
            if isinstance(site, NatsSite):
                await site.reconnect()

            assert (down.failed, back.delivered) == (1, 1)
            assert await site.arrived() == [first.event_id, second.event_id]


class TestRedis:
    async def test_a_key_that_is_no_stream_is_for_good(self, valkey: Broker) -> None:
        site = ValkeySite(valkey.port)
        site.client.set("orders", "text")

        outcome = await fail(site.way("127.0.0.1", valkey.port, HERE))
        site.client.close()

        assert verdict(outcome) == (Nature.TERMINAL, "reply WRONGTYPE", "WRONGTYPE")

    async def test_a_full_memory_may_heal(self, valkey: Broker) -> None:
        site = ValkeySite(valkey.port)
        site.client.config_set("maxmemory", "1")
        try:
            outcome = await fail(site.way("127.0.0.1", valkey.port, HERE))
        finally:
            site.client.config_set("maxmemory", "0")
            site.client.close()

        assert verdict(outcome) == (Nature.TRANSIENT, "reply OOM", "OOM")

    async def test_a_wrong_password_is_for_good_and_not_shown(self, valkey: Broker) -> None:
        url = f"redis://127.0.0.1:{valkey.port}"
        way = redis_stream(url, stream="s", user="shop", password=HIDDEN, allow_networks=HERE)

        outcome = await fail(way)

        assert outcome.nature is Nature.TERMINAL
        assert outcome.fault.code in {"NOAUTH", "WRONGPASS"}

    async def test_a_replica_that_is_missing_is_waited_for(self, valkey: Broker) -> None:
        url = f"redis://127.0.0.1:{valkey.port}"
        way = redis_stream(url, stream="s", replicas=1, allow_networks=HERE)
        transport = way.build(terms=Terms(timeout=timedelta(milliseconds=100)), clock=SystemClock())

        [outcome] = await transport.send([a_delivery(1)])
        assert isinstance(transport, Closing)
        await transport.close()

        assert isinstance(outcome, Faulted)
        assert outcome.fault.rule == "too few replicas"
        assert outcome.nature is Nature.TRANSIENT

    async def test_a_stream_is_trimmed_only_on_request(self, valkey: Broker) -> None:
        site = ValkeySite(valkey.port)
        url = f"redis://127.0.0.1:{valkey.port}"
        way = redis_stream(url, stream="short", max_length=1, allow_networks=HERE, body="event")
        app = Redrive("memory://")
        app.destination("short", "*", transport=way)

        async with app:
            for number in range(1000):
                await app.publish("order.paid", {"order": number})
            await app.drain()
        kept = site.client.xlen("short")
        site.client.close()

        assert isinstance(kept, int)
        assert 1 <= kept < 1000


class TestNats:
    async def test_a_subject_without_a_stream_may_heal(self, nats_server: Broker) -> None:
        way = nats(f"nats://127.0.0.1:{nats_server.port}", subject="no.one", allow_networks=HERE)

        assert verdict(await fail(way))[:2] == (Nature.TRANSIENT, "no stream")

    async def test_another_stream_than_the_one_named_is_for_good(self, nats_server: Broker) -> None:
        site = NatsSite(nats_server.port)
        await site.prepare()
        url = f"nats://127.0.0.1:{nats_server.port}"

        outcome = await fail(nats(url, prefix=site.name, stream="OTHER", allow_networks=HERE))
        await site.stream.delete_stream(site.name)
        await site.client.close()

        assert verdict(outcome) == (Nature.TERMINAL, "JetStream 400", "10060")

    async def test_a_repeat_is_stored_once_and_another_destination_is_no_repeat(
        self, nats_server: Broker
    ) -> None:
        site = NatsSite(nats_server.port)
        await site.prepare()
        app = Redrive("memory://")
        for name in ("one", "two"):
            way = site.way("127.0.0.1", nats_server.port, HERE)
            app.destination(name, "order.*", transport=way)
        one = site.way("127.0.0.1", nats_server.port, HERE)
        assert isinstance(one, Blueprint)
        transport = one.build(terms=Terms(), clock=SystemClock())

        async with app:
            receipt = await app.publish("order.paid")
            await app.drain()
        for _ in range(3):
            await transport.send([a_delivery(7)])
        arrived = await site.arrived()
        assert isinstance(transport, Closing)
        await transport.close()
        await site.stream.delete_stream(site.name)
        await site.client.close()

        assert arrived == [receipt.event_id, receipt.event_id, a_delivery(7).event.id]


class TestAmqp:
    async def test_what_no_queue_takes_is_a_failure(self, rabbit: Broker) -> None:
        url = f"amqp://127.0.0.1:{rabbit.port}/"

        outcome = await fail(amqp(url, routing_key="nobody", allow_networks=HERE))

        assert verdict(outcome) == (Nature.TERMINAL, "returned", "312")
        assert "nobody" in outcome.fault.message

    async def test_an_exchange_that_is_missing_may_be_made(self, rabbit: Broker) -> None:
        way = amqp(f"amqp://127.0.0.1:{rabbit.port}/", exchange="none", allow_networks=HERE)

        assert verdict(await fail(way)) == (Nature.TRANSIENT, "no exchange", "404")

    async def test_a_wrong_password_is_for_good_and_not_shown(self, rabbit: Broker) -> None:
        url = f"amqp://127.0.0.1:{rabbit.port}/"
        way = amqp(url, user="guest", password=HIDDEN, allow_networks=HERE)

        outcome = await fail(way)

        assert verdict(outcome) == (Nature.TERMINAL, "not authorized", "403")

    async def test_one_message_that_comes_back_leaves_the_others_alone(
        self, rabbit: Broker
    ) -> None:
        async with at_broker(rabbit) as site:
            way = site.way("127.0.0.1", rabbit.port, HERE)
            assert isinstance(way, Blueprint)
            transport = way.build(terms=Terms(), clock=SystemClock())
            bad = a_delivery(2)
            event = msgspec.structs.replace(bad.event, type="invoice.sent")
            bad = msgspec.structs.replace(bad, event=event)

            outcomes = await transport.send([a_delivery(1), bad, a_delivery(3)])
            arrived = await site.arrived()
            assert isinstance(transport, Closing)
            await transport.close()

        assert [isinstance(one, Faulted) for one in outcomes] == [False, True, False]
        assert arrived == [a_delivery(1).event.id, a_delivery(3).event.id]


Declare = Callable[..., object]


@pytest.mark.parametrize(
    ("declare", "url", "options", "said"),
    [
        (redis_stream, "redis://h/x", {"stream": "s"}, "number of a database"),
        (redis_stream, "redis://h", {}, "needs a stream"),
        (redis_stream, "http://h", {"stream": "s"}, "redis or rediss"),
        (redis_stream, "redis://u:p@h", {"stream": "s"}, "user"),
        (redis_stream, "redis://127.0.0.1", {"stream": "s"}, "loopback"),
        (redis_stream, "redis://h", {"stream": "s", "user": "u"}, "both user and password"),
        (redis_stream, "redis://h", {"stream": "s", "streams": "s"}, "stream"),
        (nats, "nats://h", {"subject": "a.*"}, "without"),
        (nats, "nats://h", {"subject": "a", "prefix": "b"}, "leave one"),
        (nats, "nats://h?x=1", {}, "something after"),
        (nats, "nats://h:0", {}, "no host"),
        (amqp, "amqp://h:99999", {}, "cannot be read"),
        (amqp, "amqp://h", {"body": "all"}, "one of payload, event"),
        (amqp, "amqp://localhost", {}, "loopback"),
        (amqp, "amqp://h", {"tls": True}, "SSLContext"),
    ],
)
def test_a_wrong_declaration_is_refused_with_advice(
    declare: Declare, url: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        declare(url, **options)


@pytest.mark.parametrize(
    ("page", "options"),
    [
        ("amqp", AmqpOptions),
        ("nats", NatsOptions),
        ("redis-streams", RedisStreamOptions),
    ],
)
def test_every_option_is_listed_in_its_guide(page: str, options: type) -> None:
    listed = table_of(ROOT / "docs" / "guides" / f"{page}.md", "Options")

    assert sorted(listed) == sorted(options.__annotations__)


@pytest.mark.parametrize(
    ("declare", "extra", "options"),
    [(amqp, "amqp", {}), (nats, "nats", {}), (redis_stream, "redis", {"stream": "s"})],
)
def test_without_its_library_a_way_says_what_to_install(
    declare: Declare, extra: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.transports.options.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=rf"redrive\[{extra}\]"):
        declare("", **options)
