"""What a planted bug is, and how it is planted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from redrive.stores.memory import MemoryStore
from tests.simulation.plan import StoreKind

__all__ = ["Bug", "planted"]


class Bug(NamedTuple):
    """A bug: a broken store, something of the engine that is replaced, or a spoiled statement."""

    name: str
    store: type[MemoryStore] = MemoryStore
    patches: tuple[tuple[Any, str, Any], ...] = ()
    on: StoreKind = "memory"
    words: tuple[str, str] | None = None
    """Words of a statement on its way to the server, and what they become."""
    is_projecting: bool = False
    """Whether it is in what projections do, and looked for in a world that has them."""
    is_tracking: bool = False
    """Whether it is in what tracking does, and looked for in a world whose processes track."""
    has_services: bool = False
    """Whether it is in what becomes of stored services and rules, and looked for among them."""
    is_crowded: bool = False
    """Whether it is looked for in worlds with dozens of destinations."""


@contextmanager
def planted(bug: Bug | None) -> Iterator[type[MemoryStore]]:
    """Plant a bug for the duration of a block, and give the store it needs."""
    with ExitStack() as stack:
        for target, attribute, replacement in bug.patches if bug else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield bug.store if bug else MemoryStore
