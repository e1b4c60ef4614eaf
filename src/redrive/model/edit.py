"""Edits: what a person has changed in a payload, when and why."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

__all__ = ["Change", "ChangeKind", "Edit"]


class ChangeKind(StrEnum):
    """What happened at one place of a payload."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place of a payload that differs; the values are JSON, cut short if they are long."""

    path: str
    kind: ChangeKind
    before: str = ""
    after: str = ""


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivery's payload was changed by a person; `more` changes were not written down."""

    by: str
    at: datetime
    why: str
    changes: tuple[Change, ...]
    more: int = 0
