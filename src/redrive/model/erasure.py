"""Erasures: which events are meant, what of them goes, and how the rest of their story looks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import msgspec

from redrive.errors import UsageError
from redrive.model.checks import check_text
from redrive.model.delivery import Attempt, Cycle
from redrive.model.edit import Edit
from redrive.model.event import Erased, Event, EventId
from redrive.model.outcome import Fault
from redrive.model.request_log import LoggedRequest

__all__ = [
    "ERASED",
    "ErasurePart",
    "ErasureQuery",
    "ErasureTerms",
    "ErasureWaiting",
    "erased_attempts",
    "erased_cycles",
    "erased_edits",
    "erased_event",
    "erased_fault",
    "erased_request",
    "is_to_erase",
]

ERASED = "erased"
"""What stands where there was a text that could hold pieces of a payload."""

_MOST_IDS = 1_000
_NOTHING = msgspec.Raw(b"null")
T = TypeVar("T")


class ErasurePart(StrEnum):
    """What of an event goes with its payload, if that is asked for."""

    KEY = "key"
    TENANT = "tenant"
    HEADERS = "headers"
    IDEMPOTENCY_KEY = "idempotency-key"
    """Without it a repeated publish of the event is stored, and delivered, as a new one."""


class ErasureWaiting(StrEnum):
    """What becomes of events that somebody still has to get."""

    DELIVER = "deliver"
    """They are left until they have arrived or failed, and every projection has read them."""
    FAIL = "fail"
    """They fail, except where a try is under way just now."""


class ErasureQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are erased: those of the ids, or all of a key, or all of a tenant."""

    event_ids: tuple[EventId, ...] = ()
    key: str | None = None
    tenant: str | None = None

    def __post_init__(self) -> None:
        said = [bool(self.event_ids), self.key is not None, self.tenant is not None]
        if sum(said) != 1:
            raise UsageError(
                "An erasure is of some events, of a key or of a tenant; name exactly one of them."
            )
        if len(self.event_ids) > _MOST_IDS:
            raise UsageError(
                f"That are {len(self.event_ids):,} events; name up to {_MOST_IDS:,} at once."
            )
        for name, value in (("key", self.key), ("tenant", self.tenant)):
            if value is not None and not check_text(name, value):
                raise UsageError(f"The {name} is empty; name the one whose events are meant.")

    @property
    def by(self) -> str:
        """What it goes by, without what that is."""
        return "event" if self.event_ids else "tenant" if self.key is None else "key"

    def fits(self, event: Event[msgspec.Raw]) -> bool:
        """Tell whether an event is meant."""
        return (
            event.id in self.event_ids
            or (self.key is not None and event.key == self.key)
            or (self.tenant is not None and event.tenant == self.tenant)
        )


class ErasureTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with the payloads, and what becomes of events that wait."""

    parts: tuple[ErasurePart, ...] = ()
    waiting: ErasureWaiting = ErasureWaiting.DELIVER

    def has(self, part: ErasurePart) -> bool:
        """Tell whether a part goes with the payload."""
        return part in self.parts


def is_to_erase(event: Event[msgspec.Raw], terms: ErasureTerms) -> bool:
    """Tell whether there is something to erase: of an erased event parts may be left."""
    if event.erased is None:
        return True
    left = {
        ErasurePart.KEY: event.key is not None,
        ErasurePart.TENANT: event.tenant is not None,
        ErasurePart.HEADERS: bool(event.headers),
        ErasurePart.IDEMPOTENCY_KEY: event.idempotency_key is not None,
    }
    return any(left[part] for part in terms.parts)


def erased_event(
    event: Event[msgspec.Raw], terms: ErasureTerms, *, digest: str, now: datetime
) -> Event[msgspec.Raw]:
    """Return an event without its payload; the digest tells whether another says the same."""
    changes: dict[str, object] = {"payload": _NOTHING}
    forgets_publisher = terms.has(ErasurePart.IDEMPOTENCY_KEY)
    if terms.has(ErasurePart.KEY):
        changes["key"] = None
    if terms.has(ErasurePart.TENANT):
        changes["tenant"] = None
    if terms.has(ErasurePart.HEADERS):
        changes["headers"] = {}
    if forgets_publisher:
        changes["idempotency_key"] = None
    keeps_digest = event.idempotency_key is not None and not forgets_publisher
    at = now if event.erased is None else event.erased.at
    changes["erased"] = Erased(at=at, digest=digest if keeps_digest else "")
    return msgspec.structs.replace(event, **changes)


def erased_fault(fault: Fault | None) -> Fault | None:
    """Return a fault that says what kind it was, and nothing that was said."""
    if fault is None:
        return None
    title = f"{fault.error_class}: {ERASED}" if fault.title else ""
    return msgspec.structs.replace(fault, message=ERASED, code="", stack="", title=title)


def erased_attempts(log: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Return tries of which it is known when and where they were, and of what kind they failed."""
    return tuple(msgspec.structs.replace(one, fault=erased_fault(one.fault)) for one in log)


def erased_cycles(cycles: Sequence[Cycle]) -> tuple[Cycle, ...]:
    """Return cycles without what was said in them."""
    return tuple(
        msgspec.structs.replace(
            one, fault=erased_fault(one.fault) or one.fault, log=erased_attempts(one.log)
        )
        for one in cycles
    )


def erased_edits(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Return edits of which it is known who made them, when and why, and how much they changed."""
    return tuple(
        msgspec.structs.replace(one, changes=(), more=one.more + len(one.changes)) for one in edits
    )


def erased_request(request: LoggedRequest, terms: ErasureTerms) -> LoggedRequest:
    """Return a request of a log without what went wrong in words."""
    return msgspec.structs.replace(
        request,
        error=ERASED if request.error else "",
        tenant=None if terms.has(ErasurePart.TENANT) else request.tenant,
    )
