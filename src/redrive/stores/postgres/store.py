"""The PostgreSQL store: all roles of the contract in one schema."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.clock import Clock
from redrive.store import Capabilities, Finding
from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.roles.gates import GatesRole
from redrive.stores.postgres.roles.log import LogRole
from redrive.stores.postgres.roles.people import PeopleRole
from redrive.stores.postgres.roles.queue import QueueRole
from redrive.stores.postgres.roles.replays import ReplaysRole
from redrive.stores.postgres.roles.tenants import TenantsRole

__all__ = ["PostgresStore"]


class PostgresStore(LogRole, QueueRole, GatesRole, PeopleRole, ReplaysRole, TenantsRole):
    """A store in the database at `url`; `history` bounds what is kept of past tries."""

    capabilities = Capabilities(
        survives_restart=True, is_shared_by_processes=True, joins_transactions=True
    )

    def __init__(self, url: str, *, clock: Clock, history: int = 20) -> None:
        super().__init__(read_address(url), clock=clock, history=history)

    async def check(self) -> Sequence[Finding]:
        return ()
