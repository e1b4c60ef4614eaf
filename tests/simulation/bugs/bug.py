"""What a planted bug is, and how it is planted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from redrive.stores.memory import MemoryStore

__all__ = ["Bug", "planted"]


class Bug(NamedTuple):
    """A bug: a broken store, or something of the engine that is replaced."""

    name: str
    store: type[MemoryStore] = MemoryStore
    patches: tuple[tuple[Any, str, Any], ...] = ()


@contextmanager
def planted(bug: Bug | None) -> Iterator[type[MemoryStore]]:
    """Plant a bug for the duration of a block, and give the store it needs."""
    with ExitStack() as stack:
        for target, attribute, replacement in bug.patches if bug else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield bug.store if bug else MemoryStore
