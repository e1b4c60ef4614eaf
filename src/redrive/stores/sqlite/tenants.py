"""What is kept of tenants in SQL: what they got, and the tokens of their own rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.claiming.ready import TenantState, accounts
from redrive.claiming.round_robin import Served
from redrive.model.fairness import Fairness
from redrive.stores.codec import json_text, micros

__all__ = ["STATE", "keep_account", "read_states", "tenant_states"]

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
    rows = accounts(fairness, served, states, now=now)
    if rows:
        connection.execute(
            _KEEP, {"destination": destination, "now": micros(now), "served": json_text(rows)}
        )
