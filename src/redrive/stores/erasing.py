"""What all stores say of an erasure in the same words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from redrive.model.erasure import ERASED, ErasurePart, ErasureQuery, ErasureTerms
from redrive.model.event import EventId
from redrive.model.gate import Gate, Rotation
from redrive.model.replay import ReplayState
from redrive.store import Replay

__all__ = ["RESOLVED_AS_ERASED", "Traces", "audited", "untold"]

RESOLVED_AS_ERASED = "its payload was erased"
"""Why a dead letter of an erased event is resolved."""


def audited(by: str, events: Sequence[EventId]) -> str:
    """Return the detail of an audit entry: what was erased, without what it was found by."""
    return f"by {by}: {' '.join(events)}"


def untold(gate: Gate) -> Gate:
    """Return a gate that knows when its destination failed last, and not what was said."""
    if gate.last_failure is None:
        return gate
    return replace(gate, last_failure=replace(gate.last_failure, error=ERASED))


class Traces(NamedTuple):
    """What people looked for, and what is not to be found any more: keys, tenants, and texts."""

    keys: Collection[str] = ()
    tenants: Collection[str] = ()
    payloads: Collection[str] = ()

    @classmethod
    def of(cls, query: ErasureQuery, terms: ErasureTerms) -> Traces:
        """Return what goes with the last event of a key or a tenant."""
        has_key = query.key is not None and terms.has(ErasurePart.KEY)
        has_tenant = query.tenant is not None and terms.has(ErasurePart.TENANT)
        return cls(
            keys=(query.key or "",) if has_key else (),
            tenants=(query.tenant or "",) if has_tenant else (),
        )

    def taken_from_gate(self, gate: Gate) -> Gate:
        """Return a gate whose turns begin anew, if one of these tenants stands in them."""
        turns = gate.rotation
        is_named = turns.tenant in self.tenants or turns.behind in self.tenants
        return replace(gate, rotation=Rotation(round=turns.round)) if is_named else gate

    def taken_from(self, replay: Replay) -> Replay:
        """Return a replay that is over, without what it was started for, if that was one of these.

        One that goes on needs it, and keeps it until it is over.
        """
        sought = replay.query
        if sought is None or replay.state in (ReplayState.RUNNING, ReplayState.PAUSED):
            return replay
        text = None if sought.text is None else sought.text.casefold()
        is_said = text is not None and any(text in one for one in self.payloads)
        return replace(
            replay,
            query=replace(
                sought,
                key=ERASED if sought.key in self.keys else sought.key,
                tenant=ERASED if sought.tenant in self.tenants else sought.tenant,
                text=ERASED if is_said else sought.text,
            ),
        )
