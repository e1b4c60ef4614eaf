"""The journal of the machine that the server runs on."""

from __future__ import annotations

from redrive.journal.draining import Drained
from redrive.operations import Journal, JournalPage
from redrive.web.journaled import DrainJournal, LookIntoJournal, ShowRecords
from redrive.web.route import Call

__all__ = ["drain_journal", "journal", "journal_records"]


async def journal(call: Call, given: LookIntoJournal) -> Journal:
    """List the files of the journal of the server's own machine."""
    return await call.operations.journal(verify=given.verify)


async def journal_records(call: Call, given: ShowRecords) -> JournalPage:
    """List records of one file of that journal, without payloads."""
    return await call.operations.journal_records(
        call.name, after=given.after, limit=given.limit, damaged=given.damaged
    )


async def drain_journal(call: Call, given: DrainJournal) -> Drained:
    """Give the journal of the server's own machine to the store, each record once."""
    return await call.operations.drain_journal(by=call.by, why=given.why, any_store=given.any_store)
