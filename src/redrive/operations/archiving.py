"""Archiving: pruning by hand, and dead letters to files and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from redrive.archive import check_letter, export_overflow
from redrive.errors import UsageError
from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.letter import Letter
from redrive.observer import HistoryPruned, LettersExported
from redrive.operations.context import OperationContext, projections_of, refuse_out_of_order
from redrive.policies.attention import expiring, overflow
from redrive.store import LetterPage, Pruned, Query, Restored

__all__ = ["Archiving", "PrunePlan"]

_BATCH = 500


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a prune removes: what was kept long enough, and dead letters over a limit.

    Of dead letters that are too old, only the destination is known before they are exported.
    """

    pruned: Pruned = Pruned()
    exported: int = 0
    expiring: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.pruned.most or self.exported or self.expiring)


class Archiving(OperationContext):
    """Prune by hand; take dead letters out, and put them back."""

    async def prunable(self) -> PrunePlan:
        """Count what a prune would remove now, by this app's settings."""
        store = await self._store()
        quotas = await store.letter_quotas()
        return PrunePlan(
            pruned=await store.prunable(self._retention),
            exported=sum(overflow(one) for one in quotas),
            expiring=tuple(one.destination for one in quotas if expiring(one)),
        )

    async def prune(
        self,
        *,
        by: str = "operator",
        why: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> PrunePlan:
        """Remove what was kept long enough, as workers do by themselves, and tell how much.

        Dead letters over their destination's limit are exported first; if they cannot be, it ends
        with a `UsageError` and they stay. What it removed is one entry of the audit log.
        """
        actor, store = Actor(by, why), await self._to_change()
        total = Pruned()
        while True:
            pruned = await store.prune(self._retention, limit=_BATCH)
            if not pruned.most:
                break
            self._observer.notice(HistoryPruned(pruned=pruned))
            total += pruned
            if progress is not None:
                progress(pruned.delivered + pruned.events)
        gone = {name: count for name, count in msgspec.structs.asdict(total).items() if count}
        if gone:
            detail = ", ".join(f"{name} {count}" for name, count in gone.items())
            await store.note("prune", (), actor=actor, count=sum(gone.values()), detail=detail)
        return PrunePlan(pruned=total, exported=await self._export_overflow())

    async def _export_overflow(self) -> int:
        store = await self._to_change()
        exported = 0
        while True:
            gone = 0
            for quota in await store.letter_quotas():
                batch = await export_overflow(
                    store, quota, archive=self._archive, submit=self._executor.submit
                )
                if batch.error:
                    raise UsageError(
                        f"The dead letters of {quota.destination} cannot be exported: "
                        f"{batch.error}."
                    )
                if batch.count:
                    self._observer.notice(
                        LettersExported(
                            destination=quota.destination, count=batch.count, file=batch.file
                        )
                    )
                gone += batch.count
            if not gone:
                return exported
            exported += gone

    async def export_page(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = _BATCH
    ) -> LetterPage:
        """Return some of the dead letters a query finds, whole, in publish order."""
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        return await (await self._store()).letters(chosen, cursor=cursor, limit=limit)

    async def export(self, query: Query | None = None) -> AsyncIterator[Letter]:
        """Go through all dead letters a query finds, whole, in publish order.

        >>> async def to_file(app):
        ...     async for letter in app.operations.export():
        ...         print(letter.event.id, letter.delivery.reason)
        """
        cursor = None
        while True:
            page = await self.export_page(query, cursor=cursor)
            for letter in page.letters:
                yield letter
            cursor = page.next_cursor
            if cursor is None:
                return

    async def restore(
        self, letters: Sequence[Letter], *, by: str, why: str = "", out_of_order: bool = False
    ) -> Restored:
        """Put exported dead letters back; those that are there already change nothing.

        They go in the order of their ids where they came from, so that those of a key keep theirs.
        A projection may have applied later ones: it gets them back only with `out_of_order`.
        """
        for one in letters:
            check_letter(one, payload_limit=self._payload_limit)
        actor = Actor(by, why)
        in_order = sorted(letters, key=lambda one: one.delivery.id)
        store = await self._to_change()
        if not out_of_order:
            projections = await projections_of(store)
            for one in in_order:
                refuse_out_of_order(projections, one.delivery.destination, act="import")
        restored = await store.restore(in_order, actor=actor)
        self._done("import", restored.deliveries, actor)
        return restored
