from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.machine import Machine


@pytest.fixture
def machine_of(tmp_path: Path) -> Iterator[Callable[[str], Machine]]:
    """Make the machine of an app; every process on it ends with the test."""
    made: list[Machine] = []

    def make(app: str) -> Machine:
        machine = Machine(tmp_path, app)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.close()
