"""Hooks: functions of the user's that hear of dead letters and of breakers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from redrive.observer import BreakerChanged, DeadLettered, Fact

__all__ = ["BreakerHook", "FailureHook", "Hooks"]

FailureHook = Callable[[DeadLettered], Any]
"""A function, sync or async, that is told of a dead letter. A sync one must be quick."""

BreakerHook = Callable[[BreakerChanged], Any]
"""A function, sync or async, that is told when a breaker changes. A sync one must be quick."""


class Hooks:
    """Calls each hook once per fact of its kind; one that fails is logged and harms nothing."""

    def __init__(self) -> None:
        self._hooks: list[tuple[type[Fact], str, Callable[[Any], Any]]] = []
        self._running: dict[asyncio.Task[Any], None] = {}

    def on_failed(self, hook: FailureHook) -> None:
        """Let one more hook hear of dead letters."""
        self._hooks.append((DeadLettered, "on_failed", hook))

    def on_breaker(self, hook: BreakerHook) -> None:
        """Let one more hook hear of breakers."""
        self._hooks.append((BreakerChanged, "on_breaker", hook))

    def notice(self, fact: Fact) -> None:
        """Call the hooks that want facts of this kind."""
        for kind, name, hook in self._hooks:
            if not isinstance(fact, kind):
                continue
            try:
                answer = hook(fact)
            except Exception:
                logging.getLogger("redrive").exception("An %s hook failed.", name)
                continue
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(answer)
                self._running[task] = None
                task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Wait for the async hooks under way on this event loop."""
        loop = asyncio.get_running_loop()
        mine = [task for task in self._running if task.get_loop() is loop]
        await asyncio.gather(*mine, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logging.getLogger("redrive").error("A hook failed.", exc_info=task.exception())
