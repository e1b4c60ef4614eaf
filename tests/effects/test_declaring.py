"""What may be transactional, and what is refused with a sentence that says why."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import ConfigurationError, Event, Redrive
from redrive.testing import Kit
from tests.effects.ledger import Connection


async def apply(event: Event[Any], connection: Connection) -> None:
    """Do nothing, in the right form."""


def test_a_plain_function_is_refused() -> None:
    app = Redrive("sqlite:///shop.db")

    def bill(event: Event[Any], connection: Connection) -> None: ...

    with pytest.raises(ConfigurationError, match=r"bill is a plain function.*has to be async"):
        app.handler("order.*", transactional=True)(bill)


def test_a_handler_that_takes_no_connection_is_refused() -> None:
    app = Redrive("sqlite:///shop.db")

    async def bill(event: Event[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match="two arguments, the event and the connection"):
        app.handler("order.*", transactional=True)(bill)  # type: ignore[type-var]


def test_a_batch_is_refused() -> None:
    app = Redrive("sqlite:///shop.db")

    with pytest.raises(ConfigurationError, match="cannot be transactional and take a batch"):
        app.handler("order.*", transactional=True, batch=10)  # type: ignore[call-overload]


def test_anything_but_true_or_false_is_refused() -> None:
    app = Redrive("sqlite:///shop.db")

    with pytest.raises(ConfigurationError, match="transactional is 'yes'; write True"):
        app.handler("order.*", transactional="yes")  # type: ignore[call-overload]


async def test_a_store_without_a_database_is_refused() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", transactional=True)(apply)

    with pytest.raises(ConfigurationError, match="'billing' is transactional, and this store has"):
        await app.drain()


async def test_in_a_test_without_a_database_it_can_be_scripted() -> None:
    app = Redrive("postgresql://nowhere/shop")
    app.handler("order.*", name="billing", transactional=True)(apply)

    async with Kit(app) as kit:
        scripted = kit.script("billing")
        await app.publish("order.paid", 7)

        assert (await kit.drain()).delivered == 1
        assert len(scripted.received) == 1


async def test_on_sqlite_a_time_out_over_a_third_of_the_lease_is_refused(sqlite: str) -> None:
    app = Redrive(sqlite, lease="15s")
    app.handler("order.*", name="billing", transactional=True, timeout="6s")(apply)

    async with app:
        with pytest.raises(ConfigurationError, match=r"time-out of 6s.*end within 5s.*a third"):
            await app.drain()


async def test_on_postgresql_a_time_out_may_be_longer_than_the_lease(postgres_url: str) -> None:
    app = Redrive(postgres_url, lease="15s")
    app.handler("order.*", name="billing", transactional=True, timeout="60s")(apply)

    async with app:
        await app.publish("order.paid")

        assert (await app.drain()).delivered == 1
