"""Which of the entries to append are new, and what the others get."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.event import Receipt
from redrive.store import Conflict, Entry
from redrive.stores.codec import is_same_body

__all__ = ["sift"]


def sift(
    entries: Sequence[Entry], known: dict[object, Entry]
) -> tuple[list[Receipt | Conflict], list[Entry]]:
    """Decide each entry's result, and which entries are new.

    `known` holds what was stored before, by event id and by source with idempotency key.
    """
    results: list[Receipt | Conflict] = []
    fresh: list[Entry] = []
    for entry in entries:
        event = entry.event
        keyed = (event.source, event.idempotency_key)
        earlier = known.get(event.id)
        if earlier is None and event.idempotency_key is not None:
            earlier = known.get(keyed)
        if earlier is None:
            fresh.append(entry)
            known[event.id] = entry
            known[keyed] = entry
            results.append(Receipt(event_id=event.id, destinations=entry.destinations))
        elif earlier.event.id == event.id or is_same_body(earlier.event, event):
            results.append(
                Receipt(
                    event_id=earlier.event.id,
                    destinations=earlier.destinations,
                    is_duplicate=earlier.event.id != event.id,
                )
            )
        else:
            results.append(Conflict(earlier.event.id))
    return results, fresh
