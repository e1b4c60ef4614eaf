"""Hooks: functions of the user's that hear of each dead letter."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from redrive.observer import DeadLettered, Fact

__all__ = ["FailureHook", "FailureHooks"]

FailureHook = Callable[[DeadLettered], Any]
"""A function, sync or async, that is told of a dead letter. A sync one must be quick."""


class FailureHooks:
    """Calls each hook once per dead letter; a hook that fails is logged and harms nothing."""

    def __init__(self) -> None:
        self._hooks: list[FailureHook] = []
        self._running: dict[asyncio.Task[Any], None] = {}

    def add(self, hook: FailureHook) -> None:
        """Let one more hook hear of dead letters."""
        self._hooks.append(hook)

    def notice(self, fact: Fact) -> None:
        """Call the hooks, if it is a dead letter."""
        if not isinstance(fact, DeadLettered):
            return
        for hook in self._hooks:
            try:
                answer = hook(fact)
            except Exception:
                logging.getLogger("redrive").exception("An on_failed hook failed.")
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
            logging.getLogger("redrive").error(
                "An on_failed hook failed.", exc_info=task.exception()
            )
