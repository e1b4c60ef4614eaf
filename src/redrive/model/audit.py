"""The audit log: who did what to deliveries, when and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_text

__all__ = ["REDRIVE", "Actor", "AuditEntry"]

REDRIVE = "redrive"
"""Who acted when it was no person but the engine itself."""

_LONGEST_REASON = 2_000


class Actor(msgspec.Struct, frozen=True):
    """The person or program behind an operation, and the reason given."""

    by: str
    why: str = ""

    def __post_init__(self) -> None:
        check_text("by", self.by)
        check_text("why", self.why, longest=_LONGEST_REASON)
        if not self.by.strip():
            raise ConfigurationError("An operation needs a name in the audit log; say who acts.")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, as it was carried out."""

    id: int
    at: datetime
    by: str
    why: str
    action: str
    count: int
    deliveries: tuple[int, ...]
    detail: str = ""
