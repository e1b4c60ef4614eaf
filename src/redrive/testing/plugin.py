"""The pytest plugin: fixtures for the kit, and nothing that would slow other tests down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redrive.app.redrive import Redrive
    from redrive.integrations.django.testing import DjangoKit
    from redrive.testing.kit import ConnectKit, ConnectSyncKit, Kit, SyncKit

__all__ = ["redrive_django", "redrive_kit", "redrive_sync_kit"]


@pytest.fixture
def redrive_kit() -> Iterator[ConnectKit]:
    """Connect an app to a test kit until the test ends.

    `kit = await redrive_kit(app)`; see `redrive.testing.Kit` for what it can do.
    """
    from redrive.errors import UsageError  # noqa: PLC0415 - this loads into every test run
    from redrive.testing.kit import Kit  # noqa: PLC0415 - as above

    with ExitStack() as kits:

        async def connect(app: Redrive, *, store: str = "memory://", seed: int = 0) -> Kit:
            if store.startswith("postgres"):
                raise UsageError(
                    "The fixture ends after the event loop of its test, to which connections to "
                    "PostgreSQL belong; write `async with Kit(app, store=...)` in the test."
                )
            kit = Kit(app, store=store, seed=seed)
            kit.open()
            kits.callback(kit.close)
            return kit

        yield connect


@pytest.fixture
def redrive_sync_kit() -> Iterator[ConnectSyncKit]:
    """Connect an app to a test kit without an event loop, until the test ends.

    `kit = redrive_sync_kit(app)`; see `redrive.testing.SyncKit` for what it can do.
    """
    from redrive.testing.kit import SyncKit  # noqa: PLC0415 - this loads into every test run

    with ExitStack() as kits:

        def connect(app: Redrive, *, store: str = "memory://", seed: int = 0) -> SyncKit:
            return kits.enter_context(SyncKit(app, store=store, seed=seed))

        yield connect


@pytest.fixture
def redrive_django() -> Iterator[DjangoKit]:
    """Connect the app of a Django project to a test kit until the test ends.

    `redrive_django.assert_published(...)` sees what the test's own transaction has published.
    """
    from redrive.integrations.django.testing import DjangoKit  # noqa: PLC0415 - as above

    with DjangoKit() as kit:
        yield kit
