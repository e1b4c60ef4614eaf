"""The gates in a turn of a worker: locked with the present, and remembered for the next turn."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from redrive.claiming.passage import Passage, is_plain
from redrive.stores.postgres.facts import KnownGate
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.gates import GateRepository

__all__ = ["known_gate", "lock_gates"]


async def lock_gates(
    session: PostgresSession, only: Collection[str], *, now: datetime | None
) -> GateRepository:
    """Read and lock the gates of these destinations; without an instant, the present too."""
    gates = await GateRepository.lock(session, only)
    session.now = now or gates.read_at or await session.value("SELECT clock_timestamp()")
    return gates


def known_gate(
    gates: GateRepository, destination: str, passage: Passage, *, has_tenants: bool
) -> KnownGate:
    """Return what to remember of a gate that was just asked, as it is left."""
    gate, documents = gates.gate(destination), gates.documents(destination)
    keeps_order, counts_leases = gates.keeps_order(destination), gates.counts_leases(destination)
    need_not_be_asked = (
        not (keeps_order or counts_leases or has_tenants or gates.override(destination))
        and not gate.rotation.tenant
        and gates.fairness(destination).rate_of("") is None
        and is_plain(gate, passage, gates.limits(destination), now=gates.session.now)
    )
    return KnownGate(
        number=gates.numbers[destination],
        description=gates.description(destination),
        gate=documents[1] if documents and need_not_be_asked else None,
        breaker=gate.breaker,
        reopened_at=gate.reopened_at,
        keeps_order=keeps_order,
        counts_leases=counts_leases,
        read_at=gates.session.now,
    )
