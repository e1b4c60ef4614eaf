"""An act of sabotage: a line of the source, what it becomes, and which tests must notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Sabotage"]


class Sabotage(NamedTuple):
    """One spoiled line, in a room of a store or elsewhere in the engine.

    `words` choose among the tests of a file: the store's conformance suite unless another is named.
    """

    name: str
    where: str
    file: str
    line: str
    becomes: str
    words: str
    tests: str = ""

    @property
    def path(self) -> Path:
        """The file within the source."""
        room = Path("redrive") if self.where == "engine" else Path("redrive/stores") / self.where
        return room / self.file

    @property
    def arguments(self) -> tuple[str, ...]:
        """What to run, in the words of pytest."""
        file = self.tests or f"tests/stores/{self.where}/test_store.py"
        return (file, "-k", self.words) if self.words else (file,)
