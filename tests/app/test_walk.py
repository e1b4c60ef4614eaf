"""How far a publish walks: whoever reads along has few modules to open."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from redrive import Event, Redrive

MOST_MODULES = 12
MOST_OF_THE_WRITER = 12
"""On SQLite, a thread of its own stores what several callers publish."""


class Walk:
    """The modules of ours that were entered, on the caller's thread and on others."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.elsewhere: set[str] = set()
        self._caller = threading.get_ident()
        self._is_watched = False
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is entered while the block lasts."""
        self._task = asyncio.current_task()
        self._is_watched = True
        sys.setprofile(self.note)
        try:
            yield
        finally:
            self._is_watched = False
            sys.setprofile(None)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if not self._is_watched or event != "call" or not module.startswith("redrive."):
            return
        if threading.get_ident() != self._caller:
            self.elsewhere.add(module)
        elif asyncio.current_task() is self._task:  # what else the store does is not on the way
            self.here.add(module)


@pytest.fixture
def walk() -> Iterator[Walk]:
    walk = Walk()
    threading.setprofile(walk.note)
    yield walk
    threading.setprofile(None)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_one_publish_enters_few_modules(store: str, walk: Walk) -> None:
    app = Redrive(store)

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        """Take it."""

    async with app:
        for _ in range(3):  # what is found out once is known by then
            await app.publish("order.paid", {"order": 1})

        with walk.watched():
            await app.publish("order.paid", {"order": 2})

    assert len(walk.here) <= MOST_MODULES, "\n".join(sorted(walk.here))
    assert len(walk.elsewhere) <= MOST_OF_THE_WRITER, sorted(walk.elsewhere)
