"""The door of hooks: functions that are told of what goes wrong."""

from __future__ import annotations

from typing import TypeVar

from redrive.observers.hooks import BreakerHook, FailureHook, Hooks, PauseHook, ReplayHook

__all__ = ["HookingDoor"]

F = TypeVar("F", bound=FailureHook)
B = TypeVar("B", bound=BreakerHook)
P = TypeVar("P", bound=PauseHook)
R = TypeVar("R", bound=ReplayHook)


class HookingDoor:
    """What an app declares hooks by; `Redrive` is one."""

    _hooks: Hooks

    def on_failed(self, hook: F) -> F:
        """Declare a function to be told of each new dead letter, such as one that alerts."""
        self._hooks.on_failed(hook)
        return hook

    def on_breaker(self, hook: B) -> B:
        """Declare a function to be told when a destination's breaker opens or closes."""
        self._hooks.on_breaker(hook)
        return hook

    def on_pause(self, hook: P) -> P:
        """Declare a function to be told when a destination was paused, but not by a person."""
        self._hooks.on_pause(hook)
        return hook

    def on_replay_stopped(self, hook: R) -> R:
        """Declare a function to be told when a replay stops itself."""
        self._hooks.on_replay_stopped(hook)
        return hook
