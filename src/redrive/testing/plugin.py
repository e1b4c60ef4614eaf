"""The pytest plugin: the fixture `redrive_kit`, and nothing that would slow other tests down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redrive.app.redrive import Redrive
    from redrive.testing.kit import ConnectKit, Kit

__all__ = ["redrive_kit"]


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
