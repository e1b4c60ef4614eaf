"""Requests at the gates, which are made past the deliveries."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.claiming.sharing import Sharing
from redrive.errors import not_found
from redrive.model.gate import Call
from redrive.model.limits import SharedRate
from redrive.store import Entrance
from redrive.stores.calling import closed_to, let_in, out_of_shared
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.session import Session
from redrive.stores.sql.sharing import lock_shared, write_shared
from redrive.stores.sql.store import SqlStore

__all__ = ["CallingRole"]

_OPEN_TO = """
SELECT t.removed_at IS NOT NULL, EXISTS (
    SELECT 1 FROM redrive.tenant_pauses p
    WHERE p.tenant = $2 AND p.destination IN (0, t.id)
) FROM redrive.destinations t WHERE t.name = $1
"""
_THERE = 'SELECT name FROM redrive.destinations WHERE removed_at IS NULL ORDER BY name COLLATE "C"'


class CallingRole(SqlStore):
    """`Calls`."""

    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        """Look without a lock, and hold the gate only where it changes."""

        async def look(session: Session) -> tuple[Entrance, bool]:
            gates = await GateRepository.read(session, [destination])
            entrance = await _enter(gates, destination, call=call, lease=lease, tenant=tenant)
            is_shared = gates.limits(destination).shared_rate is not None
            changes = is_shared or bool(gates.changed())
            return entrance, entrance.hold is None and changes

        async def begin(session: Session) -> Entrance:
            gates = await GateRepository.lock(session, [destination])
            entrance = await _enter(gates, destination, call=call, lease=lease, tenant=tenant)
            rate = gates.limits(destination).shared_rate
            if entrance.hold is not None:
                return entrance
            if rate is not None and not await _share(session, destination, rate):
                return out_of_shared(entrance.destination)
            return msgspec.structs.replace(entrance, changes=await gates.write())

        entrance, changes = await self._read(lambda session, _: look(session))
        return await self._write(lambda session, _: begin(session)) if changes else entrance


async def _enter(
    gates: GateRepository, name: str, *, call: str, lease: timedelta, tenant: str | None
) -> Entrance:
    """Return what a gate says to a request, and put the gate as it is after that."""
    session = gates.session
    [(is_gone, is_paused)] = await session.fetch(_OPEN_TO, name, tenant or "") or [(True, False)]
    if is_gone or name not in gates.numbers:
        known = [one for (one,) in await session.fetch(_THERE)]
        raise not_found(name, known, what="destination")
    declared = gates.declared(name)
    closed = closed_to(declared, tenant, is_paused=bool(is_paused))
    if closed is not None:
        return closed
    passage = await gates.passage(name)
    gate = gates.gate(name)
    begun = Call(id=call, until=session.now + lease, generation=gate.breaker.generation)
    after, entrance = let_in(declared, gate, passage, gates.limits(name), begun, now=session.now)
    gates.put(name, after)
    return entrance


async def _share(session: Session, name: str, rate: SharedRate) -> bool:
    """Take a token of a rate that several destinations share; tell whether there was one."""
    sharing = Sharing({name: rate}, await lock_shared(session, [rate.name]), now=session.now)
    if not sharing.bound(name, 1):
        return False
    sharing.charge(name, 1)
    sharing.step_back()
    await write_shared(session, sharing.changed())
    return True
