"""The journal of the machine that is asked: what waits there for the store, and giving it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.journal.draining import Drained, drain_folder
from redrive.journal.folder import JournalFile, expire, files_of, records_of
from redrive.journal.line import JournalLine, Record, TriedRecord, event_of, opened
from redrive.model.audit import Actor
from redrive.observer import Operated
from redrive.operations.context import OperationContext, check_limit
from redrive.store import LineSeal

__all__ = ["Journal", "JournalPage", "JournalRecord", "Journaling"]


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a folder on one machine, the oldest first."""

    host: str
    folder: str
    files: tuple[JournalFile, ...] = ()

    @property
    def waiting(self) -> int:
        """How many records the store still has to be given."""
        return sum(one.waiting for one in self.files)


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record without what it carries; a line that cannot be read has only its `damage`.

    `kind` says how it came there: it was `published`, or `tracked` and routed by nobody yet, or
    `tried`, with what is left of it. `destinations` are those it is still for, if that is known.
    """

    end: int
    kind: str = ""
    event_id: str = ""
    event_type: str = ""
    key: str | None = None
    tenant: str | None = None
    published_at: datetime | None = None
    destinations: tuple[str, ...] = ()
    damage: str = ""


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some records of a file; `next` is where it goes on, if it does."""

    records: tuple[JournalRecord, ...]
    next: int | None = None


class Journaling(OperationContext):
    """Look at the journal, and drain it.

    A journal is a folder of one machine: what is told and drained here is that of the process that
    is asked, and no other. None of it asks the store but the drain.
    """

    async def journal(self, *, verify: bool = False) -> Journal:
        """Return the files of this machine's journal; with `verify`, drained ones are read too."""
        place = self._journal_place
        files = await self._executor.submit(lambda: files_of(place.folder, verify=verify))
        return Journal(host=place.host, folder=str(place.folder), files=tuple(files))

    async def journal_records(
        self, file: str, *, after: int = 0, limit: int = 50, damaged: bool = False
    ) -> JournalPage:
        """Return records of one file of this machine's journal, without payloads.

        They are those that end behind the byte `after`; or, with `damaged`, lines that cannot be
        read.
        """
        check_limit(limit)
        place = self._journal_place
        lines = await self._executor.submit(lambda: records_of(place.folder, file))
        chosen = [one for one in lines if one.end > after and (one.damage or not damaged)]
        records = tuple(_told(one, place.seal) for one in chosen[:limit])
        return JournalPage(records=records, next=records[-1].end if len(chosen) > limit else None)

    async def drain_journal(
        self, *, by: str = "operator", why: str = "", any_store: bool = False
    ) -> Drained:
        """Give this machine's journal to the store, each record once, as who tracks does by itself.

        Files that somebody writes are left to them, and so are those for another store, unless
        with `any_store`: a store that has moved has another address. Drained ones go when they were
        kept long enough. What was drained is one entry of the audit log.
        """
        actor, place = Actor(by, why), self._journal_place
        store = await self._to_change()
        name = "" if any_store else place.store
        done = await drain_folder(place.folder, store, name=name, seal=place.seal)
        await self._executor.submit(lambda: expire(place.folder, place.keep, clock=self._clock))
        if done.records:
            detail = f"journal of {place.host}: {done.files} files, {done.refused} refused"
            await store.note("drain", (), actor=actor, count=done.records, detail=detail)
            self._observer.notice(Operated(action="drain", by=by, why=why))
        return done


def _told(line: JournalLine, seal: LineSeal | None) -> JournalRecord:
    if line.record is None:
        return JournalRecord(end=line.end, damage=line.damage)
    record = opened(line.record, seal)
    event, names = event_of(record), _names(record)
    return JournalRecord(
        end=line.end,
        kind=str(record.__struct_config__.tag),
        event_id=event.id,
        event_type=event.type,
        key=event.key,
        tenant=event.tenant,
        published_at=event.published_at,
        destinations=names,
    )


def _names(record: Record) -> tuple[str, ...]:
    if isinstance(record, TriedRecord):
        return tuple(one.destination for one in record.tried.rest)
    return record.event.to
