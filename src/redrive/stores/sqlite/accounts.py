"""What is kept of tenants in SQL: what they got, and the tokens of their own rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.model.fairness import Fairness
from redrive.model.gate import Bucket
from redrive.policies.fairness import Served, affordable, spent
from redrive.stores.codec import from_micros, json_text, maybe_micros, micros

__all__ = ["NOBODY", "STATE", "TenantState", "keep_account", "read_states", "tenant_states"]

STATE = """json_array(
    turns.tenant, past.tokens, past.refilled_at,
    EXISTS (
        SELECT 1 FROM redrive_tenant_pauses p
        WHERE p.tenant = turns.tenant AND p.destination IN (0, +:destination)
    )
)"""
"""A `TenantState` as JSON, in the order of its fields."""

_NAMED = f"""
SELECT json_group_array({STATE})
FROM (SELECT value AS tenant FROM json_each(:tenants)) turns LEFT JOIN redrive_tenants past
    ON past.destination = +:destination AND past.tenant = turns.tenant
"""
_KEEP = """
INSERT INTO redrive_tenants
    (destination, tenant, served_at, round, processed, consecutive, tokens, refilled_at)
SELECT :destination, value ->> 0, :now, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
       value ->> 5
FROM json_each(:served) WHERE true
ON CONFLICT (destination, tenant) DO UPDATE SET
    served_at = excluded.served_at, round = excluded.round,
    processed = processed + excluded.processed, consecutive = excluded.consecutive,
    tokens = excluded.tokens, refilled_at = excluded.refilled_at
"""


class TenantState(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of one tenant."""

    tenant: str
    tokens: float | None
    refilled_at: int | None
    is_paused: int

    @property
    def bucket(self) -> Bucket:
        if self.tokens is None or self.refilled_at is None:
            return Bucket()
        return Bucket(self.tokens, from_micros(self.refilled_at))

    def affordable(self, fairness: Fairness, *, now: datetime) -> int:
        """Return how many attempts it may have now."""
        if self.is_paused:
            return 0
        return affordable(self.bucket, fairness.rate_of(self.tenant), now=now)


NOBODY = TenantState("", None, None, 0)
"""The events without a tenant, of which nothing is kept."""

_states = msgspec.json.Decoder(list[TenantState])


def read_states(document: str) -> list[TenantState]:
    """Read the states of some tenants."""
    return _states.decode(document)


def tenant_states(
    connection: apsw.Connection, destination: int, tenants: Iterable[str]
) -> dict[str, TenantState]:
    """Return what is kept of some tenants."""
    found = connection.execute(
        _NAMED, {"destination": destination, "tenants": json_text(list(tenants))}
    ).get
    return {one.tenant: one for one in read_states(found)}


def keep_account(
    connection: apsw.Connection,
    destination: int,
    fairness: Fairness,
    served: Sequence[Served],
    states: Mapping[str, TenantState],
    *,
    now: datetime,
) -> None:
    """Write down what the tenants got, and take it from their buckets."""
    rows = []
    for one in served:
        rate = fairness.rate_of(one.tenant)
        bucket = spent(states[one.tenant].bucket, rate, one.count, now=now)
        tokens = None if bucket.at is None else bucket.tokens
        rows.append(
            (one.tenant, one.round, one.count, one.in_a_row, tokens, maybe_micros(bucket.at))
        )
    if rows:
        connection.execute(
            _KEEP, {"destination": destination, "now": micros(now), "served": json_text(rows)}
        )
