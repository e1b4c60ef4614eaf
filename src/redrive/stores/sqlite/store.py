"""The SQLite store: all roles of the contract on one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redrive.clock import Clock
from redrive.store import Capabilities, Finding
from redrive.stores.sql.audit import AuditRole
from redrive.stores.sql.figures import FiguresRole
from redrive.stores.sql.gates import GatesRole
from redrive.stores.sql.inspection import InspectionRole
from redrive.stores.sql.intervention import InterventionRole
from redrive.stores.sql.lanes import LanesRole
from redrive.stores.sql.letters import LettersRole
from redrive.stores.sql.log import LogRole
from redrive.stores.sql.registering import RegistryRole
from redrive.stores.sql.regrouping import RegroupingRole
from redrive.stores.sql.replays import ReplaysRole
from redrive.stores.sql.rerouting import ReroutingRole
from redrive.stores.sql.retention import RetentionRole
from redrive.stores.sql.tenants import TenantsRole
from redrive.stores.sqlite.checkup import check_up
from redrive.stores.sqlite.effects import EffectsRole
from redrive.stores.sqlite.publishing import PublishingRole
from redrive.stores.sqlite.queue import QueueRole
from redrive.stores.sqlite.threads import Threads

__all__ = ["SqliteStore"]


class SqliteStore(
    PublishingRole,
    LogRole,
    RegistryRole,
    QueueRole,
    EffectsRole,
    GatesRole,
    TenantsRole,
    FiguresRole,
    InspectionRole,
    InterventionRole,
    AuditRole,
    ReplaysRole,
    LettersRole,
    ReroutingRole,
    LanesRole,
    RetentionRole,
    RegroupingRole,
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
        self, path: Path, *, clock: Clock, history: int = 20, threads: Threads | None = None
    ) -> None:
        super().__init__(path, clock=clock, history=history, threads=threads or Threads())

    async def check(self) -> Sequence[Finding]:
        return await self._threads.run(check_up, self.path, now=self._clock.now())
