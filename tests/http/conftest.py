"""The receiver that the tests send to."""

from collections.abc import AsyncIterator

import pytest

from tests.http.receiver import Receiver, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """An HTTP server on loopback."""
    async with receiving() as running:
        yield running
