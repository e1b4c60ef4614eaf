"""The PostgreSQL store: all roles of the contract in one schema."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from redrive.clock import Clock
from redrive.observer import Observer, Observers
from redrive.sealing.vault import Vault
from redrive.store import Capabilities, Finding
from redrive.stores.postgres.checkup import check_up
from redrive.stores.postgres.claiming import ClaimsRole
from redrive.stores.postgres.connection import read_address, translated
from redrive.stores.postgres.late_events import LateEventsRole
from redrive.stores.postgres.projections import ProjectingRole
from redrive.stores.postgres.publishing import PublishingRole
from redrive.stores.postgres.reporting import ReportsRole
from redrive.stores.postgres.schema import has_schema
from redrive.stores.postgres.settling import SettlementsRole
from redrive.stores.sealed import Codec
from redrive.stores.sql.roles import SharedRoles

__all__ = ["PostgresStore", "is_there"]

_SECONDS = 10.0


class PostgresStore(
    PublishingRole,
    LateEventsRole,
    ClaimsRole,
    SettlementsRole,
    ReportsRole,
    ProjectingRole,
    SharedRoles,
):
    """A store in the database at `url`; `history` bounds what is kept of past tries.

    The observer hears when new work is no longer heard of at once, and when it is again.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        history: int = 20,
        observer: Observer | None = None,
        vault: Vault | None = None,
    ) -> None:
        super().__init__(
            read_address(url),
            clock=clock,
            history=history,
            observer=observer or Observers(),
            codec=Codec(vault),
        )
        self.capabilities = Capabilities(
            survives_restart=True,
            is_shared_by_processes=True,
            joins_transactions=True,
            effects_at_once=self.address.pool // 2,
        )

    async def check(self) -> Sequence[Finding]:
        return await self._read(
            lambda link, now: check_up(
                link, self.address, ahead=self._clock.now() - now, is_proxied=self._is_proxied
            )
        )


async def is_there(url: str) -> bool:
    """Tell whether somebody has created the store at `url`; opening it would do so."""
    address = read_address(url)
    with translated(address):
        connection = await asyncpg.connect(
            address.dsn, timeout=_SECONDS, command_timeout=_SECONDS, statement_cache_size=0
        )
        try:
            await connection.execute("BEGIN")  # a proxy keeps one connection for its length
            return await has_schema(connection, address)
        finally:
            connection.terminate()
