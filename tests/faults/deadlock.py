"""A C function that never returns, whatever signals come."""

from __future__ import annotations

import ctypes

__all__ = ["lock_up"]


def lock_up(*, holds_python: bool) -> None:
    """Wait for ever for a lock that this thread has; with `holds_python`, everybody else waits."""
    library = ctypes.PyDLL(None) if holds_python else ctypes.CDLL(None)
    lock = ctypes.create_string_buffer(64)  # zeroes are a lock that is free
    for _ in range(2):
        library.pthread_mutex_lock(lock)
