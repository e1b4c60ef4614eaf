"""The audit log: who did what to deliveries, when and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_text

__all__ = ["REDRIVE", "Actor", "AuditEntry", "AuditQuery"]

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


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which operations to look at; what is `None` does not matter.

    `deliveries` are those of which one was changed, and `name` is part of what was changed else,
    such as a destination's. The time is when it was done: from `since` on, before `until`.
    """

    by: str | None = None
    action: str | None = None
    deliveries: tuple[int, ...] | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for field in ("by", "action", "name"):
            if (value := getattr(self, field)) is not None:
                check_text(field, value, longest=_LONGEST_REASON)

    def fits(self, entry: AuditEntry) -> bool:
        """Tell whether it finds an entry."""
        return (
            self.by in (None, entry.by)
            and self.action in (None, entry.action)
            and (self.deliveries is None or not set(self.deliveries).isdisjoint(entry.deliveries))
            and (self.name is None or self.name in entry.detail)
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )
