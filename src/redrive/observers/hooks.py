"""Hooks: functions of the user's that hear of dead letters, breakers, pauses and replays."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from redrive.model.duration import spell_duration
from redrive.observer import (
    BreakerChanged,
    DeadLettered,
    DestinationPaused,
    Fact,
    Observers,
    ReplayStopped,
)

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
_MOST_AT_ONCE = 100
_MOST_WAITING = 1_000
_log = logging.getLogger("redrive")


class Hooks:
    """Calls each hook once per fact of its kind; one that fails is logged and harms nothing.

    Of async ones a hundred run at once, and a thousand more wait their turn. What comes beyond
    that is left out, and the log says how much.
    """

    def __init__(self, observers: Observers) -> None:
        """Watch among these observers from the first hook on."""
        self._observers = observers
        self._hooks: list[tuple[type[Fact], str, Callable[[Any], Any]]] = []
        self._calls: dict[asyncio.AbstractEventLoop, _Calls] = {}

    def on_failed(self, hook: FailureHook) -> None:
        """Let one more hook hear of dead letters."""
        self._add(DeadLettered, "on_failed", hook)

    def on_breaker(self, hook: BreakerHook) -> None:
        """Let one more hook hear of breakers."""
        self._add(BreakerChanged, "on_breaker", hook)

    def on_pause(self, hook: PauseHook) -> None:
        """Let one more hook hear of destinations that the engine has paused."""
        self._add(DestinationPaused, "on_pause", hook)

    def on_replay_stopped(self, hook: ReplayHook) -> None:
        """Let one more hook hear of replays that stop themselves."""
        self._add(ReplayStopped, "on_replay_stopped", hook)

    def _add(self, kind: type[Fact], name: str, hook: Callable[[Any], Any]) -> None:
        if not self._hooks:
            self._observers.add(self)
        self._hooks.append((kind, name, hook))

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
                self._enlist(_Call(answer, f"{name} hook {_title(hook)}"))

    async def finish(self) -> None:
        """Wait for the async hooks under way on this event loop, and once only for one that hangs.

        Those that take too long are logged, and go on for as long as the event loop does.
        """
        calls = self._calls_of_loop()
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                while awaited := [task for task in calls.running if task not in calls.late]:
                    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            for task in [one for one in calls.running if one not in calls.late]:
                calls.late.add(task)
                _log.warning(
                    "The %s has not ended within %s, so it is no longer waited for; "
                    "give what it does a time-out.",
                    calls.running[task],
                    spell_duration(_PATIENCE),
                )
        if calls.waiting:
            _log.warning(
                "%d calls of hooks wait for others to end, and may not be made any more; "
                "give what they do a time-out.",
                len(calls.waiting),
            )

    def _calls_of_loop(self) -> _Calls:
        """Return the calls of this event loop."""
        loop = asyncio.get_running_loop()
        for closed in [one for one in self._calls if one.is_closed()]:
            del self._calls[closed]
        return self._calls.setdefault(loop, _Calls())

    def _enlist(self, call: _Call) -> None:
        """Begin a call, or let it wait its turn; what finds no room any more is told."""
        calls = self._calls_of_loop()
        if len(calls.waiting) < _MOST_WAITING:
            calls.waiting.append(call)
            self._go_on(calls)
            return
        if calls.left_out == 0:
            _log.error(
                "The %s is called faster than it ends: %d run, %d wait, and those that come now "
                "are left out. Collect in the hook, and do what takes long elsewhere.",
                call.title,
                len(calls.running),
                len(calls.waiting),
            )
        calls.left_out += 1
        if inspect.iscoroutine(call.answer):
            call.answer.close()

    def _go_on(self, calls: _Calls) -> None:
        while calls.waiting and len(calls.running) < _MOST_AT_ONCE:
            call = calls.waiting.popleft()
            task = asyncio.ensure_future(_follow(call.answer, call.title))
            calls.running[task] = call.title
            task.add_done_callback(partial(self._ended, calls))
        if calls.left_out and len(calls.waiting) < _MOST_WAITING // 2:
            _log.error("Calls of hooks that were left out: %d.", calls.left_out)
            calls.left_out = 0

    def _ended(self, calls: _Calls, task: asyncio.Task[None]) -> None:
        calls.running.pop(task, None)
        calls.late.discard(task)
        if not task.get_loop().is_closed():
            self._go_on(calls)


class _Call(NamedTuple):
    """What a hook has answered: something to await."""

    answer: Awaitable[object]
    title: str


class _Calls:
    """The calls of async hooks on one event loop: those that run, and those that wait."""

    def __init__(self) -> None:
        self.running: dict[asyncio.Task[None], str] = {}
        self.waiting: deque[_Call] = deque()
        self.late: set[asyncio.Task[None]] = set()
        self.left_out = 0


async def _follow(answer: Awaitable[object], title: str) -> None:
    try:
        await answer
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException:  # noqa: BLE001 - an exit out of a task would end the event loop
        _log.exception("The %s failed.", title)


def _title(hook: Callable[[Any], Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
