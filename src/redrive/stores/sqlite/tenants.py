"""What is kept of tenants in SQL: what they got, and the tokens of their own rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.claiming.ready import Account, TenantState
from redrive.stores.codec import json_text, micros

__all__ = ["STATE", "keep_accounts", "read_states", "tenant_states"]

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
SELECT value ->> 0, value ->> 1, :now, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       value ->> 6
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


def keep_accounts(
    connection: apsw.Connection, accounts: Sequence[tuple[int, Account]], *, now: datetime
) -> None:
    """Write down what tenants got, each at a destination, and take it from their buckets."""
    served = json_text([(number, *account) for number, account in accounts])
    connection.execute(_KEEP, {"now": micros(now), "served": served})
