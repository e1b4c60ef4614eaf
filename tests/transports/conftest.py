"""Brokers for the tests of ways, each started when the first test needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.brokers import Broker, Nats, Rabbit, Valkey, a_broker


@pytest.fixture(scope="session")
def _valkey() -> Iterator[Broker]:
    with a_broker(Valkey) as broker:
        yield broker


@pytest.fixture(scope="session")
def _nats() -> Iterator[Broker]:
    with a_broker(Nats) as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbit() -> Iterator[Broker]:
    """A RabbitMQ that keeps running: it takes its time to start."""
    with a_broker(Rabbit) as broker:
        yield broker


@pytest.fixture
def valkey(_valkey: Broker) -> Broker:
    """A Valkey that a test may stop and start."""
    _valkey.start()
    return _valkey


@pytest.fixture
def nats_server(_nats: Broker) -> Broker:
    """A NATS server with JetStream that a test may stop and start."""
    _nats.start()
    return _nats
