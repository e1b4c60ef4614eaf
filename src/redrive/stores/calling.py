"""What a gate says to a request: the same in every store."""

from __future__ import annotations

from datetime import datetime

from redrive.claiming.calling import entered, kept_out
from redrive.claiming.passage import Passage
from redrive.model.destination import Destination
from redrive.model.gate import Call, Gate, HalfOpen, Hold
from redrive.model.limits import Limits
from redrive.store import Entrance

__all__ = ["closed_to", "let_in", "out_of_shared"]


def closed_to(declared: Destination, tenant: str | None, *, is_paused: bool) -> Entrance | None:
    """Return what says that a destination takes nothing of a tenant, whatever its gate says."""
    if declared.is_disabled:
        why = "the service is disabled"
    elif is_paused:
        why = f"the tenant {tenant!r} is paused"
    else:
        return None
    return Entrance(destination=declared, hold=Hold.PAUSED, why=why)


def let_in(
    declared: Destination,
    gate: Gate,
    passage: Passage,
    limits: Limits,
    call: Call,
    *,
    now: datetime,
) -> tuple[Gate, Entrance]:
    """Return the gate after a request has passed it, if it has, and what the gate says to it.

    The gate and its passage are as of now.
    """
    hold = kept_out(passage)
    if hold is not None:
        return gate, Entrance(
            destination=declared,
            hold=hold,
            until=passage.again_at,
            why=gate.pause.why if gate.pause else "",
            failure=gate.last_failure,
        )
    after, retries = entered(gate, passage, limits, call, now=now)
    return after, Entrance(
        destination=declared,
        generation=gate.breaker.generation,
        is_probe=isinstance(gate.breaker, HalfOpen),
        is_counted=call in after.calls,
        retries=retries,
        failure=gate.last_failure,
    )


def out_of_shared(declared: Destination) -> Entrance:
    """Return what says that the rate which several destinations share is used up."""
    return Entrance(destination=declared, hold=Hold.SHARED_RATE)
