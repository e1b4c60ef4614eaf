"""Destinations that answer by script, and remember what reached them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, cycle, repeat
from typing import Any, Literal

from redrive.errors import ConfigurationError
from redrive.model.event import Event
from redrive.model.outcome import Cancel, Snooze

__all__ = ["ScriptedDestination", "Step"]

Step = Literal["ok"] | Exception | Snooze | Cancel
"""One answer: `"ok"`, an exception to raise, `Snooze` or `Cancel` to return."""


class ScriptedDestination:
    """A handler that gives the answers of a script, one per try, and `"ok"` when it is over.

    With `repeats` the script begins again instead. Declare it like any handler, or put it in the
    place of one with `Kit.script`:

    >>> billing = ScriptedDestination("billing", ["ok", Snooze("5s"), ConnectionError("down")])
    """

    def __init__(self, name: str, script: Sequence[Step] = (), *, repeats: bool = False) -> None:
        for step in script:
            _check(step)
        self.__name__ = name
        self.attempts: list[Event[Any]] = []
        """The event of every try, in order."""
        self.received: list[Event[Any]] = []
        """The events that were answered with `"ok"`, in order."""
        self._steps = cycle(script) if repeats and script else chain(script, repeat("ok"))

    async def __call__(self, event: Event[Any]) -> object:
        """Give the next answer."""
        self.attempts.append(event)
        step = next(self._steps)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Snooze | Cancel):
            return step
        self.received.append(event)
        return None


def _check(step: object) -> None:
    if step != "ok" and not isinstance(step, Exception | Snooze | Cancel):
        raise ConfigurationError(
            f'A script holds {step!r}; each step is "ok", an exception such as '
            'Transient("busy"), Snooze("5s") or Cancel("obsolete").'
        )
