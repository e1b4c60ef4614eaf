"""Encryption: whether a store keeps payloads encrypted, by which key, and how far it has come."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["Encryption"]


class Encryption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a store keeps payloads, and all that carries pieces of them, at rest.

    `key_id` is the key that everybody encrypts with, empty if nobody is to. What was kept otherwise
    before is brought to that in the background: `done` rows of `at_most` have been looked at, and
    `changed` of them were. Until then some may need the keys that are `former`, though nobody
    encrypts with them any more. `finished_at` is when all there was had come to it.
    """

    key_id: str = ""
    began_at: datetime
    began_by: str
    done: int = 0
    at_most: int = 0
    changed: int = 0
    former: tuple[str, ...] = ()
    finished_at: datetime | None = None

    @property
    def is_on(self) -> bool:
        """Whether what is written is encrypted."""
        return bool(self.key_id)

    @property
    def left(self) -> int:
        """How many rows at most may still be kept otherwise."""
        return max(self.at_most - self.done, 0) if self.is_under_way else 0

    @property
    def is_under_way(self) -> bool:
        """Whether there may still be something that is kept otherwise."""
        return self.finished_at is None
