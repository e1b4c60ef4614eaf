"""What events said goes, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Resolution, Status
from redrive.model.erasure import (
    ErasurePart,
    ErasureQuery,
    ErasureTerms,
    ErasureWaiting,
    erased_attempts,
    erased_cycles,
    erased_edits,
    erased_event,
    erased_fault,
    erased_request,
    is_to_erase,
)
from redrive.model.event import Event
from redrive.model.settlement import FailureReason
from redrive.store import Blame, Erasable, ErasableSlice, ErasedBatch
from redrive.stores.codec import body_digest
from redrive.stores.deduplicate import Kept
from redrive.stores.erasing import RESOLVED_AS_ERASED, Traces, audited, untold
from redrive.stores.memory.request_logs import MemoryRequestLogs
from redrive.stores.memory.row import Row

__all__ = ["MemoryErasing"]


class MemoryErasing(MemoryRequestLogs):
    """`Erasing` over the tables."""

    async def find_erasable(
        self,
        query: ErasureQuery,
        *,
        terms: ErasureTerms,
        after: int = 0,
        limit: int = 1_000,
        scope: Scope = WHOLE_STORE,
    ) -> ErasableSlice:
        with self._lock:
            stretch = [one for one in self._log.items() if one[0] > after][:limit]
            meant = [
                (place, kept.event)
                for place, kept in stretch
                if query.fits(kept.event) and _is_within(kept.event, scope)
            ]
            whole = [one for one in meant if is_to_erase(one[1], terms)]
            return ErasableSlice(
                events=tuple(self._standing_of(place, event) for place, event in whole),
                last=stretch[-1][0] if stretch else None,
                looked_at=len(stretch),
                erased=len(meant) - len(whole),
            )

    async def erase(
        self,
        positions: Sequence[int],
        *,
        terms: ErasureTerms,
        by: str,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> ErasedBatch:
        with self._lock:
            meant = [
                (place, kept)
                for place in sorted(set(positions))
                if (kept := self._log.get(place)) is not None
                and is_to_erase(kept.event, terms)
                and _is_within(kept.event, scope)
            ]
            waiting = {place for place, _ in meant if self._is_waited_for(place, terms)}
            chosen = [one for one in meant if one[0] not in waiting]
            left = tuple(kept.event.id for place, kept in meant if place in waiting)
            rows = [row for _, kept in chosen for row in self._rows_of(kept)]
            failed = [row for row in rows if row.status is Status.PENDING]
            now = self._clock.now()
            for name in {row.destination for row in rows}.intersection(self._gates):
                self._gates[name] = untold(self._gates[name])
            for row in rows:
                self._erase_row(row, blame=blame, actor=actor)
            for place, kept in chosen:
                self._erase_event(place, kept, terms)
            ids = tuple(sorted(row.id for row in rows))
            events = tuple(kept.event.id for _, kept in chosen)
            if events:
                detail = audited(by, events)
                self._note("erase", actor, now=now, ids=ids, count=len(events), detail=detail)
            return ErasedBatch(
                events=events,
                deliveries=ids,
                failed=tuple(row.id for row in failed),
                left=left,
            )

    async def erased_of(self, ids: Sequence[DeliveryId]) -> Sequence[DeliveryId]:
        with self._lock:
            return [row.id for row in self._found(ids) if row.event.erased is not None]

    async def erase_traces(
        self, query: ErasureQuery, *, terms: ErasureTerms, scope: Scope = WHOLE_STORE
    ) -> None:
        with self._lock:
            if scope.destinations or scope.tenant not in (None, query.tenant):
                return
            if query.tenant is not None:
                self._erase_requests(terms, tenant=query.tenant)
                if terms.has(ErasurePart.TENANT):
                    for one in [one for one in self._tenants if one[1] == query.tenant]:
                        del self._tenants[one]
                    for stop in [one for one in self._tenant_pauses if one[0] == query.tenant]:
                        del self._tenant_pauses[stop]
            traces = Traces.of(query, terms)
            self._erase_replays(traces)
            for name, gate in self._gates.items():
                self._gates[name] = traces.taken_from_gate(gate)
            if query.key is not None and terms.has(ErasurePart.KEY):
                self._forget_key(query.key)

    def _rows_of(self, kept: Kept) -> list[Row]:
        return [row for row in self._rows.values() if row.event.id == kept.event.id]

    def _standing_of(self, place: int, event: Event[msgspec.Raw]) -> Erasable:
        rows = self._rows_of(self._log[place])
        return Erasable(
            position=place,
            event_id=event.id,
            deliveries=len(rows),
            pending=sum(row.status is Status.PENDING for row in rows),
            in_flight=sum(row.status is Status.IN_FLIGHT for row in rows),
            dead_letters=sum(row.is_dead_letter for row in rows),
            is_unread=self._is_unread(place),
        )

    def _is_unread(self, place: int) -> bool:
        return any(one.position.number < place for _, one in self._checkpoints.values())

    def _is_waited_for(self, place: int, terms: ErasureTerms) -> bool:
        """Tell whether somebody has still to get an event, or has a delivery of it in hand."""
        states = {row.status for row in self._rows_of(self._log[place])}
        if Status.IN_FLIGHT in states:
            return True
        return terms.waiting is ErasureWaiting.DELIVER and (
            Status.PENDING in states or self._is_unread(place)
        )

    def _erase_row(self, row: Row, *, blame: Blame, actor: Actor) -> None:
        now = self._clock.now()
        row.fault = erased_fault(row.fault)
        row.log = erased_attempts(row.log)
        row.cycles = erased_cycles(row.cycles)
        row.edits = erased_edits(row.edits)
        row.payload = row.exchange = row.addressees = None
        if row.status is Status.PENDING:
            row.fail(FailureReason.CANCELLED, blame(row.destination), now=now)
        if row.is_dead_letter:
            row.resolution = Resolution(by=actor.by, at=now, why=RESOLVED_AS_ERASED)

    def _erase_event(self, place: int, kept: Kept, terms: ErasureTerms) -> None:
        event, now = kept.event, self._clock.now()
        erased = erased_event(event, terms, digest=body_digest(event), now=now)
        version = None if terms.has(ErasurePart.KEY) else kept.version
        after_all = Kept(erased, kept.destinations, version)
        self._log[place] = after_all
        forgets_publisher = terms.has(ErasurePart.IDEMPOTENCY_KEY)
        for identity in [one for one, known in self._known.items() if known is kept]:
            if forgets_publisher and identity != (event.id,):
                del self._known[identity]
            else:
                self._known[identity] = after_all
        for unique, (known, until) in list(self._uniques.items()):
            if known is kept and forgets_publisher:
                del self._uniques[unique]
            elif known is kept:
                self._uniques[unique] = (after_all, until)
        for row in self._rows_of(kept):
            row.event = erased
        for one in [one for one in self._projection_edits if one[1] == place]:
            del self._projection_edits[one]
        self._erase_requests(terms, event=event.id)
        self._erase_replays(Traces(payloads=[bytes(event.payload).decode().casefold()]))
        if terms.has(ErasurePart.KEY) and event.key is not None:
            self._forget_key(event.key)

    def _forget_key(self, key: str) -> None:
        """Forget a key that has no events any more."""
        if all(kept.event.key != key for kept in self._log.values()):
            self._versions.pop(key, None)

    def _erase_replays(self, traces: Traces) -> None:
        for record in self._replays.values():
            record.replay = traces.taken_from(record.replay)

    def _erase_requests(
        self, terms: ErasureTerms, *, event: str = "", tenant: str | None = None
    ) -> None:
        for name, logged in self._requests.items():
            self._requests[name] = [
                erased_request(one, terms)
                if one.event_id == event or (tenant is not None and one.tenant == tenant)
                else one
                for one in logged
            ]


def _is_within(event: Event[msgspec.Raw], scope: Scope) -> bool:
    """Tell whether an event is somebody's to erase: it goes to any destination."""
    return not scope.destinations and scope.tenant in (None, event.tenant)
