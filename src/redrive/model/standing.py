"""Standings: which declaration of a destination is in force, and which ones were seen."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.model.destination import Destination

__all__ = ["Seen", "Standing"]


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A declaration that was seen, by its digest.

    `is_whole` says that a worker brought it. Otherwise a process that only publishes has offered
    what it adds, and the worker that brings the rest is still to come.
    """

    digest: str
    is_whole: bool


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps about the declarations of one destination.

    `added` are patterns beside those in force, `seen` are the latest that were seen, the newest
    last, and `returned_at` is when one that was seen before last came into force again.
    """

    in_force: Destination
    added: tuple[str, ...] = ()
    is_removed: bool = False
    seen: tuple[Seen, ...] = ()
    returned_at: datetime | None = None

    @property
    def destination(self) -> Destination:
        """The destination as everybody has it: what is in force, and what was added to it."""
        if not self.added:
            return self.in_force
        patterns = self.in_force.patterns + self.added
        return msgspec.structs.replace(self.in_force, patterns=patterns)
