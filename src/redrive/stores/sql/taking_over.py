"""Events that were tried before they were stored, and what may be tried so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from redrive.claiming.passage import admitted, is_counted
from redrive.claiming.ready import KINDS
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId
from redrive.model.recipient import destination_of, pin_of
from redrive.store import Admission, Admissions, Rest, Tried
from redrive.stores.sql.erasing import erased_among
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.giving import names_of, note_given
from redrive.stores.sql.lanes import pass_by
from redrive.stores.sql.letters import add_destinations, insert_deliveries
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore

__all__ = ["TakingOverRole"]

_THERE = """
SELECT name FROM redrive.destinations WHERE removed_at IS NULL AND name = ANY ($1::text[])
"""
_PAUSED = """
SELECT p.tenant, t.name FROM redrive.tenant_pauses p
LEFT JOIN redrive.destinations t ON t.id = p.destination
"""
_VERSION = "SELECT value FROM redrive.counters WHERE name = 'routes_version'"
_HOLD = """
SELECT id::text, position, destinations FROM redrive.events WHERE id = ANY ($1::uuid[])
ORDER BY position FOR NO KEY UPDATE
"""


class TakingOverRole(SqlStore):
    """`TakesOver`."""

    async def admit(self, wanted: Mapping[str, int]) -> Admissions:
        """Look without a lock, and then hold only those gates of which tokens are taken."""
        seen, charged = await self._read(lambda session, _: _look(session, wanted))
        if not charged:
            return seen
        taken = await self._write(lambda session, _: _take(session, charged))
        return Admissions(
            now=seen.now,
            routes_version=seen.routes_version,
            of={**seen.of, **taken},
            paused=seen.paused,
        )

    async def take_over(self, batch: Sequence[Tried]) -> int:
        return await self._write(lambda session, _: take_over(session, batch), notifies=True)


async def _look(session: Session, wanted: Mapping[str, int]) -> tuple[Admissions, dict[str, int]]:
    there = [name for (name,) in await session.fetch(_THERE, sorted(wanted))]
    gates = await GateRepository.read(session, there)
    found, charged = await _admit(gates, {name: wanted[name] for name in there})
    admissions = Admissions(
        now=session.now,
        routes_version=await session.value(_VERSION),
        of=found,
        paused=tuple((tenant, name) for tenant, name in await session.fetch(_PAUSED)),
    )
    return admissions, charged


async def _take(session: Session, wanted: Mapping[str, int]) -> dict[str, Admission]:
    gates = await GateRepository.lock(session, list(wanted))
    found, _ = await _admit(gates, {name: wanted[name] for name in gates.numbers})
    await gates.write()
    return found


async def _admit(
    gates: GateRepository, wanted: Mapping[str, int]
) -> tuple[dict[str, Admission], dict[str, int]]:
    """Find what each gate admits; also returns where that takes tokens, and how many."""
    found: dict[str, Admission] = {}
    charged: dict[str, int] = {}
    for name, number in wanted.items():
        before = gates.gate(name)
        passage = await gates.passage(name)
        gate, passes = admitted(
            gates.gate(name), passage, gates.limits(name), number, now=gates.session.now
        )
        if gate != before:
            charged[name] = number
        gates.put(name, gate if passes else before)
        found[name] = Admission(
            passes=passes,
            generation=gate.breaker.generation,
            is_counted=is_counted(gates.limits(name)),
        )
    return found, {name: number for name, number in charged.items() if found[name].passes}


async def take_over(session: Session, batch: Sequence[Tried]) -> int:
    """Store what is left of events that were tried, but for what was given before."""
    await session.look_at_encryption()
    merged = _merged(batch)
    destinations = await add_destinations(
        session, sorted({destination_of(rest.destination) for one in merged for rest in one.rest})
    )
    events = {one.event.id: one.event for one in merged if one.rest}
    positions = await session.add_events(events) if events else {}
    # Now that they are locked: somebody else may have handed the same over before.
    known = await _hold(session, [one.event.id for one in merged])
    erased = await erased_among(session, positions)
    rows: list[dict[str, object]] = []
    exchanges = []
    given: dict[int, set[str]] = {}
    for one in merged:
        if one.event.id not in known or one.event.id in erased:
            continue
        position, names = known[one.event.id]
        missing = [rest for rest in one.rest if rest.destination not in names]
        more = {*one.arrived, *(rest.destination for rest in missing)} - names
        if more:
            given[position] = names | more
        for left in missing:
            number, described = destinations[destination_of(left.destination)]
            rows.append(_row(one.event, left, (position, number), described, now=session.now))
            exchanges.append(left.exchange)
    if given:
        await note_given(session, given)
    if not rows:
        return 0
    ids = await insert_deliveries(session, rows, exchanges)
    await pass_by(session, sorted(ids))
    return len(ids)


def _merged(batch: Sequence[Tried]) -> list[Tried]:
    """Put together what is told of one event; of one destination the first word counts."""
    by_id: dict[EventId, Tried] = {}
    for one in batch:
        before = by_id.get(one.event.id)
        arrived = (*before.arrived, *one.arrived) if before else one.arrived
        rests = {
            rest.destination: rest
            for rest in reversed((*before.rest, *one.rest) if before else one.rest)
        }
        by_id[one.event.id] = Tried(
            event=before.event if before else one.event,
            arrived=tuple(dict.fromkeys(arrived)),
            rest=tuple(reversed(rests.values())),
        )
    return list(by_id.values())


async def _hold(session: Session, ids: Sequence[EventId]) -> dict[str, tuple[int, set[str]]]:
    """Lock events that are known; return their positions, and whom they were given to."""
    found = await session.fetch(_HOLD, [session.event_id(one) for one in ids])
    return {event: (position, set(names_of(names))) for event, position, names in found}


def _row(
    event: Event[msgspec.Raw],
    rest: Rest,
    place: tuple[int, int],
    described: Destination,
    *,
    now: datetime,
) -> dict[str, object]:
    (position, number), has_failed = place, rest.fault is not None
    due = rest.due or event.due or now
    is_dead = rest.reason is not None
    return {
        "position": position,
        "destination": number,
        "status": 3 if is_dead else 0,
        "is_ready": is_dead or due <= now,
        "kind": KINDS.index(rest.kind),
        "priority": event.priority,
        "generation": event.generation,
        "tenant": event.tenant,
        "lane": event.key if described.order is not Order.NONE else None,
        "due": due,
        "deadline": described.deadline_of(event, now=now),
        "enqueued_at": now,
        "attempts": rest.attempts,
        "snoozes": rest.snoozes,
        "crashes": 0,
        "settled_at": now if is_dead else None,
        "first_failed_at": now if has_failed else None,
        "last_failed_at": now if has_failed else None,
        "rule": pin_of(rest.destination) or None,
        "reason": rest.reason,
        "group_id": rest.fault.group if rest.fault and is_dead else None,
        "fault": rest.fault,
        "log": [rest.attempt] if rest.attempt else None,
        "cycles": None,
        "resolution": None,
        "resolved_at": None,
        "payload": None,
        "edits": None,
        "auto_replays": 0,
    }
