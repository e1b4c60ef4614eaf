"""Which of the entries to append are new, and what the others get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from redrive.model.event import Event, EventId, Receipt
from redrive.store import AppendResult, Conflict, Entry, VersionConflict
from redrive.stores.codec import is_same_body
from redrive.stores.sealed import Codec

__all__ = [
    "Kept",
    "Remains",
    "has_expectations",
    "is_refused",
    "numbered",
    "remains_from",
    "sift",
    "unique_key",
]


class Kept(msgspec.Struct, frozen=True):
    """An event as it is kept: to whom it was given, and its version within its key."""

    event: Event[msgspec.Raw]
    destinations: tuple[str, ...]
    version: int | None = None


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an event whose idempotency key is remembered longer than itself."""

    event_id: EventId
    destinations: tuple[str, ...]
    digest: str
    version: int | None = None

    @classmethod
    def of(cls, kept: Kept, codec: Codec) -> Remains:
        """Return what to remember of an event."""
        return cls(
            event_id=kept.event.id,
            destinations=kept.destinations,
            digest=codec.digest(kept.event),
            version=kept.version,
        )


_remains = msgspec.json.Decoder(Remains)


def remains_from(document: str) -> Remains:
    """Read what is left of an event."""
    return _remains.decode(document)


def unique_key(entry: Entry, codec: Codec) -> tuple[str, str] | None:
    """Return what an event that is to be unique has in common with those that are the same."""
    if entry.unique is None:
        return None
    by = entry.unique.by
    key = f"={codec.digest(entry.event)}" if by is None else f":{by}"
    return entry.event.source, key


def has_expectations(entries: Sequence[Entry]) -> bool:
    """Tell whether the versions of keys have to be known before anything is decided."""
    return any(entry.expected_version is not None for entry in entries)


def sift(
    entries: Sequence[Entry],
    known: dict[object, Kept | Remains],
    versions: dict[str, int],
    uniques: dict[tuple[str, str], Receipt],
    *,
    codec: Codec,
) -> tuple[list[AppendResult], list[Entry]]:
    """Decide each entry's result, and which entries are new; those get their versions later.

    `known` holds what was stored before, by event id and by source with idempotency key;
    `versions` how far the keys are, if any entry expects something of them; `uniques` what entries
    get that are to be unique and are not.
    """
    results: list[AppendResult] = []
    fresh: list[Entry] = []
    if not known and _are_plain(entries):
        receipts = [Receipt(event_id=e.event.id, destinations=e.destinations) for e in entries]
        return list(receipts), list(entries)
    for entry in entries:
        event = entry.event
        keyed = (event.source, event.idempotency_key)
        earlier = known.get(event.id)
        if earlier is None and event.idempotency_key is not None:
            earlier = known.get(keyed)
        if earlier is not None:
            results.append(_result(earlier, event, codec))
            continue
        unique = unique_key(entry, codec)
        if unique is not None and unique in uniques:
            results.append(uniques[unique])
            continue
        actual = 0 if event.key is None else versions.get(event.key, 0)
        if entry.expected_version not in (None, actual):
            results.append(VersionConflict(actual))
            continue
        if event.key is not None:
            versions[event.key] = actual + 1
        fresh.append(entry)
        known[event.id] = known[keyed] = Kept(event, entry.destinations)
        receipt = Receipt(event_id=event.id, destinations=entry.destinations)
        if unique is not None:
            uniques[unique] = msgspec.structs.replace(receipt, is_duplicate=True)
        results.append(receipt)
    return results, fresh


def _are_plain(entries: Sequence[Entry]) -> bool:
    """Tell whether nothing about any of them depends on others: in bulk, to look costs most."""
    for one in entries:
        if not (
            one.event.idempotency_key is None
            and one.expected_version is None
            and one.unique is None
        ):
            return False
    return len({one.event.id for one in entries}) == len(entries)


def _result(earlier: Kept | Remains, event: Event[msgspec.Raw], codec: Codec) -> Receipt | Conflict:
    if isinstance(earlier, Remains):
        return _from_remains(earlier, event, codec)
    if earlier.event.id != event.id and not _is_same(earlier.event, event, codec):
        return Conflict(earlier.event.id)
    return Receipt(
        event_id=earlier.event.id,
        destinations=earlier.destinations,
        is_duplicate=earlier.event.id != event.id,
        version=earlier.version,
    )


def _is_same(earlier: Event[msgspec.Raw], event: Event[msgspec.Raw], codec: Codec) -> bool:
    if earlier.erased is not None and earlier.erased.digest:
        return codec.is_digest_of(earlier.erased.digest, event)
    return is_same_body(earlier, event)


def _from_remains(remains: Remains, event: Event[msgspec.Raw], codec: Codec) -> Receipt | Conflict:
    if not codec.is_digest_of(remains.digest, event):
        return Conflict(remains.event_id)
    return Receipt(
        event_id=remains.event_id,
        destinations=remains.destinations,
        is_duplicate=True,
        version=remains.version,
    )


def is_refused(results: Sequence[AppendResult]) -> bool:
    """Tell whether any of the entries cannot be stored."""
    return any(not isinstance(result, Receipt) for result in results)


def numbered(
    results: Sequence[AppendResult], versions: Mapping[EventId, int]
) -> tuple[AppendResult, ...]:
    """Return the results with the versions that the new events got."""
    if not versions:
        return tuple(results)
    return tuple(
        msgspec.structs.replace(result, version=versions[result.event_id])
        if isinstance(result, Receipt) and result.event_id in versions
        else result
        for result in results
    )
