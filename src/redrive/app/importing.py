"""Imports that wait until they are needed, and that no fork comes in between.

A child has a copy of the lock of a module that another thread imports just then, and nobody in it
ever lets go of that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["unforked"]

_PATIENCE_SECONDS = 5.0
"""How long a fork waits for an import."""


class _Imports:
    """Who imports; a thread that forks is let through between two imports of others."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._is_held = False

    def close(self) -> None:
        """Wait for the end of the imports of others, and let nobody begin one."""
        self._is_held = self.lock.acquire(timeout=_PATIENCE_SECONDS)

    def open(self) -> None:
        """Let everybody import again."""
        if self._is_held:
            self._is_held = False
            self.lock.release()

    def open_in_child(self) -> None:
        """Begin anew: nobody else is there."""
        self.lock, self._is_held = threading.RLock(), False


_imports = _Imports()


@contextmanager
def unforked() -> Iterator[None]:
    """Import without a fork in between."""
    with _imports.lock:
        yield


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_imports.close,
        after_in_parent=_imports.open,
        after_in_child=_imports.open_in_child,
    )
