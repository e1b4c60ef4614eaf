"""Hooks: functions of the user's that hear of dead letters, breakers, pauses and replays."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from redrive.model.duration import spell_duration
from redrive.observer import BreakerChanged, DeadLettered, DestinationPaused, Fact, ReplayStopped

__all__ = ["BreakerHook", "FailureHook", "Hooks", "PauseHook", "ReplayHook"]

FailureHook = Callable[[DeadLettered], Any]
"""A function, sync or async, that is told of a dead letter. A sync one must be quick."""

BreakerHook = Callable[[BreakerChanged], Any]
"""A function, sync or async, that is told when a breaker changes. A sync one must be quick."""

PauseHook = Callable[[DestinationPaused], Any]
"""A function, sync or async, that is told when a destination was paused by the engine."""

ReplayHook = Callable[[ReplayStopped], Any]
"""A function, sync or async, that is told when a replay stops itself. A sync one must be quick."""

_PATIENCE = timedelta(seconds=10)
_log = logging.getLogger("redrive")


class Hooks:
    """Calls each hook once per fact of its kind; one that fails is logged and harms nothing."""

    def __init__(self) -> None:
        self._hooks: list[tuple[type[Fact], str, Callable[[Any], Any]]] = []
        self._running: dict[asyncio.Task[None], str] = {}
        self._late: set[asyncio.Task[None]] = set()

    def on_failed(self, hook: FailureHook) -> None:
        """Let one more hook hear of dead letters."""
        self._hooks.append((DeadLettered, "on_failed", hook))

    def on_breaker(self, hook: BreakerHook) -> None:
        """Let one more hook hear of breakers."""
        self._hooks.append((BreakerChanged, "on_breaker", hook))

    def on_pause(self, hook: PauseHook) -> None:
        """Let one more hook hear of destinations that the engine has paused."""
        self._hooks.append((DestinationPaused, "on_pause", hook))

    def on_replay_stopped(self, hook: ReplayHook) -> None:
        """Let one more hook hear of replays that stop themselves."""
        self._hooks.append((ReplayStopped, "on_replay_stopped", hook))

    def notice(self, fact: Fact) -> None:
        """Call the hooks that want facts of this kind."""
        for kind, name, hook in self._hooks:
            if not isinstance(fact, kind):
                continue
            try:
                answer = hook(fact)
            except BaseException:  # noqa: BLE001 - a hook harms nothing, whatever it raises
                _log.exception("An %s hook failed.", name)
                continue
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(_follow(answer, name))
                self._running[task] = f"{name} hook {_title(hook)}"
                task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Wait for the async hooks under way on this event loop, and once only for one that hangs.

        Those that take too long are logged, and go on for as long as the event loop does.
        """
        loop = asyncio.get_running_loop()
        mine = [task for task in self._running if task.get_loop() is loop]
        awaited = [task for task in mine if task not in self._late]
        if not awaited:
            return
        _, late = await asyncio.wait(awaited, timeout=_PATIENCE.total_seconds())
        for task in late:
            self._late.add(task)
            _log.warning(
                "The %s has not ended within %s, so it is no longer waited for; "
                "give what it does a time-out.",
                self._running[task],
                spell_duration(_PATIENCE),
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._late.discard(task)


async def _follow(answer: Awaitable[object], name: str) -> None:
    try:
        await answer
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException:  # noqa: BLE001 - an exit out of a task would end the event loop
        _log.exception("An %s hook failed.", name)


def _title(hook: Callable[[Any], Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
