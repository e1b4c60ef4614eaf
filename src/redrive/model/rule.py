"""Rules: which events go to a stored service, and which version of the rule says so."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.pattern import check_pattern
from redrive.model.recipient import pinned

__all__ = ["DOCUMENT_KINDS", "NO_SERVICE", "DocumentKind", "RuleRoute", "Stored"]

OnError = Literal["hold", "skip"]
DocumentKind = Literal["service", "rule", "source", "schedule"]
"""What documents are about: where events go, which of them, where they come from, and when."""
DOCUMENT_KINDS: tuple[DocumentKind, ...] = get_args(DocumentKind)

NO_SERVICE = ""
"""What sources and schedules lead to: their events go wherever patterns and rules say."""


class RuleRoute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What routing knows of a rule: the events it is about, and its version."""

    rule: str
    version: int
    patterns: tuple[str, ...]
    condition: str = ""
    """An expression that an event has to fulfil; everything does if there is none."""
    on_error: OnError = "hold"
    """Whether an event whose condition fails is held as a dead letter, or passed by."""

    def __post_init__(self) -> None:
        if not self.patterns:
            raise ConfigurationError(
                f"The rule {self.rule!r} has no pattern, so it would give no event; name what it "
                'is about, such as "order.*".'
            )
        for pattern in self.patterns:
            check_pattern(pattern)

    @property
    def pin(self) -> str:
        """The rule and its version, as deliveries name it."""
        return pinned(self.rule, self.version)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a service, a rule, a source or a schedule, as it is kept.

    `service` is where a rule leads to; a service has its own name there, and the others none.
    """

    kind: DocumentKind
    name: str
    service: str
    version: int
    document: dict[str, Any]

    @property
    def is_enabled(self) -> bool:
        """Whether it does what it is for; it does if it says nothing about it."""
        return bool(self.document.get("enabled", True))

    @property
    def pin(self) -> str:
        """The version of a rule, as deliveries name it."""
        return pinned(self.name, self.version)
