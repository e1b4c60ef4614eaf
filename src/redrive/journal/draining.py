"""Draining: what is in the journal is given to the store, each record once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from redrive.conditions.routing import recipients
from redrive.errors import JournalError, SecretError, UsageError
from redrive.journal.folder import (
    DAMAGED_SUFFIX,
    DRAINED_SUFFIX,
    locked,
    progress_of,
    to_drain,
    write_progress,
)
from redrive.journal.line import (
    EventRecord,
    JournalLine,
    PublishedRecord,
    Record,
    TriedRecord,
    opened,
    read_header,
    read_lines,
)
from redrive.model.destination import Routes
from redrive.model.event import Receipt
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.policies.fingerprint import grouped
from redrive.store import (
    Conflict,
    Entry,
    LineSeal,
    Rest,
    RoutesChanged,
    Store,
    Tried,
    VersionConflict,
)

__all__ = ["Drained", "LeftFile", "drain_file", "drain_folder"]

_MOST_AT_ONCE = 200
_NOBODY = "journal"
"""Where a dead letter is put of which nobody knows whom it was for."""
_RULE = "the journal's drain was refused"


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be drained, and why."""

    name: str
    why: str


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records of the journal.

    `refused` became dead letters, `unrouted` were tracked and nobody wants them. `busy` are files
    that somebody else writes or drains, and `foreign` ones are for another store. `left` could not
    be drained, and are as they were.
    """

    files: int = 0
    records: int = 0
    refused: int = 0
    unrouted: int = 0
    damaged: int = 0
    busy: int = 0
    foreign: int = 0
    left: tuple[LeftFile, ...] = ()

    def __add__(self, other: Drained) -> Drained:
        names = self.__struct_fields__
        return Drained(**{name: getattr(self, name) + getattr(other, name) for name in names})


async def drain_folder(
    folder: Path,
    store: Store,
    *,
    name: str = "",
    passed_over: Collection[str] = (),
    seal: LineSeal | None = None,
) -> Drained:
    """Give all files to the store that nobody else has; one that cannot be given keeps no other.

    With a `name`, the files that are for a store of another name are left to that.
    """
    done = Drained()
    for path in to_drain(folder):
        if path.name in passed_over:
            continue
        try:
            done += await drain_file(path, store, name=name, seal=seal)
        except (JournalError, SecretError) as error:
            done += Drained(left=(LeftFile(name=path.name, why=str(error)),))
    return done


async def drain_file(
    path: Path, store: Store, *, name: str = "", seal: LineSeal | None = None
) -> Drained:
    """Give a file to the store; each record once, however often it is begun again.

    A file that is done is kept under another name. One with lines that cannot be read is kept apart
    for a person, its other records are given.
    """
    with locked(path) as is_free:
        if not is_free:
            return Drained(busy=1)
        header = read_header(path)
        if name and header is not None and header.store not in {"", name}:
            return Drained(foreign=1)
        place = progress_of(path)
        done = Drained()
        batch: list[JournalLine] = []
        for line in read_lines(path, after=place):
            batch.append(line)
            if len(batch) >= _MOST_AT_ONCE:
                done += await _give(path, batch, store, seal)
                batch = []
        if batch:
            done += await _give(path, batch, store, seal)
        _put_away(path)
        return done + Drained(files=1)


def _put_away(path: Path) -> None:
    """Give a file that is done its other name: nobody drains it again."""
    has_damage = any(one.damage for one in read_lines(path))
    try:
        path.replace(path.with_suffix(DAMAGED_SUFFIX if has_damage else DRAINED_SUFFIX))
        path.with_suffix(".progress").unlink(missing_ok=True)
    except OSError as error:
        raise JournalError(
            f"{path} is drained, and cannot be put away ({error.strerror}). Let this process write "
            "there; until then it is given again, which changes nothing."
        ) from error


async def _give(
    path: Path, batch: Sequence[JournalLine], store: Store, seal: LineSeal | None
) -> Drained:
    done = Drained(damaged=sum(one.record is None for one in batch))
    records = [opened(one.record, seal) for one in batch if one.record is not None]
    for kind, some in groupby(records, key=type):
        if kind is PublishedRecord:
            for one in some:
                done += await _publish(one, store)  # type: ignore[arg-type]  # as grouped
        else:
            done += await _hand_over(list(some), store)
    write_progress(path, batch[-1].end)
    return done


async def _hand_over(records: Sequence[Record], store: Store) -> Drained:
    routes = await store.routes()
    tried: list[Tried] = []
    unrouted = 0
    for one in records:
        match one:
            case TriedRecord():
                tried.append(one.tried)
            case EventRecord(event=event, reason=reason, fault=fault):
                names = recipients(routes, event)
                unrouted += not names
                tried.append(
                    Tried(
                        event=event,
                        rest=tuple(_rest(name, reason, fault) for name in names),
                    )
                )
            case PublishedRecord():  # they go another way
                raise AssertionError(one)
    await store.take_over(tried)
    return Drained(records=len(records), unrouted=unrouted)


async def _publish(record: PublishedRecord, store: Store) -> Drained:
    event = record.event
    routes = await store.routes()
    while True:
        if (wrong := routes.misaddressed(event)) is not None:
            return await _refuse(record, str(wrong), routes, store)
        entry = Entry(event, recipients(routes, event), record.expected_version, record.unique)
        try:
            appended = await store.append(
                [entry], routes_version=routes.version, all_or_nothing=True
            )
        except UsageError as error:
            return await _refuse(record, str(error), routes, store)
        if isinstance(appended, RoutesChanged):
            routes = appended.routes
            continue
        result = appended.results[0]
        match result:
            case Receipt():
                return Drained(records=1)
            case Conflict(event_id=other):
                why = f"Its idempotency key was used before, by event {other}, with another body."
            case VersionConflict(actual=actual):
                why = f"Its key was to be at version {record.expected_version}, and is at {actual}."
            case later:
                await later
                return Drained(records=1)
        return await _refuse(record, why, routes, store)


async def _refuse(record: PublishedRecord, why: str, routes: Routes, store: Store) -> Drained:
    """Keep what the store does not take as a dead letter, for whoever was to get it."""
    event = msgspec.structs.replace(record.event, idempotency_key=None)
    fault = Fault(error_class="JournalRefused", message=why, rule=_RULE)
    names = recipients(routes, event) or (_NOBODY,)
    rest = tuple(_rest(name, FailureReason.TERMINAL, fault) for name in names)
    await store.take_over([Tried(event=event, rest=rest)])
    return Drained(records=1, refused=1)


def _rest(name: str, reason: FailureReason | None, fault: Fault | None) -> Rest:
    if reason is None or fault is None:
        return Rest(destination=name)
    return Rest(destination=name, reason=reason, fault=grouped(fault, name))
