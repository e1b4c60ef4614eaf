"""Quiet: whether a failure of tracking is raised, or kept for a person to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_quiet", "quiet", "strict"]

_quiet: ContextVar[bool] = ContextVar("redrive_quiet", default=False)


def is_quiet() -> bool:
    """Tell whether a failure of tracking is to stay away from the code that tracks."""
    return _quiet.get()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what cannot be tracked as a dead letter, instead of raising, within the block.

    Jobs of the queues that `redrive.integrations` knows run like that by themselves.
    """
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


@contextmanager
def strict() -> Iterator[None]:
    """Raise what goes wrong with tracking within the block, in a job too."""
    token = _quiet.set(False)
    try:
        yield
    finally:
        _quiet.reset(token)
