"""Services of the kinds that are no HTTP: by document alone, with every key that they have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, cast

import pytest

from redrive import Redrive
from redrive.app.gateway.secrets import placeholder
from redrive.app.gateway.service import read_service
from redrive.app.gateway.ways import KINDS
from redrive.errors import ConfigurationError
from redrive.observer import Fact, ServiceUnserved
from redrive.operations import GatewayDocument
from redrive.transports import options
from redrive.transports.http import HttpBlueprint
from tests.http.receiver import receiving
from tests.servers.brokers import Broker
from tests.transports.mailbox import a_mailbox
from tests.transports.test_conformance import NatsSite, RabbitSite, ValkeySite
from tests.waiting import eventually

HERE = {"allow_networks": ["127.0.0.1"]}
RULE = {"service": "out", "event": "order.*", "template": {"number": "{{ payload.order }}"}}

BASES: dict[str, dict[str, Any]] = {
    "amqp": {"url": "amqp://example.com/shop"},
    "file": {"path": "events.jsonl"},
    "http": {"url": "https://example.com/in"},
    "loki": {"url": "https://example.com"},
    "nats": {"url": "nats://example.com"},
    "otlp": {"url": "https://example.com"},
    "redis_stream": {"url": "redis://example.com/0", "stream": "orders"},
    "sentry": {"url": "https://example.com/42", "key": "env:K"},
    "ses": {
        "region": "eu-central-1",
        "sender": "shop@example.com",
        "endpoint": "https://example.com",
    },
    "smtp": {"url": "smtp://example.com", "sender": "shop@example.com"},
    "stdout": {},
}
_LOGIN = {"user": {"user": "ann", "password": "env:P"}, "password": {"password": "env:P"}}
_OF_SERVERS: dict[str, Any] = {
    **{key: {"user": "ann", "password": "env:P"} for key in _LOGIN},
    "allow_private": True,
    "allow_networks": ["10.0.0.0/8"],
    "connect_timeout": "3s",
    "certificate": "file:client.pem",
    "authority": "file:authority.pem",
}
_OF_REQUESTS: dict[str, Any] = {
    "headers": {"x-shop": "ours"},
    "auth": {"bearer": "env:T"},
    "retry_on_status": [503],
    "allow_private": True,
    "allow_networks": ["10.0.0.0/8"],
    "connect_timeout": "3s",
    "connections": 3,
    "response_limit": 5000,
    "certificate": "file:client.pem",
    "authority": "file:authority.pem",
}
_MAIL: dict[str, Any] = {
    "sender": "us@example.com",
    "to": ["{{ payload.mail }}"],
    "cc": "ann@example.com",
    "bcc": "ann@example.com",
    "subject": "Order {{ payload.order }}",
    "text": "Thank you.",
    "html": "<p>Thank you.</p>",
    "reply_to": "ann@example.com",
    "unsubscribe": "https://example.com/bye",
    "attachments": [{"path": "terms.pdf"}],
    "attachment_folder": "/srv/attachments",
    "attachment_limit": 1000,
}
_LINES: dict[str, Any] = {"body": "payload", "batch": 7}
_KEYS_OF_AWS = {"access_key": "AKID", "secret_key": "env:S"}
VALUES: dict[str, dict[str, Any]] = {
    "amqp": {
        **_OF_SERVERS,
        "url": "amqp://example.org/shop",
        "exchange": "orders",
        "routing_key": "paid",
        "body": "event",
        "batch": 7,
    },
    "file": {
        **_LINES,
        "path": "other.jsonl",
        "rotate_bytes": 1000,
        "keep": {"rotate_bytes": 1000, "keep": 2},
        "fsync": False,
    },
    "http": {
        **_OF_REQUESTS,
        "url": "https://example.org/in",
        "method": "PUT",
        "forward_headers": ["x-trace"],
        "signing_keys": ["env:K"],
        "body": "event",
    },
    "loki": {
        **_OF_REQUESTS,
        **_LINES,
        "url": "https://example.org",
        "labels": {"app": "shop"},
        "metadata": True,
    },
    "nats": {
        **_OF_SERVERS,
        "url": "nats://example.org",
        "subject": "orders",
        "prefix": "shop",
        "stream": "orders",
        "body": "event",
        "batch": 7,
    },
    "otlp": {
        **_OF_REQUESTS,
        "url": "https://example.org",
        "resource": {"service.name": "shop"},
        "batch": 7,
    },
    "redis_stream": {
        **_OF_SERVERS,
        "url": "redis://example.com/1",
        "stream": "others",
        "body": "event",
        "batch": 7,
        "max_length": 1000,
        "replicas": 1,
        "connections": 3,
    },
    "sentry": {
        **_OF_REQUESTS,
        "url": "https://example.org/43",
        "key": {"key": "env:OTHER"},
        "environment": "production",
        "release": "1.2",
    },
    "ses": {
        **{key: one for key, one in _OF_REQUESTS.items() if key not in ("headers", "auth")},
        **_MAIL,
        "region": "us-east-1",
        "access_key": _KEYS_OF_AWS,
        "secret_key": _KEYS_OF_AWS,
        "session_token": {"session_token": "env:T", **_KEYS_OF_AWS},
        "configuration_set": "shop",
        "endpoint": "https://example.org",
    },
    "smtp": {
        **_OF_SERVERS,
        **_MAIL,
        "url": "smtp://example.org",
        "starttls": False,
        "helo": "shop.example.com",
        "connections": 3,
    },
    "stdout": dict(_LINES),
}
KEYS = [(kind, key) for kind, known in KINDS.items() for key in known.keys]


def fields(way: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a kind makes
    """Return what a way was declared with; templates by what they were made of."""
    return {
        name: fields(value) if isinstance(value, HttpBlueprint) else repr(value)
        for name in way.__struct_fields__
        for value in [getattr(way, name)]
    }


def _by_name(reference: str) -> str:
    """Return a secret that is not like others."""
    return reference.partition(":")[2]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_each_key_of_a_kind_changes_its_way(kind: str, key: str) -> None:
    value = VALUES[kind][key]
    extra = value if isinstance(value, dict) and key in value else {key: value}

    resolve = _by_name if key == "key" else placeholder
    without = read_service("out", {"kind": kind, **BASES[kind]}, resolve=resolve)
    changed = read_service("out", {"kind": kind, **BASES[kind], **extra}, resolve=resolve)

    assert fields(without.way) != fields(changed.way)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slip_in_a_key_is_refused_with_the_nearest(kind: str) -> None:
    key = KINDS[kind].keys[-1]

    with pytest.raises(ConfigurationError, match=rf"did you mean '{key}'\?"):
        read_service("out", {"kind": kind, **BASES[kind], f"{key}x": 1})


NETWORKED = [kind for kind in KINDS if KINDS[kind].has_breaker]


@pytest.mark.parametrize("kind", NETWORKED)
def test_a_service_inside_of_the_network_is_refused_where_it_is_saved(kind: str) -> None:
    address = "endpoint" if "endpoint" in KINDS[kind].keys else "url"
    inside = BASES[kind][address].replace("example.com", "127.0.0.1")

    with pytest.raises(ConfigurationError, match="only public ones are connected to"):
        read_service("out", {"kind": kind, **BASES[kind], address: inside})


@pytest.mark.parametrize("kind", [one for one in NETWORKED if "password" in KINDS[one].keys])
def test_a_password_is_said_by_reference_alone(kind: str) -> None:
    document = {"kind": kind, **BASES[kind], "user": "ann"}

    with pytest.raises(ConfigurationError, match="password is not said by reference") as refused:
        read_service("out", {**document, "password": "plain-secret"})
    read = read_service("out", {**document, "password": "env:P"}, resolve=lambda _: "hidden")

    assert "plain-secret" not in str(refused.value)
    assert read.way.login == ("ann", "hidden")  # type: ignore[attr-defined] # each of these has one
    assert "hidden" not in repr(read.way)


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "http"])
@pytest.mark.parametrize(
    "key", [{"method": "PUT"}, {"path": "/x"}, {"headers": {}}, {"content_type": "text/plain"}]
)
async def test_a_rule_says_nothing_of_a_request_where_there_is_none(
    kind: str, key: dict[str, Any]
) -> None:
    document = GatewayDocument(
        services={"out": {"kind": kind, **BASES[kind]}}, rules={"orders": {**RULE, **key}}
    )
    async with Redrive("memory://") as app:
        with pytest.raises(ConfigurationError, match=r"'orders': .* is part of an HTTP request"):
            await app.operations.plan_gateway(document)


def test_a_health_check_is_refused_where_there_is_nothing_to_ask() -> None:
    with pytest.raises(ConfigurationError, match=r"which only http\(\.\.\.\) can do"):
        read_service("out", {"kind": "nats", **BASES["nats"], "health": {"ask": "/up"}})


@asynccontextmanager
async def publishing(service: dict[str, Any], rule: dict[str, Any] = RULE) -> AsyncIterator[str]:
    """Apply a service with a rule, publish an order, deliver it, and return the event's id."""
    document = GatewayDocument(services={"out": service}, rules={"orders": rule})
    async with Redrive("memory://") as app:
        await app.operations.apply_gateway(document, by="ada")
        receipt = await app.publish("order.paid", {"order": 42})
        tally = await app.drain(services=True)
        letters = (await app.operations.dead_letters()).deliveries
    assert tally.delivered == 1, [one.fault for one in letters]
    yield receipt.event_id


async def test_an_order_reaches_a_redis_stream(valkey: Broker) -> None:
    site = ValkeySite(valkey.port)
    service = {"kind": "redis_stream", "url": f"redis://127.0.0.1:{valkey.port}/0", **HERE}
    async with publishing({**service, "stream": "orders"}) as event_id:
        assert await site.arrived() == [event_id]
    entries = cast("list[tuple[str, dict[str, str]]]", site.client.xrange("orders"))
    site.client.close()
    assert [json.loads(one["payload"]) for _, one in entries] == [{"number": 42}]


async def test_an_order_reaches_a_stream_of_nats(nats_server: Broker) -> None:
    site = NatsSite(nats_server.port)
    await site.prepare()
    service = {"kind": "nats", "url": f"nats://127.0.0.1:{nats_server.port}", **HERE}
    async with publishing({**service, "prefix": site.name}) as event_id:
        assert await site.arrived() == [event_id]
    message = await site.stream.get_msg(site.name, 1)
    await site.stream.delete_stream(site.name)
    await site.client.close()
    assert json.loads(message.data or b"") == {"number": 42}


async def test_an_order_reaches_a_queue_of_rabbitmq(rabbit: Broker) -> None:
    site = RabbitSite(rabbit.port)
    await site.prepare()
    service = {"kind": "amqp", "url": f"amqp://127.0.0.1:{rabbit.port}/", **HERE}
    async with publishing({**service, "exchange": site.name}) as event_id:
        message = await site.queue.get()
    await site.queue.delete(if_unused=False, if_empty=False)
    await site.connection.close()
    assert message.message_id == event_id
    assert json.loads(message.body) == {"number": 42}


async def test_an_order_is_a_mail_and_who_has_it_does_not_get_it_again() -> None:
    rule = {
        **RULE,
        "template": {
            "to": ["ann@example.com", "bob@example.com"],
            "subject": "Order {{ payload.order }}",
            "text": "Thank you.",
        },
    }
    async with a_mailbox() as mailbox:
        mailbox.refuse("bob@example.com", "451 4.2.0 come back later")
        service = {"kind": "smtp", "url": f"smtp://127.0.0.1:{mailbox.port}", **HERE}
        retry = {"max_attempts": 2, "base": "0s", "cap": "0s", "jitter": "none"}
        keys = {"starttls": False, "sender": "shop@example.com", "retry": retry}
        async with publishing({**service, **keys}, rule):
            recipients = [one.recipients for one in mailbox.received]
        assert mailbox.received[0].message["Subject"] == "Order 42"
    assert recipients == [["ann@example.com"], ["bob@example.com"]]


async def test_a_kind_that_is_not_installed_is_left_alone_and_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        options, "find_spec", lambda name: None if name == "nats" else find_spec(name)
    )
    told: list[Fact] = []
    app = Redrive("memory://", poll="50ms")
    app.observe(_Ear(told))
    async with receiving() as receiver, app:
        out = {"url": receiver.url, "allow_private": True}
        document = GatewayDocument(
            services={"out": out, "shy": {"kind": "nats", **BASES["nats"]}},
            rules={"orders": RULE, "shy": {**RULE, "service": "shy"}},
        )
        # Whoever only writes the document need not have what sends.
        await app.operations.apply_gateway(document, by="ada")
        async with app.worker(services=True):
            await app.publish("order.paid", {"order": 42})
            await eventually(lambda: len(receiver.requests) == 1, what="the other is served")
            findings = await _findings(app)
            await eventually(lambda: bool(_unserved(told)), what="a word of it")

    [unserved] = _unserved(told)
    assert unserved.service == "shy"
    assert "pip install 'redrive[nats]'" in unserved.why
    [finding] = [one for one in findings if "shy" in one]
    assert "shy is orphaned: 1 delivery held, because no live worker serves it." in finding
    assert "its log says why not this one: service not served" in finding


async def _findings(app: Redrive) -> list[str]:
    found = await app.operations.examine()
    return [f"{one.what} {one.advice}" for one in found]


def _unserved(told: list[Fact]) -> list[ServiceUnserved]:
    return [one for one in told if isinstance(one, ServiceUnserved)]


class _Ear:
    def __init__(self, told: list[Fact]) -> None:
        self._told = told

    def notice(self, fact: Fact) -> None:
        self._told.append(fact)
