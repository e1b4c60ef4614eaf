from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.machine import Machine


@pytest.fixture
def machine_store(request: pytest.FixtureRequest) -> str | None:
    """The URL of the store of machines, for tests that choose one; otherwise a SQLite file."""
    kind = getattr(request, "param", "sqlite")
    return None if kind == "sqlite" else str(request.getfixturevalue(f"{kind}_url"))


@pytest.fixture
def machine_of(tmp_path: Path, machine_store: str | None) -> Iterator[Callable[[str], Machine]]:
    """Make the machine of an app; every process on it ends with the test."""
    made: list[Machine] = []

    def make(app: str) -> Machine:
        machine = Machine(tmp_path, app, machine_store)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.close()
