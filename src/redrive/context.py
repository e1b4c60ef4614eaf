"""What a handler can ask about the delivery it works on."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from datetime import datetime
from typing import Any

import msgspec

from redrive.errors import UsageError
from redrive.model.delivery import DeliveryId, Leased
from redrive.model.event import Event
from redrive.policies.terms import Terms

__all__ = ["Current", "current", "handling", "log_fields"]

_MOST_IDS = 20


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery that a handler works on.

    `attempt` counts the tries of this cycle, this one included, and `max_attempts` is how many
    there are. `cycle` is 1 at first and grows with each replay, as far as they are remembered.
    After its `deadline` a delivery is not tried again.
    """

    delivery_id: DeliveryId
    event: Event[Any]
    destination: str
    attempt: int
    max_attempts: int
    cycle: int = 1
    deadline: datetime | None = None

    @property
    def is_replay(self) -> bool:
        """Whether it has failed for good before, and was sent again."""
        return self.cycle > 1

    @property
    def tenant(self) -> str | None:
        """Whose event it is."""
        return self.event.tenant


class handling(msgspec.Struct):  # noqa: N801 - it reads as a statement
    """Has `current` tell of these deliveries within the block, each with its event as handed."""

    deliveries: Sequence[Leased]
    events: Sequence[Event[Any]]
    terms: Terms
    is_batch: bool
    token: Token[handling] | None = None

    def __enter__(self) -> None:
        self.token = _handled.set(self)

    def __exit__(self, *_raised: object) -> None:
        try:  # noqa: SIM105 - for each delivery; `suppress` would be a third of the cost
            _handled.reset(self.token)  # type: ignore[arg-type]  # it is set
        except ValueError:  # a task that Python throws away is closed in another context
            pass


_handled: ContextVar[handling] = ContextVar("redrive_handled")


def current(event: Event[Any] | None = None) -> Current:
    """Return the delivery that the running handler works on.

    A handler of batches works on several, so it says of which `event`. What a handler awaits or
    hands to `asyncio.to_thread` may ask too; a thread of its own has to be given the answer.
    """
    handled = _handled.get(None)
    if handled is None:
        raise UsageError(
            "redrive.current() tells of the delivery that a handler works on, and no handler runs "
            "here; call it in a handler, or in what a handler calls or awaits."
        )
    leased, carried = _chosen(handled, event)
    return Current(
        delivery_id=leased.lease.delivery_id,
        event=carried,
        destination=leased.destination,
        attempt=leased.attempt,
        max_attempts=handled.terms.retry_for(carried.type).max_attempts,
        cycle=leased.cycles + 1,
        deadline=leased.deadline,
    )


def _chosen(handled: handling, event: Event[Any] | None) -> tuple[Leased, Event[Any]]:
    if event is None and handled.is_batch:
        raise UsageError(
            "This handler takes a batch, so it works on several deliveries; say of which event: "
            "redrive.current(event)."
        )
    for leased, carried in zip(handled.deliveries, handled.events, strict=True):
        if event is None or carried.id == event.id:
            return leased, carried
    raise UsageError(f"The running handler was not given the event {getattr(event, 'id', event)}.")


def log_fields() -> dict[str, object]:
    """Return what a log line of the running handler is about; nothing where no handler runs."""
    handled = _handled.get(None)
    if handled is None:
        return {}
    first, event = handled.deliveries[0], handled.events[0]
    if handled.is_batch:
        ids = [one.lease.delivery_id for one in handled.deliveries[:_MOST_IDS]]
        count = len(handled.deliveries)
        return {"destination": first.destination, "count": count, "deliveries": ids}
    fields: dict[str, object] = {
        "destination": first.destination,
        "event_type": event.type,
        "delivery": first.lease.delivery_id,
        "attempt": first.attempt,
        "event_id": event.id,
    }
    if event.tenant is not None:
        fields["tenant"] = event.tenant
    return fields
