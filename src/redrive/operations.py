"""Everything a person may do; the CLI, the API and the dashboard are thin over it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.audit import Actor, AuditEntry
from redrive.model.checks import check_instant, check_priority
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.event import Event
from redrive.model.gate import BreakerChange, GateFigures
from redrive.model.outcome import Fault
from redrive.observer import BreakerChanged, Observer, Operated
from redrive.policies.capture import bounded_message
from redrive.policies.diagnosis import NEGLECTED_AFTER, diagnose
from redrive.policies.fingerprint import grouped
from redrive.store import (
    Figures,
    Finding,
    Group,
    LaneFigures,
    LoggedEvent,
    Page,
    Query,
    Store,
)

__all__ = ["Operations", "Story"]

_MOST_PER_PAGE = 1_000
_LARGEST_ID = 2**63 - 1


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery with everything known of it: its event, its tries, its earlier cycles.

    `group` is what a dead letter shares with others that failed in the same way.
    """

    delivery: Delivery
    event: Event[msgspec.Raw]
    group: Group | None = None

    @property
    def payload(self) -> object:
        """The event's payload, decoded."""
        return msgspec.json.decode(self.event.payload)


class Operations:
    """Look at the system and act on it.

    Acts take `by`, who acts, and `why`, and leave an entry in the audit log. They return the ids
    of the deliveries that changed; others were in a status in which the act means nothing.
    """

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        observer: Observer,
        *,
        to_change: Callable[[], Awaitable[Store]] | None = None,
    ) -> None:
        self._store = store
        self._to_change = to_change or store
        self._observer = observer

    async def status(self) -> Figures:
        """Return the whole system in numbers."""
        return await (await self._store()).figures()

    async def schema_version(self) -> int:
        """Return the version of the store's schema, brought up to date by opening it."""
        return (await self._store()).schema_version

    async def examine(self) -> Sequence[Finding]:
        """Look for what is wrong with the store and the system, and say what to do about it."""
        store = await self._store()
        figures, gates = await store.figures(), await store.gates()
        old = Query(until=figures.now - NEGLECTED_AFTER)
        return (
            *await store.check(),
            *diagnose(
                figures,
                gates,
                overdue=len(await store.overdue()),
                is_neglected=bool((await store.find(old, limit=1)).deliveries),
            ),
        )

    async def deliveries(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Return the deliveries a query finds, latest change first; dead letters by default."""
        _check_limit(limit)
        return await (await self._store()).find(query or Query(), cursor=cursor, limit=limit)

    async def dead_letters(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Return the dead letters a query finds, the latest first."""
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        return await self.deliveries(chosen, cursor=cursor, limit=limit)

    async def groups(self, query: Query | None = None, *, limit: int = 50) -> Sequence[Group]:
        """Return the dead letters a query finds by what they failed of, the largest group first.

        `Query(group=...)` with the id of one finds its letters; `select` takes them all.
        """
        _check_limit(limit)
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        return await (await self._store()).groups(chosen, limit=limit)

    async def select(self, query: Query | None = None) -> list[DeliveryId]:
        """Return the ids of all dead letters a query finds now, to act on exactly those.

        What fails later is not among them, and what changes meanwhile is left alone by the act.
        """
        selected: list[DeliveryId] = []
        cursor = None
        while True:
            page = await self.dead_letters(query, cursor=cursor, limit=_MOST_PER_PAGE)
            selected += [one.id for one in page.deliveries]
            cursor = page.next_cursor
            if cursor is None:
                return selected

    async def show(self, delivery_id: int) -> Story:
        """Return one delivery with its whole story."""
        [known] = _ids([delivery_id]) or [DeliveryId(0)]
        delivery = await (await self._store()).find_delivery(known)
        if delivery is None:
            raise NotFoundError(
                f"There is no delivery {delivery_id}; it may have been deleted. "
                "`redrive dlq list` shows the dead letters there are."
            )
        event = await (await self._store()).find_event(delivery.event_id)
        if event is None:
            raise NotFoundError(
                f"The event {delivery.event_id} of delivery {delivery_id} is no longer in the log."
            )
        return Story(delivery=delivery, event=event, group=await self._group_of(delivery))

    async def events(self, *, after: int = 0, limit: int = 50) -> Sequence[LoggedEvent]:
        """Return published events in commit order; `after` is the position to go on from."""
        return await (await self._store()).read_events(after=after, limit=limit)

    async def replay(
        self, ids: Sequence[int], *, by: str, why: str = "", generation: str | None = None
    ) -> list[DeliveryId]:
        """Send dead letters again, in place: same event id, history kept, attempts from zero."""
        actor = Actor(by, why)
        changed = await (await self._to_change()).replay(
            _ids(ids), actor=actor, generation=generation
        )
        return self._done("replay", changed, actor)

    async def delete(self, ids: Sequence[int], *, by: str, why: str) -> list[DeliveryId]:
        """Remove dead letters for good; the reason is kept in the audit log."""
        actor = _with_reason(by, why, "delete")
        return self._done(
            "delete", await (await self._to_change()).delete(_ids(ids), actor=actor), actor
        )

    async def resolve(self, ids: Sequence[int], *, by: str, why: str) -> list[DeliveryId]:
        """Mark dead letters as handled elsewhere; they stay, out of the way, with the reason."""
        actor = _with_reason(by, why, "resolve")
        return self._done(
            "resolve", await (await self._to_change()).resolve(_ids(ids), actor=actor), actor
        )

    async def cancel(self, ids: Sequence[int], *, by: str, why: str = "") -> list[DeliveryId]:
        """Fail pending deliveries as cancelled."""
        actor = Actor(by, why)

        def blame(destination: str) -> Fault:
            message = bounded_message(why or "cancelled by an operator")
            fault = Fault(error_class="Cancelled", message=message, rule="operator")
            return grouped(fault, destination)

        changed = await (await self._to_change()).cancel(_ids(ids), blame=blame, actor=actor)
        return self._done("cancel", changed, actor)

    async def reschedule(
        self, ids: Sequence[int], *, due: datetime, by: str, why: str = ""
    ) -> list[DeliveryId]:
        """Move the due time of pending deliveries."""
        actor, moment = Actor(by, why), check_instant("due", due)
        changed = await (await self._to_change()).reschedule(_ids(ids), due=moment, actor=actor)
        return self._done("reschedule", changed, actor)

    async def prioritise(
        self, ids: Sequence[int], *, priority: int, by: str, why: str = ""
    ) -> list[DeliveryId]:
        """Change the priority of pending deliveries; the higher one goes first."""
        check_priority(priority)
        actor = Actor(by, why)
        changed = await (await self._to_change()).prioritise(
            _ids(ids), priority=priority, actor=actor
        )
        return self._done("prioritise", changed, actor)

    async def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Return past operations, the latest first."""
        return await (await self._store()).audit(before=before, limit=limit)

    async def lanes(self, *, limit: int = 50) -> Sequence[LaneFigures]:
        """Return the keys that wait behind a dead letter, the longest first."""
        return await (await self._store()).lanes(limit=limit)

    async def gates(self) -> Sequence[GateFigures]:
        """Return the gate of each destination: breaker, buckets, pause, and what holds it now."""
        return await (await self._store()).gates()

    async def pause(self, destination: str, *, by: str, why: str = "") -> bool:
        """Stop a destination; its deliveries wait, and no attempt is spent."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).pause(destination, actor=actor)
        return self._acted("pause", destination, actor, is_new=is_new)

    async def resume(self, destination: str, *, by: str, why: str = "") -> bool:
        """Let a paused destination go on, at the pace of retries."""
        actor = Actor(by, why)
        is_new = await (await self._to_change()).resume(destination, actor=actor)
        return self._acted("resume", destination, actor, is_new=is_new)

    async def open_breaker(
        self, destination: str, *, by: str, why: str = "", until: datetime | None = None
    ) -> BreakerChange:
        """Open a breaker by hand, until an instant or until it is reset."""
        if until is not None:
            until = check_instant("until", until)
        change = await (await self._to_change()).open_breaker(
            destination, until=until, actor=Actor(by, why)
        )
        self._observer.notice(BreakerChanged(change=change, by=by))
        return change

    async def reset_breaker(self, destination: str, *, by: str, why: str = "") -> BreakerChange:
        """Close a breaker by hand; what waited goes on at the pace of retries."""
        change = await (await self._to_change()).reset_breaker(destination, actor=Actor(by, why))
        self._observer.notice(BreakerChanged(change=change, by=by))
        return change

    def _acted(self, action: str, destination: str, actor: Actor, *, is_new: bool) -> bool:
        if is_new:
            self._observer.notice(
                Operated(action=action, by=actor.by, why=actor.why, destination=destination)
            )
        return is_new

    async def _group_of(self, delivery: Delivery) -> Group | None:
        if not delivery.is_dead_letter or delivery.fault is None or not delivery.fault.group:
            return None
        found = await (await self._store()).groups(Query(group=delivery.fault.group), limit=1)
        return found[0] if found else None

    def _done(self, action: str, changed: Sequence[DeliveryId], actor: Actor) -> list[DeliveryId]:
        if changed:
            self._observer.notice(
                Operated(action=action, by=actor.by, why=actor.why, deliveries=tuple(changed))
            )
        return list(changed)


def _check_limit(limit: object) -> None:
    if type(limit) is not int or not 1 <= limit <= _MOST_PER_PAGE:
        raise UsageError(f"limit is {limit!r}; it is a whole number from 1 to {_MOST_PER_PAGE}.")


def _ids(ids: Sequence[int]) -> list[DeliveryId]:
    if isinstance(ids, str) or not all(type(one) is int for one in ids):
        raise UsageError(f"The ids are {ids!r:.300}; pass the numbers of deliveries, such as [7].")
    return [DeliveryId(one) for one in ids if 0 < one <= _LARGEST_ID]


def _with_reason(by: str, why: str, action: str) -> Actor:
    if not why.strip():
        raise UsageError(f"A reason is needed to {action} dead letters; say why.")
    return Actor(by, why)
