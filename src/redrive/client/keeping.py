"""Keeping through a server: what is pruned, exported and restored, what goes where, who may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from redrive.archive import write_line
from redrive.client.remote import RemoteContext, filter_of, rate_text, span_text, stretches
from redrive.errors import UsageError
from redrive.journal.draining import Drained
from redrive.model.access import Grant, NewToken, Role, Token
from redrive.model.duration import Duration
from redrive.model.encryption import Encryption
from redrive.model.erasure import ErasurePart, ErasureWaiting
from redrive.model.letter import Letter
from redrive.model.limits import Rate
from redrive.model.position import LogPosition
from redrive.model.secret import Rotated, Secret
from redrive.operations import (
    BackfillPlan,
    Erasure,
    ErasurePlan,
    Journal,
    JournalPage,
    PrunePlan,
)
from redrive.store import Backfilled, LetterPage, Moved, ProjectionFigures, Query, Restored
from redrive.web import answers, erased, journaled, requests

__all__ = ["RemoteKeeping"]

_BATCH = 500
Progress = Callable[[int], None]


class RemoteKeeping(RemoteContext):
    """Keep a system in order through its server."""

    async def prunable(self) -> PrunePlan:
        """Count what a prune would remove now, by the settings of the server."""
        return await self._sender.ask("prunable", PrunePlan)

    async def prune(
        self, *, by: str = "", why: str = "", progress: Progress | None = None
    ) -> PrunePlan:
        """Remove what was kept long enough, as workers do by themselves, and tell how much."""
        done = await self._do("prune", PrunePlan, requests.Act(why=why), by)
        _tell(progress, done.pruned.delivered + done.pruned.events)
        return done

    async def export_page(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = _BATCH
    ) -> LetterPage:
        """Return some of the dead letters a query finds, whole, in publish order."""
        given = requests.ListDeadLetters(**filter_of(query), cursor=cursor, limit=limit)
        return await self._sender.ask("export_page", LetterPage, given)

    async def export(self, query: Query | None = None) -> AsyncIterator[Letter]:
        """Go through all dead letters a query finds, whole, in publish order."""
        cursor = None
        while True:
            page = await self.export_page(query, cursor=cursor)
            for letter in page.letters:
                yield letter
            cursor = page.next_cursor
            if cursor is None:
                return

    async def restore(
        self, letters: Sequence[Letter], *, by: str = "", why: str = "", out_of_order: bool = False
    ) -> Restored:
        """Put exported dead letters back, all or none; those that are there change nothing."""
        self._refuse_actor(by)
        if len(letters) > requests.MOST_AT_ONCE:
            raise UsageError(
                f"There are {len(letters):,} dead letters, and a server takes "
                f"{requests.MOST_AT_ONCE:,} at once; give it fewer, again and again."
            )
        if not letters:
            return Restored()
        given = requests.RestoreLetters(
            letters=[msgspec.Raw(write_line(one)) for one in letters],
            why=why,
            out_of_order=out_of_order,
        )
        return await self._sender.ask("restore", Restored, given)

    async def remove_destination(self, destination: str, *, by: str = "", why: str = "") -> bool:
        """Route nothing to a destination any more; what it has stays, held."""
        return await self._act("remove_destination", requests.Act(why=why), by, name=destination)

    async def restore_destination(self, destination: str, *, by: str = "", why: str = "") -> bool:
        """Take a removal back: the destination gets what is published from now on."""
        return await self._act("restore_destination", requests.Act(why=why), by, name=destination)

    async def move(
        self,
        source: str,
        target: str,
        *,
        by: str = "",
        why: str,
        progress: Progress | None = None,
    ) -> Moved:
        """Hand what waits for a destination, and its dead letters, to another one."""
        given = requests.MoveDeliveries(target=target, why=why)
        moved = await self._do("move", Moved, given, by, name=source)
        _tell(progress, len(moved.moved) + moved.skipped + moved.busy)
        return moved

    async def fail_pending(
        self, destination: str, *, by: str = "", why: str, progress: Progress | None = None
    ) -> int:
        """Make dead letters of what waits for a destination; returns of how many."""
        return await self._count("fail_pending", destination, by, why, progress)

    async def delete_pending(
        self, destination: str, *, by: str = "", why: str, progress: Progress | None = None
    ) -> int:
        """Remove what waits for a destination for good; returns how many that were."""
        return await self._count("delete_pending", destination, by, why, progress)

    async def plan_backfill(
        self,
        destination: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> BackfillPlan:
        """Find the events of the log that a destination wants and was never given."""
        given = requests.PlanBackfill(since=since, until=until, event_type=event_type)
        path = {"name": destination}
        return await self._sender.ask("plan_backfill", BackfillPlan, given, path=path)

    async def backfill(
        self,
        destination: str,
        *,
        by: str = "",
        why: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Backfilled:
        """Give a destination the events of the log that it wants and was never given."""
        plan = await self.plan_backfill(
            destination, since=since, until=until, event_type=event_type
        )
        return await self.carry_out(plan, by=by, why=why, generation=generation, progress=progress)

    async def carry_out(
        self,
        plan: BackfillPlan,
        *,
        by: str = "",
        why: str = "",
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Backfilled:
        """Do what `plan_backfill` has found."""
        self._refuse_actor(by)
        added, overtaken = 0, plan.overtaken
        for positions in stretches(plan.positions):
            given = requests.RunBackfill(positions=positions, generation=generation, why=why)
            path = {"name": plan.destination}
            batch = await self._sender.ask("backfill", Backfilled, given, path=path)
            added, overtaken = added + batch.added, overtaken + batch.overtaken
            _tell(progress, len(positions))
        return Backfilled(added=added, overtaken=overtaken)

    async def plan_erase(
        self,
        *,
        event_ids: Sequence[str] = (),
        key: str | None = None,
        tenant: str | None = None,
        parts: Sequence[ErasurePart] = (),
        after: int = 0,
        stretches: int | None = None,
        progress: Progress | None = None,
    ) -> ErasurePlan:
        """Count what an erasure of some events, of a key or of a tenant would be about."""
        plan = ErasurePlan(next=after)
        while plan.next is not None and (stretches is None or stretches > 0):
            given = erased.PlanErasure(
                event_ids=tuple(event_ids),
                key=key,
                tenant=tenant,
                parts=tuple(parts),
                after=plan.next,
            )
            found = await self._sender.ask("plan_erase", ErasurePlan, given)
            plan += found
            stretches = None if stretches is None else stretches - 1
            _tell(progress, found.looked_at)
        return plan

    async def erase(
        self,
        *,
        event_ids: Sequence[str] = (),
        key: str | None = None,
        tenant: str | None = None,
        by: str = "",
        why: str,
        parts: Sequence[ErasurePart] = (),
        waiting: ErasureWaiting = ErasureWaiting.DELIVER,
        after: int = 0,
        stretches: int | None = None,
        progress: Progress | None = None,
    ) -> Erasure:
        """Erase what some events, those of a key or those of a tenant said; it cannot be undone."""
        self._refuse_actor(by)
        done = Erasure(next=after)
        while done.next is not None and (stretches is None or stretches > 0):
            given = erased.RunErasure(
                event_ids=tuple(event_ids),
                key=key,
                tenant=tenant,
                after=done.next,
                why=why,
                parts=tuple(parts),
                waiting=waiting,
            )
            batch = await self._sender.ask("erase", Erasure, given)
            done += batch
            stretches = None if stretches is None else stretches - 1
            _tell(progress, batch.looked_at)
        return done

    async def reset_projection(
        self,
        name: str,
        *,
        by: str = "",
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
    ) -> int:
        """Have a projection begin anew, from the start of the log or behind a position."""
        place = None if after is None else str(after)
        given = requests.ResetProjection(why=why, version=version, after=place)
        return (await self._do("reset_projection", answers.Counted, given, by, name=name)).count

    async def rebuild_projection(
        self,
        name: str,
        *,
        by: str = "",
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
        rate: Rate | str | None = None,
        strict: bool = False,
    ) -> int:
        """Have a version made anew from the log, at most at a rate such as `"500/s"`."""
        self._refuse_actor(by)
        given = requests.RebuildProjection(
            why=why,
            version=version,
            after=None if after is None else str(after),
            rate=rate_text(rate),
            strict=strict,
        )
        path = {"name": name}
        asked = await self._sender.ask("rebuild_projection", answers.Counted, given, path=path)
        return asked.count

    async def cancel_rebuild(
        self, name: str, *, by: str = "", why: str = "", version: int | None = None
    ) -> None:
        """Have a version that is rebuilt beside the one that readers have apply nothing more."""
        given = requests.ActOnVersion(why=why, version=version)
        await self._act("cancel_rebuild", given, by, name=name)

    async def swap_projection(
        self,
        name: str,
        *,
        by: str = "",
        why: str = "",
        version: int | None = None,
        parked: bool = False,
        timeout: Duration = "10s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> ProjectionFigures:
        """Give readers another version of a projection in one step, once it has caught up."""
        self._refuse_actor(by)
        given = requests.SwapProjection(
            why=why,
            version=version,
            parked=parked,
            timeout=span_text(timeout) or "0s",
        )
        return await self._sender.ask(
            "swap_projection", ProjectionFigures, given, path={"name": name}
        )

    async def drop_projection(
        self, name: str, *, by: str = "", why: str = "", version: int | None = None
    ) -> int:
        """Forget a version that no worker reads for, and let its events go when it is time."""
        given = requests.ActOnVersion(why=why, version=version)
        return (await self._do("drop_projection", answers.Counted, given, by, name=name)).count

    async def tokens(
        self,
        *,
        before: str | None = None,
        limit: int | None = None,
        caller: Grant | None = None,
    ) -> Sequence[Token]:
        """Return the tokens that may no more than yours, the latest first.

        At most `limit` of them, those that come after the one with the id `before`.
        """
        self._refuse_actor("", caller)
        found: list[Token] = []
        while True:
            given = requests.ListTokens(cursor=before, limit=limit or _BATCH)
            page = await self._sender.ask("tokens", answers.Tokens, given)
            found += page.tokens
            before = page.next_cursor
            if before is None or limit is not None:
                return found

    async def create_token(
        self,
        name: str,
        *,
        role: Role | str,
        by: str = "",
        why: str,
        tenant: str | None = None,
        destinations: Sequence[str] = (),
        expires_in: Duration | None = None,
        caller: Grant | None = None,
    ) -> NewToken:
        """Make a token and return it with its secret, which nobody can find out again."""
        self._refuse_actor(by, caller)
        given = requests.CreateToken(
            name=name,
            role=role,  # type: ignore[arg-type]
            why=why,
            tenant=tenant,
            destinations=list(destinations),
            expires_in=span_text(expires_in, name="expires_in"),
        )
        return await self._sender.ask("create_token", NewToken, given)

    async def revoke_token(
        self, token_id: str, *, by: str = "", why: str, caller: Grant | None = None
    ) -> bool:
        """End a token for good; tells whether it was not revoked before."""
        self._refuse_actor(by, caller)
        given, path = requests.ActWithReason(why=why), {"name": token_id}
        return (await self._sender.ask("revoke_token", answers.Acted, given, path=path)).changed

    async def secrets(self) -> Sequence[Secret]:
        """Return all secrets, by name: which key each is encrypted with, and who set it when."""
        return (await self._sender.ask("secrets", answers.Secrets)).secrets

    async def set_secret(self, name: str, value: str, *, by: str = "", why: str) -> Secret:
        """Keep a secret, in place of the one of that name; workers go by it within seconds."""
        given = requests.SetSecret(name=name, value=value, why=why)
        return await self._do("set_secret", Secret, given, by)

    async def rotate_secrets(self, *, by: str = "", why: str) -> Rotated:
        """Encrypt all secrets by the server's current key."""
        return await self._do("rotate_secrets", Rotated, requests.ActWithReason(why=why), by)

    async def delete_secret(self, name: str, *, by: str = "", why: str) -> bool:
        """Forget a secret for good; what refers to it fails from then on, and says so."""
        return await self._act("delete_secret", requests.ActWithReason(why=why), by, name=name)

    async def encryption(self) -> Encryption | None:
        """Return by which key payloads are kept, and how far that is; `None` if they never were."""
        return (await self._sender.ask("encryption", answers.Encrypted)).encryption

    async def encrypt(self, *, by: str = "", why: str) -> Encryption:
        """Encrypt payloads by the first of the server's keys from now on."""
        return await self._do("encrypt", Encryption, requests.ActWithReason(why=why), by)

    async def decrypt(self, *, by: str = "", why: str) -> Encryption:
        """Keep payloads as they are from now on, and by and by decrypt all that are encrypted."""
        return await self._do("decrypt", Encryption, requests.ActWithReason(why=why), by)

    async def finish_encryption(self, *, progress: Progress | None = None) -> Encryption | None:
        """Rewrite all that is still to be, as workers do, and return how it stands."""
        done = (await self._sender.ask("finish_encryption", answers.Encrypted)).encryption
        _tell(progress, 0 if done is None else done.changed)
        return done

    async def journal(self, *, verify: bool = False) -> Journal:
        """Return the files of the journal of the server's own machine."""
        given = journaled.LookIntoJournal(verify=verify)
        return await self._sender.ask("journal", Journal, given)

    async def journal_records(
        self, file: str, *, after: int = 0, limit: int = 50, damaged: bool = False
    ) -> JournalPage:
        """Return records of one file of that journal, without payloads."""
        given = journaled.ShowRecords(after=after, limit=limit, damaged=damaged)
        return await self._sender.ask("journal_records", JournalPage, given, path={"name": file})

    async def drain_journal(
        self, *, by: str = "", why: str = "", any_store: bool = False
    ) -> Drained:
        """Give the journal of the server's own machine to the store, each record once."""
        given = journaled.DrainJournal(why=why, any_store=any_store)
        return await self._do("drain_journal", Drained, given, by)

    async def _count(
        self, operation: str, name: str, by: str, why: str, progress: Progress | None
    ) -> int:
        given = requests.ActWithReason(why=why)
        count = (await self._do(operation, answers.Counted, given, by, name=name)).count
        _tell(progress, count)
        return count


def _tell(progress: Progress | None, count: int) -> None:
    """Tell of what a server has done in one go."""
    if progress is not None:
        progress(count)
