from __future__ import annotations

from pathlib import Path

import pytest

from tests.effects.ledger import Ledger


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The URL of a SQLite file that is still to be created."""
    return f"sqlite:///{tmp_path}/redrive.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store with a database, one of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def ledger(url: str) -> Ledger:
    """A ledger in the database of the store."""
    made = Ledger(url)
    await made.create()
    return made
