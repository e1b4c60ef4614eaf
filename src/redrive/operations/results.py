"""Results: what handlers returned, waited for by whoever published."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.errors import (
    DeliveryFailedError,
    NotFoundError,
    ResultTimeoutError,
    TransactionError,
    UsageError,
)
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.duration import Duration, duration, spell_duration
from redrive.model.event import EventId
from redrive.model.outcome import CALL
from redrive.operations.looking import Looking
from redrive.store import Query, Store

__all__ = ["Results"]

_FIRST_LOOK_SECONDS = 0.01
_LAST_LOOK_SECONDS = 0.25
_GROWTH = 1.5


class Results(Looking):
    """Wait for what becomes of a delivery."""

    async def result(
        self,
        event_id: str,
        destination: str,
        *,
        timeout: Duration = "30s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> object:
        """Wait until an event is delivered to a destination; return what its handler returned.

        See `Receipt.result`.
        """
        store = await self._to_change()
        span = duration(timeout, name="timeout")
        end = self._clock.monotonic() + span.total_seconds()
        if await store.find_event(EventId(event_id)) is None:
            raise TransactionError(
                f"The event {event_id} is not stored: the transaction that it was published in "
                "has not committed, or was rolled back. Wait for its result after the commit."
            )
        pause = _FIRST_LOOK_SECONDS
        while True:
            delivery = await self._delivery(store, event_id, destination)
            match delivery.status:
                case Status.DELIVERED:
                    return _returned(delivery)
                case Status.FAILED:
                    raise DeliveryFailedError(_why_failed(delivery))
                case _:
                    rest = end - self._clock.monotonic()
            if rest <= 0:
                raise ResultTimeoutError(await self._where_it_stands(delivery.id, span))
            await self._clock.sleep(min(pause, rest))
            pause = min(pause * _GROWTH, _LAST_LOOK_SECONDS)

    async def _delivery(self, store: Store, event_id: str, destination: str) -> Delivery:
        query = Query(status=None, event_id=event_id, destination=destination)
        page = await store.find(query, limit=1)
        found = await store.find_delivery(page.deliveries[0].id) if page.deliveries else None
        if found is None or not self._is_within(found):
            raise NotFoundError(
                f"The event {event_id} has no delivery to {destination!r}: it was not given to it, "
                "or its delivery is kept no longer (keep_delivered)."
            )
        return found

    async def _where_it_stands(self, delivery_id: DeliveryId, span: timedelta) -> str:
        told = await self.show(delivery_id)
        one = told.delivery
        stands = f"Delivery {one.id} to {one.destination!r} is {one.status.replace('_', ' ')}"
        tries = f" after {one.attempts} tries" if one.status is Status.PENDING else ""
        why = f" {told.waiting[0].what}" if told.waiting else ""
        return f"{stands}{tries}, {spell_duration(span)} after it was waited for.{why} It goes on."


def _returned(delivery: Delivery) -> object:
    exchange = delivery.exchange
    if exchange is None or exchange.method != CALL:
        return None
    if exchange.reason:
        raise UsageError(
            f"What the handler of delivery {delivery.id} returned was not kept. {exchange.reason}"
        )
    return msgspec.json.decode(exchange.body)


def _why_failed(delivery: Delivery) -> str:
    fault = delivery.fault
    why = "" if fault is None else f" {fault.error_class}: {fault.message}"
    return (
        f"Delivery {delivery.id} to {delivery.destination!r} has failed ({delivery.reason}).{why} "
        f"See: redrive dlq show {delivery.id}"
    )
