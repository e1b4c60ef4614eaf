"""The stores that the app-level tests run on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store, one of each kind."""
    if request.param == "memory":
        return "memory://"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The URL of a SQLite file that is still to be created."""
    return f"sqlite:///{tmp_path}/redrive.db"
