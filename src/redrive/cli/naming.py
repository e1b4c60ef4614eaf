"""Which deliveries are meant: by their numbers, or by the ids of their events."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from redrive.cli.printing import print_warning
from redrive.cli.reading import check_numbers
from redrive.cli.session import in_session
from redrive.errors import UsageError
from redrive.operations import DeliveryState
from redrive.store import EventQuery

if TYPE_CHECKING:
    from redrive.cli.session import Operated

__all__ = ["EVERY", "check_names", "deliveries_of", "event_of", "number_of", "numbers_of"]

EVERY = tuple(DeliveryState)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?[0-9]{1,30}")


def check_names(names: Sequence[str]) -> None:
    """Refuse what is neither the number of a delivery nor the id of an event."""
    for one in names:
        if _NUMBER.fullmatch(one):
            check_numbers([int(one)])
        elif not _UUID.fullmatch(one.lower()):
            raise UsageError(
                f"{one!r} is neither the number of a delivery, such as 7, nor the id of an event, "
                "such as 01890000-0000-7000-8000-000000000001."
            )


async def numbers_of(app: Operated, names: Sequence[str], *, needs: Collection[str]) -> list[int]:
    """Return the numbers of deliveries, each once; which one an event's id stands for is told."""
    check_names(names)
    numbers: dict[int, None] = {}
    for one in names:
        if _NUMBER.fullmatch(one):
            numbers[int(one)] = None
            continue
        found = await app.operations.delivery_of(one.lower(), fits=needs)
        print_warning(f"event {one.lower()} is delivery {found.id} to {found.destination}.")
        numbers[found.id] = None
    return list(numbers)


def number_of(name: str, *, needs: Collection[str] = EVERY, store: str | None) -> int:
    """Return the number of the delivery that is meant."""
    check_names([name])
    if _NUMBER.fullmatch(name):
        return int(name)
    [found] = in_session(lambda app: numbers_of(app, [name], needs=needs), store=store)
    return found


async def event_of(app: Operated, name: str) -> str:
    """Return the id of the event that is meant; a delivery's number stands for its event."""
    if not _NUMBER.fullmatch(name):
        return name.lower()
    event = (await app.operations.show(int(name))).event
    print_warning(f"delivery {name} is of event {event.id}.")
    return event.id


async def deliveries_of(app: Operated, name: str) -> tuple[int, ...] | None:
    """Return the delivery of that number, or those of that event; `None` for other names."""
    if _NUMBER.fullmatch(name):
        check_numbers([int(name)])
        return (int(name),)
    if not _UUID.fullmatch(name.lower()):
        return None
    query = EventQuery(event_id=name.lower())
    return tuple(
        one.id
        for event in (await app.operations.find_events(query, limit=1)).events
        for one in event.deliveries
    )
