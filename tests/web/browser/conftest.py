"""One browser for all tests of a process, and the shop on its bad morning."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from redrive.testing import Kit
from tests.web.browser.showcase import Showcase, a_shop, serving, tell
from tests.web.browser.studio import browsing


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def shop() -> AsyncIterator[Showcase]:
    """The shop before anything has happened."""
    app, services = a_shop()
    async with Kit(app) as kit, serving(kit, app, services) as shop:
        yield shop


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def morning() -> AsyncIterator[Showcase]:
    """The shop after its morning; tests that share it only look."""
    app, services = a_shop()
    async with Kit(app) as kit, serving(kit, app, services) as shop:
        await tell(shop)
        yield shop
