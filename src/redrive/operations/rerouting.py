"""Rerouting: destinations that go, where their deliveries go, and the log for new ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from redrive.errors import UsageError
from redrive.model.audit import Actor
from redrive.model.checks import check_generation, check_instant
from redrive.model.delivery import DeliveryId
from redrive.model.outcome import Fault
from redrive.model.pattern import check_pattern
from redrive.observer import Operated
from redrive.operations.context import OperationContext, with_reason
from redrive.policies.capture import bounded_message
from redrive.policies.fingerprint import grouped
from redrive.store import Backfilled, Moved, Store

__all__ = ["BackfillPlan", "Rerouting"]

Progress = Callable[[int], None]
_BATCH = 500
_SLICE = 1_000


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of the events that a backfill would give to a destination.

    `overtaken` is how many it would not: a later event of their key was given to the ordered
    destination already, and they would come after it.
    """

    destination: str
    positions: tuple[int, ...] = ()
    overtaken: int = 0


class Rerouting(OperationContext):
    """Act on what goes where. Long work is done in batches, each with an entry in the audit log."""

    async def remove_destination(self, destination: str, *, by: str, why: str = "") -> bool:
        """Route nothing to a destination any more; what it has stays, held.

        Workers that declare it go on without it. Only a declaration of it that was never seen
        brings it back, or `restore_destination`.
        """
        actor = Actor(by, why)
        store = await self._to_change()
        is_new = await store.unregister(destination, actor=actor)
        return self._acted("remove", destination, actor, is_new=is_new)

    async def restore_destination(self, destination: str, *, by: str, why: str = "") -> bool:
        """Take a removal back: the destination is as it was, and gets what is published now.

        What was published while it was removed it gets by a backfill.
        """
        actor = Actor(by, why)
        store = await self._to_change()
        is_new = await store.reregister(destination, actor=actor)
        return self._acted("restore", destination, actor, is_new=is_new)

    async def move(
        self,
        source: str,
        target: str,
        *,
        by: str,
        why: str,
        progress: Progress | None = None,
    ) -> Moved:
        """Hand what waits for a destination, and its dead letters, to another one.

        Event id, tenant, key and place in publish order stay.
        """
        actor = with_reason(by, why, "move deliveries")
        if source == target:
            raise UsageError(f"{source} cannot be moved to itself; name another destination.")
        store = await self._to_change()
        await _refuse_projections(store, source, target)
        moved: list[DeliveryId] = []
        skipped = busy = 0
        async for ids in _waiting(store, source, with_dead_letters=True):
            batch = await store.move(ids, target=target, actor=actor)
            self._done("move", batch.moved, actor)
            moved += batch.moved
            skipped, busy = skipped + batch.skipped, busy + batch.busy
            if progress is not None:
                progress(len(ids))
        return Moved(moved=tuple(moved), skipped=skipped, busy=busy)

    async def fail_pending(
        self, destination: str, *, by: str, why: str, progress: Progress | None = None
    ) -> int:
        """Make dead letters of what waits for a destination; returns of how many."""
        actor = with_reason(by, why, "fail deliveries")

        def blame(name: str) -> Fault:
            fault = Fault(error_class="Cancelled", message=bounded_message(why), rule="operator")
            return grouped(fault, name)

        store, failed = await self._to_change(), 0
        async for ids in _waiting(store, destination):
            changed = await store.cancel(ids, blame=blame, actor=actor)
            failed += len(await self._failed(store, changed, actor))
            if progress is not None:
                progress(len(ids))
        return failed

    async def delete_pending(
        self, destination: str, *, by: str, why: str, progress: Progress | None = None
    ) -> int:
        """Remove what waits for a destination for good; returns how many that were."""
        actor = with_reason(by, why, "delete deliveries")
        store, deleted = await self._to_change(), 0
        async for ids in _waiting(store, destination):
            deleted += len(self._done("drop", await store.drop(ids, actor=actor), actor))
            if progress is not None:
                progress(len(ids))
        return deleted

    async def plan_backfill(
        self,
        destination: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> BackfillPlan:
        """Find the events of the log that a destination wants and was never given."""
        if event_type is not None:
            check_pattern(event_type)
        since = None if since is None else check_instant("since", since)
        until = None if until is None else check_instant("until", until)
        store = await self._store()
        missing: list[tuple[int, str | None]] = []
        latest: dict[str, int] = {}
        after = 0
        while True:
            found = await store.read_log(
                destination,
                after=after,
                limit=_SLICE,
                since=since,
                until=until,
                event_type=event_type,
            )
            if found.last is None:
                break
            after = found.last
            missing += found.missing
            if found.is_ordered:
                latest |= {key: position for position, key in found.given if key is not None}
        fitting = [
            position for position, key in missing if key is None or latest.get(key, 0) < position
        ]
        return BackfillPlan(
            destination=destination,
            positions=tuple(fitting),
            overtaken=len(missing) - len(fitting),
        )

    async def backfill(
        self,
        destination: str,
        *,
        by: str,
        why: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Backfilled:
        """Give a destination the events of the log that it wants and was never given.

        They are sent at the pace of replays, after whatever is published meanwhile. Doing it
        again adds nothing.
        """
        plan = await self.plan_backfill(
            destination, since=since, until=until, event_type=event_type
        )
        return await self.carry_out(plan, by=by, why=why, generation=generation, progress=progress)

    async def carry_out(
        self,
        plan: BackfillPlan,
        *,
        by: str,
        why: str = "",
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Backfilled:
        """Do what `plan_backfill` has found."""
        actor = Actor(by, why)
        check_generation(generation)
        store, added, overtaken = await self._to_change(), 0, plan.overtaken
        for begin in range(0, len(plan.positions), _BATCH):
            positions = plan.positions[begin : begin + _BATCH]
            batch = await store.backfill(
                plan.destination, positions, actor=actor, generation=generation
            )
            added, overtaken = added + batch.added, overtaken + batch.overtaken
            if progress is not None:
                progress(len(positions))
        if added:
            self._observer.notice(
                Operated(action="backfill", by=by, why=why, destination=plan.destination)
            )
        return Backfilled(added=added, overtaken=overtaken)


async def _refuse_projections(store: Store, *names: str) -> None:
    for one in (await store.routes()).destinations:
        if one.name in names and one.is_projection:
            raise UsageError(
                f"{one.name} is a projection, which reads the log by itself, in order; nothing can "
                "be moved to it or from it."
            )


async def _waiting(
    store: Store, destination: str, *, with_dead_letters: bool = False
) -> AsyncIterator[Sequence[DeliveryId]]:
    after = 0
    while True:
        ids = await store.waiting_for(
            destination, after=after, limit=_BATCH, with_dead_letters=with_dead_letters
        )
        if not ids:
            return
        yield ids
        after = ids[-1]
