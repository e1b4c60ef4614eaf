"""Processes that kill themselves at one exact point of an effect, once for each marked event."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from redrive import Event
from redrive.model.delivery import Leased
from redrive.stores.postgres import effects as in_postgres
from redrive.stores.sqlite import effects as in_sqlite
from redrive.stores.sqlite.effects import EffectsRole as SqliteRole
from tests.faults import journal

__all__ = ["POINTS", "die_once", "make_mortal"]

POINTS = ("effect", "settled", "committed")
"""After the effect, after the settlement, and after the commit that nobody has heard of yet."""


def die_once(folder: Path, event: Event[Any], *, at: str) -> None:
    """Kill this process if the event says so, the first time that somebody gets to this point."""
    if event.payload.get("dies") != at:
        return
    try:
        (folder / f"died-{event.payload['number']}").touch(exist_ok=False)
    except FileExistsError:
        return
    journal.record(folder, event, "died")
    os.kill(os.getpid(), signal.SIGKILL)


def make_mortal(folder: Path) -> None:
    """Let marked events also kill this process after the settlement, and after the commit."""
    for module in (in_postgres, in_sqlite):
        _die_after(module, "settle_effect", folder, at="settled")
    for role in (in_postgres.EffectsRole, SqliteRole):
        _die_after(role, "_finish", folder, at="committed")


def _die_after(owner: object, name: str, folder: Path, *, at: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def die(arguments: tuple[object, ...]) -> None:
        leased = next(one for one in arguments if isinstance(one, Leased))
        event = leased.event
        payload = msgspec.json.decode(event.payload)
        die_once(folder, msgspec.structs.replace(event, payload=payload), at=at)

    def mortal(*arguments: object, **named: object) -> object:
        result = original(*arguments, **named)
        die(arguments)
        return result

    async def mortal_coroutine(*arguments: object, **named: object) -> object:
        result = await original(*arguments, **named)
        die(arguments)
        return result

    is_async = inspect.iscoroutinefunction(original)
    setattr(owner, name, mortal_coroutine if is_async else mortal)
