"""Claimed deliveries and overdue leases to decide about."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.event import Event, EventId
from redrive.store import Overdue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def leased(
    *,
    attempt: int = 1,
    snoozes: int = 0,
    age: timedelta = timedelta(seconds=1),
    kind: Kind = Kind.FIRST,
    event_type: str = "order.paid",
    deadline: datetime | None = None,
    due: datetime | None = None,
) -> Leased:
    event = Event(
        id=EventId("0190a5f0-0000-7000-8000-000000000001"),
        type=event_type,
        payload=msgspec.Raw(b"{}"),
        published_at=NOON - age,
        occurred_at=NOON - age,
        deadline=deadline,
        due=due,
    )
    return Leased(
        lease=Lease(DeliveryId(1), 1),
        destination="billing",
        event=event,
        attempt=attempt,
        kind=kind,
        claimed_at=NOON - timedelta(milliseconds=5),
        enqueued_at=NOON - age,
        snoozes=snoozes,
        deadline=deadline,
    )


def overdue(**changes: Any) -> Overdue:  # noqa: ANN401 - any field of the struct
    fields: dict[str, Any] = {
        "lease": Lease(DeliveryId(1), 1),
        "destination": "billing",
        "event_id": EventId("0190a5f0-0000-7000-8000-000000000001"),
        "worker": "w1",
        "attempt": 1,
        "crashes": 0,
        "last_crash_at": None,
        "was_alone": False,
        "owner_is_alive": False,
        "now": NOON,
    }
    return Overdue(**(fields | changes))
