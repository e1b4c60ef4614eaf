"""The SQLite store: all roles of the contract on one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redrive.clock import Clock
from redrive.sealing.vault import Vault
from redrive.store import Capabilities, Finding
from redrive.stores.sealed import Codec
from redrive.stores.sql.roles import SharedRoles
from redrive.stores.sqlite.checkup import check_up
from redrive.stores.sqlite.history import HistoryRole
from redrive.stores.sqlite.projections import ProjectingRole
from redrive.stores.sqlite.publishing import PublishingRole
from redrive.stores.sqlite.queue import QueueRole
from redrive.stores.sqlite.threads import Threads

__all__ = ["SqliteStore"]


class SqliteStore(
    PublishingRole,
    QueueRole,
    ProjectingRole,
    HistoryRole,
    SharedRoles,
):
    """A store in the file at `path`; `history` bounds what is kept of past tries per delivery."""

    capabilities = Capabilities(
        survives_restart=True,
        is_shared_by_processes=True,
        joins_transactions=True,
        effects_at_once=1,
        effects_block_writers=True,
    )

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        history: int = 20,
        threads: Threads | None = None,
        vault: Vault | None = None,
    ) -> None:
        super().__init__(
            path,
            clock=clock,
            history=history,
            threads=threads or Threads(),
            codec=Codec(vault),
        )

    async def check(self) -> Sequence[Finding]:
        return await self._threads.run(check_up, self.path, now=self._clock.now())
