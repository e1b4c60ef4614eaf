from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.grounds import GROUNDS, Ground, Postgres
from tests.servers.postgres import Database


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """The ground of the store that the test names; servers are those that other tests use."""
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        yield Postgres(database)
        return
    with GROUNDS[request.param]() as ground:
        yield ground
