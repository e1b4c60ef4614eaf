"""Overrides: limits that a person has set above the declared ones, for a while."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.audit import Actor
from redrive.model.gate import Override
from redrive.model.limits import Limits
from redrive.stores.codec import json_text
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.registering import hold_routes
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, writing

__all__ = ["OverridingRole"]

_SET = """
INSERT INTO redrive.gates (destination, document, override, override_until)
VALUES ($1, '{}', $2, $3)
ON CONFLICT (destination) DO UPDATE
SET override = excluded.override, override_until = excluded.override_until
"""


class OverridingRole(SqlStore):
    """The overrides of `Gates`."""

    @writing(notifies=True)
    async def override(
        self,
        session: Session,
        destination: str,
        limits: Limits,
        *,
        lasts: timedelta,
        actor: Actor,
    ) -> Override:
        gates = await _hold(session, destination)
        override = Override(
            limits=limits,
            until=session.now + lasts,
            by=actor.by,
            why=actor.why,
            at=session.now,
        )
        await _set(session, gates.numbers[destination], override)
        await record(session, "override", (), actor, count=1, detail=override.told_of(destination))
        return override

    @writing(notifies=True)
    async def end_override(self, session: Session, destination: str, *, actor: Actor) -> bool:
        gates = await _hold(session, destination)
        if gates.override(destination) is None:
            return False
        await _set(session, gates.numbers[destination], None)
        await record(session, "end_override", (), actor, count=1, detail=destination)
        return True


async def _hold(session: Session, destination: str) -> GateRepository:
    """Keep others from changing destinations, and hold the gate of this one."""
    await hold_routes(session)
    return await GateRepository.lock_one(session, destination)


async def _set(session: Session, number: int, override: Override | None) -> None:
    """Set an override or none, and have all workers look again."""
    document = None if override is None else json_text(override)
    await session.fetch(_SET, number, document, override and override.until)
    await session.change_routes([])
