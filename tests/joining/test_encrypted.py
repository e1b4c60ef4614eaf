"""Events that join a transaction are encrypted as all others are, whoever the driver is."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from redrive import NewEvent, Redrive
from redrive.errors import SecretError
from redrive.testing import ScriptedDestination
from tests.joining.drivers import Shop
from tests.stores.encrypted import rows_of

PLANTED = "planted-name-of-a-patient"
KEY = f"k1:{base64.b64encode(bytes([1]) * 32).decode()}"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_KEYS", KEY)


async def test_what_joins_is_encrypted_from_the_next_transaction_on(
    shop: Shop, billing: ScriptedDestination
) -> None:
    """The publisher is open already when somebody else has the store encrypted."""
    given: dict[str, Any] = {"headers": {"note": PLANTED}, "key": "order-1", "unique_for": "1h"}
    await shop.app.publish("order.placed", {"n": 0})
    async with Redrive(shop.app.settings.store) as other:
        await other.operations.encrypt(by="ada", why="names of patients")

    async with shop.transaction() as till:
        await till.publish("order.paid", {"n": 1, "patient": PLANTED}, **given)
        await till.publish_many(
            [NewEvent(type="order.paid", payload={"n": n, "patient": PLANTED}) for n in (2, 3)]
        )
        twice = await till.publish("order.paid", {"n": 1, "patient": PLANTED}, **given)
    rows = await rows_of(shop.app.settings.store)
    await shop.app.drain()

    assert twice.is_duplicate
    assert [name for name, values in rows.items() if PLANTED in "".join(values)] == []
    assert sorted(one.payload["n"] for one in billing.received) == [0, 1, 2, 3]
    (first,) = [one for one in billing.received if one.payload["n"] == 1]
    assert (first.payload, first.headers) == ({"n": 1, "patient": PLANTED}, {"note": PLANTED})


async def test_without_the_key_nothing_joins_and_the_transaction_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Redrive(shop.app.settings.store) as other:
        await other.operations.encrypt(by="ada", why="names of patients")
    monkeypatch.delenv("REDRIVE_KEYS")

    async with shop.transaction() as till:
        with pytest.raises(SecretError, match=r"encrypted by the key 'k1'.*there is none"):
            await till.publish("order.paid", {"patient": PLANTED}, idempotency_key="1")
        await till.execute(shop.insert(1))

    assert await shop.orders() == [1]
    assert await shop.events() == 0
