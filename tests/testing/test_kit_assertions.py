"""What a kit says was published is what was published, and a wrong expectation says why."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from redrive import ConfigurationError, Redrive
from redrive.testing import Kit


@dataclass
class Order:
    order: int


def shop() -> Redrive:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    return app


async def test_published_events_can_be_looked_up_by_type_and_attribute() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 1}, key="order-1", tenant="acme")
        await app.publish("order.sent", {"order": 1}, key="order-1")
        await app.publish("mail.sent", {"order": 1}, tenant="acme")

        assert [one.type for one in kit.published()] == ["order.paid", "order.sent", "mail.sent"]
        assert [one.type for one in kit.published("order.*")] == ["order.paid", "order.sent"]
        assert [one.type for one in kit.published(tenant="acme")] == ["order.paid", "mail.sent"]
        assert kit.published("order.sent")[0].payload == {"order": 1}


async def test_an_assertion_that_holds_returns_the_events() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42}, key="order-42")

        [found] = kit.assert_published("order.paid", payload={"order": 42}, key="order-42", times=1)

        assert found.key == "order-42"


async def test_a_payload_is_compared_as_it_was_published() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", Order(42))

        kit.assert_published("order.paid", payload=Order(42))
        kit.assert_published("order.paid", payload={"order": 42})


async def test_an_assertion_that_fails_lists_what_was_published() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 41}, key="order-41", tenant="acme")

        with pytest.raises(AssertionError) as failed:
            kit.assert_published("order.paid", payload={"order": 42}, times=1)

        assert str(failed.value) == (
            "Expected 1 of 'order.paid', payload={'order': 42}, and found 0. Published were:\n"
            "  'order.paid', payload={'order': 41}, key='order-41', tenant='acme'"
        )


async def test_an_assertion_fails_when_there_are_too_many() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")

        kit.assert_published("order.paid")
        with pytest.raises(AssertionError, match=r"Expected 1 of 'order\.paid', and found 2"):
            kit.assert_published("order.paid", times=1)


async def test_an_assertion_about_nothing_says_that_there_is_nothing() -> None:
    app = shop()
    async with Kit(app) as kit:
        with pytest.raises(AssertionError, match=r"at least one of 'order\.paid'.* Nothing was"):
            kit.assert_published("order.paid")


async def test_asserting_that_nothing_was_published_can_fail() -> None:
    app = shop()
    async with Kit(app) as kit:
        kit.assert_nothing_published()

        await app.publish("order.paid")

        with pytest.raises(AssertionError, match=r"Expected no event\. Published were:\n  'order"):
            kit.assert_nothing_published()


async def test_a_misspelt_attribute_is_refused() -> None:
    """Otherwise it would match nothing, and an assertion that nothing fits would hold."""
    async with Kit(shop()) as kit:
        with pytest.raises(ConfigurationError, match="did you mean 'tenant'"):
            kit.published(tenat="acme")
