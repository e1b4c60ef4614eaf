"""An observer that remembers everything."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from redrive.observer import Fact

F = TypeVar("F", bound=Fact)


class Recorder:
    """Remembers the facts, and lets a test wait for one."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._news = asyncio.Event()

    def notice(self, fact: Fact) -> None:
        self.facts.append(fact)
        self._news.set()

    @property
    def names(self) -> list[str]:
        return [type(fact).__name__ for fact in self.facts]

    def of(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def wait_for(self, kind: type[F]) -> F:
        while not self.of(kind):
            self._news.clear()
            await self._news.wait()
        return self.of(kind)[0]
