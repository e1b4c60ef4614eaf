"""Which of the entries to append are new, and what the others get."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.event import Event, EventId, Receipt
from redrive.store import Conflict, Entry
from redrive.stores.codec import body_digest, is_same_body

__all__ = ["Remains", "remains_from", "sift"]


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an event whose idempotency key is remembered longer than itself."""

    event_id: EventId
    destinations: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, event: Event[msgspec.Raw], destinations: Sequence[str]) -> Remains:
        """Return what to remember of an event."""
        return cls(event_id=event.id, destinations=tuple(destinations), digest=body_digest(event))


_remains = msgspec.json.Decoder(Remains)


def remains_from(document: str) -> Remains:
    """Read what is left of an event."""
    return _remains.decode(document)


def sift(
    entries: Sequence[Entry], known: dict[object, Entry | Remains]
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
        elif isinstance(earlier, Remains):
            results.append(_from_remains(earlier, event))
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


def _from_remains(remains: Remains, event: Event[msgspec.Raw]) -> Receipt | Conflict:
    if remains.digest != body_digest(event):
        return Conflict(remains.event_id)
    return Receipt(event_id=remains.event_id, destinations=remains.destinations, is_duplicate=True)
