"""A shop whose API is served in this process, with a dead letter of each of two tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from redrive import Event, Redrive, Retry
from tests.web.client import Client


class Served:
    """An app, and clients of its API."""

    def __init__(self, app: Redrive) -> None:
        self.app = app
        self.asgi = app.asgi()
        self.open = Client(app.asgi(login=False))

    async def client(self, role: str, **limits: Any) -> Client:  # noqa: ANN401 - as `create_token`
        name = limits.pop("name", role)
        made = await self.app.operations.create_token(
            name, role=role, by="test", why="to ask", **limits
        )
        return Client(self.asgi, token=made.secret)

    async def letters(self) -> dict[str | None, int]:
        """The dead letter of each tenant, at billing."""
        page = await self.app.operations.dead_letters()
        return {one.tenant: one.id for one in page.deliveries if one.destination == "billing"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    app = Redrive(f"sqlite:///{tmp_path / 'shop.db'}")

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=1))
    async def bill(event: Event[Any]) -> None:
        if isinstance(event.payload, dict) and "error" in event.payload:
            raise ConnectionError(event.payload["error"])

    @app.handler("order.*", name="mail", retry=Retry(max_attempts=1))
    async def mail(event: Event[Any]) -> None:
        if isinstance(event.payload, dict) and "unsent" in event.payload:
            raise ConnectionError("no mail")

    async with app:
        for tenant in ("acme", "globex"):
            payload = {"error": "boom", "password": f"{tenant}-secret", "unsent": True}
            await app.publish("order.paid", payload, tenant=tenant, key=f"{tenant}-1")
        await app.drain()
        yield Served(app)
