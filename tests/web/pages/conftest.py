"""A shop in memory whose billing is down, and its dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import Event, Redrive, Retry
from redrive.testing import Kit
from tests.web.pages.browser import Browser


class Shop:
    """An app whose billing refuses everything while it is down."""

    def __init__(self, kit: Kit, app: Redrive, down: list[str]) -> None:
        self.kit = kit
        self.app = app
        self.operations = app.operations
        self.asgi = app.asgi(login=False)
        self.down = down

    def browser(self) -> Browser:
        return Browser(self.asgi)

    async def letter(self) -> int:
        """The number of a dead letter."""
        return (await self.operations.dead_letters(limit=1)).deliveries[0].id

    async def group(self) -> str:
        """Where the one group is shown."""
        [group] = await self.operations.groups()
        return f"/dead-letters/groups/{group.id}"


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    app = Redrive()
    down = ["the certificate has expired"]

    @app.handler("*", name="billing", retry=Retry(max_attempts=1))
    async def bill(event: Event[Any]) -> None:
        if down:
            raise ConnectionError(down[0])

    async with Kit(app) as kit:
        yield Shop(kit, app, down)


@pytest.fixture
async def broken(shop: Shop) -> Shop:
    """The shop with three dead letters of one cause."""
    for number in range(3):
        payload = {"order": number, "card": "visa-4111"}
        await shop.app.publish("order.paid", payload, key=f"order-{number}", tenant="acme")
    await shop.kit.drain()
    return shop
