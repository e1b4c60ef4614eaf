"""Every store does what the model says, whatever happens to it; the machine finds broken ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.stores.memory import MemoryStore
from tests.proof.contract import prove_contract
from tests.proof.grounds import GROUNDS, Ground, Memory, Postgres
from tests.servers.postgres import Database
from tests.stores import mutants

SIZES = {"memory": (60, 40), "sqlite": (200, 50), "postgres": (60, 40)}
"""How many examples of how many steps: many where they are cheap."""


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        yield Postgres(database)
        return
    with GROUNDS[request.param]() as ground:
        yield ground


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ground", "size"), SIZES.items(), ids=SIZES, indirect=["ground"])
def test_a_store_does_what_the_model_says(ground: Ground, size: tuple[int, int]) -> None:
    examples, steps = size

    prove_contract(ground, examples=examples, steps=steps)
