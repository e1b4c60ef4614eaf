"""Hung: what processes that each live for one job tell each other of destinations that hang."""

from __future__ import annotations

import mmap
import struct
from hashlib import blake2b

__all__ = ["Hung", "share", "shared"]

_SLOT = struct.Struct("<qd")
_SLOTS = 256
_TIMES = 12
"""A destination is left alone for this many times as long as somebody has waited for it, so that
waiting takes a thirteenth of the time."""


class Hung:
    """Memory that a process shares with all that are forked from it.

    Each slot holds which destination hangs, and until when nobody tries it, by the machine's
    monotonic clock. What is overwritten by another in the same moment is tried once too often.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOTS * _SLOT.size)

    def note(self, store: str, destination: str, *, waited: float, now: float) -> None:
        """Note that somebody has waited in vain for so many seconds."""
        key, until = _key(store, destination), now + _TIMES * waited
        slots = [_SLOT.unpack_from(self._memory, at) for at in _PLACES]
        same = [at for at, (known, _) in zip(_PLACES, slots, strict=True) if known == key]
        earliest = min(zip(_PLACES, slots, strict=True), key=lambda one: one[1][1])[0]
        _SLOT.pack_into(self._memory, same[0] if same else earliest, key, until)

    def is_hung(self, store: str, destination: str, *, now: float) -> bool:
        """Tell whether it is to be left alone."""
        key = _key(store, destination)
        return any(
            known == key and until > now for known, until in _SLOT.iter_unpack(self._memory[:])
        )


_PLACES = range(0, _SLOTS * _SLOT.size, _SLOT.size)


def _key(store: str, destination: str) -> int:
    digest = blake2b(f"{store}\0{destination}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


_shared: list[Hung] = []


def share() -> None:
    """Have the processes that are forked from this one tell each other from now on."""
    if not _shared:
        _shared.append(Hung())


def shared() -> Hung | None:
    """Return what this process shares with others, if anything."""
    return _shared[0] if _shared else None
