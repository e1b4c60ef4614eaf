"""What the memory store holds, and the readings its roles share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from redrive.claiming.sharing import SharedBucket, Sharing
from redrive.clock import Clock
from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination, Order, Routes
from redrive.model.edit import Edit
from redrive.model.event import EventId
from redrive.model.gate import BreakerChange, Bucket, Gate, Override, Pause
from redrive.model.rule import Stored
from redrive.model.schedule import ScheduleStanding
from redrive.model.standing import Standing
from redrive.model.trend import Measure
from redrive.store import Checkpoint, KeptToken, KeptVersion, Serving
from redrive.stores.declaring import Release, standing_from
from redrive.stores.deduplicate import Kept
from redrive.stores.memory.row import Record, Row

__all__ = ["Heads", "Identity", "Lane", "Tables", "TenantPast", "Waiter"]


class Lane(NamedTuple):
    """The deliveries of one key to one ordered destination."""

    destination: str
    key: str


Heads = dict[Lane, DeliveryId]

Identity = tuple[str] | tuple[str, str]
"""What tells an event from others: its id alone, and its source with its idempotency key."""


class Waiter(NamedTuple):
    """Somebody in `wait`, on a loop that may belong to another thread."""

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event


class TenantPast(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one tenant at one destination."""

    bucket: Bucket = Bucket()
    served_at: datetime
    round: int
    processed: int
    consecutive: int


class Tables:
    """The state of a memory store. Public methods hold the lock; the others expect it held."""

    def __init__(self, clock: Clock, history: int) -> None:  # noqa: PLR0915 - one line a table
        self._clock = clock
        self._history = history
        self._lock = threading.Lock()
        self._log: dict[int, Kept] = {}
        self._last_position = 0
        self._positions: dict[EventId, int] = {}
        self._idle: dict[int, datetime] = {}
        self._versions: dict[str, int] = {}
        self._known: dict[Identity, Kept] = {}
        self._outlived: dict[Identity, datetime] = {}
        self._uniques: dict[tuple[str, str], tuple[Kept, datetime]] = {}
        self._destinations: dict[str, Destination] = {}
        self._removed: dict[str, datetime] = {}
        self._standings: dict[str, Standing] = {}
        self._releases: dict[str, Release] = {}
        self._routes_version = 0
        self._rows: dict[DeliveryId, Row] = {}
        self._last_delivery_id = 0
        self._workers: dict[str, datetime] = {}
        self._serving: dict[str, Serving] = {}
        self._checkpoints: dict[tuple[str, int], tuple[int, Checkpoint]] = {}
        self._emptied: set[str] = set()
        """Projections whose read model is being emptied."""
        self._projection_edits: dict[tuple[str, int], tuple[msgspec.Raw, tuple[Edit, ...]]] = {}
        self._watches: dict[str, tuple[str, datetime]] = {}
        self._audit: list[AuditEntry] = []
        self._last_audit_id = 0
        self._aliases: dict[str, dict[str, datetime]] = {}
        self._refused_settlements = 0
        self._deleted = 0
        self._exported = 0
        self._pruned: Counter[str] = Counter()
        self._pruned_resolved = 0
        self._pruned_events = 0
        self._waiters: list[Waiter] = []
        self._has_news = False
        self._told = 0
        self._gates: dict[str, Gate] = {}
        self._overrides: dict[str, Override] = {}
        self._shared: dict[str, SharedBucket] = {}
        self._sharing = Sharing({}, {}, now=clock.now())
        self._breaker_changes: list[BreakerChange] = []
        self._gates_open_at: list[datetime] = []
        self._shut: dict[str, datetime | None] = {}
        self._replays: dict[int, Record] = {}
        self._last_replay_id = 0
        self._auto_replays_since: dict[str, datetime] = {}
        self._access_tokens: dict[str, KeptToken] = {}
        self._schedules: dict[str, ScheduleStanding] = {}
        self._in_force: dict[tuple[str, str], Stored] = {}
        self._gateway_past: dict[tuple[str, str], list[KeptVersion]] = {}
        self._gateway_revision = 0
        self._trends: dict[str, dict[datetime, Measure]] = {}
        self._tenants: dict[tuple[str, str], TenantPast] = {}
        self._tenant_pauses: dict[tuple[str, str | None], Pause] = {}

    def _routes(self) -> Routes:
        routed = [one for one in self._destinations.values() if one.name not in self._removed]
        return Routes(self._routes_version, routed)

    def _overridden(self, now: datetime) -> dict[str, Override]:
        """Return the overrides that have not ended."""
        return {name: one for name, one in self._overrides.items() if now < one.until}

    def _standing(self, name: str) -> Standing:
        kept, is_removed = self._standings.get(name), name in self._removed
        return kept or standing_from(self._destinations[name], None, is_removed=is_removed)

    def _lane(self, row: Row) -> Lane | None:
        if row.event.key is None or row.was_passed_by:
            return None
        if self._destinations[row.destination].order is Order.NONE:
            return None
        return Lane(row.destination, row.event.key)

    def _pass_by(self) -> None:
        """Let dead letters leave their lanes where that is how order is kept."""
        for row in self._rows.values():
            if row.status is not Status.FAILED or not row.is_dead_letter:
                continue
            if self._destinations[row.destination].passes_by(row.event.type):
                row.was_passed_by = True

    def _heads(self) -> Heads:
        """Return who goes first in each lane: what is in flight, else the earliest of it."""
        self._pass_by()
        heads: Heads = {}
        flying: Heads = {}
        for row in self._rows.values():
            if row.status is Status.DELIVERED:
                continue
            lane = self._lane(row)
            if lane is not None and row.blocks_its_lane:
                heads.setdefault(lane, row.id)
                if row.status is Status.IN_FLIGHT:
                    flying.setdefault(lane, row.id)
        return heads | flying

    def _behind(self, row: Row, heads: Heads) -> DeliveryId | None:
        lane = self._lane(row)
        if lane is None or row.status is not Status.PENDING or heads[lane] == row.id:
            return None
        return heads[lane]

    def _listed(self, *, only_unsettled: bool = False) -> list[str]:
        """Return the destinations there are, and those removed that still have deliveries.

        Those that have arrived or were resolved do not count for who asks for unsettled ones.
        """
        left = frozenset(
            row.destination
            for row in self._rows.values()
            if row.blocks_its_lane or not only_unsettled
        )
        return [
            one for one in sorted(self._destinations) if one not in self._removed or one in left
        ]

    def _found(self, ids: Iterable[DeliveryId], scope: Scope = WHOLE_STORE) -> list[Row]:
        rows = [self._rows[one] for one in dict.fromkeys(ids) if one in self._rows]
        return [
            row for row in rows if scope.holds(tenant=row.event.tenant, destination=row.destination)
        ]

    def _remove(self, rows: Iterable[Row], *, at: datetime | None = None) -> None:
        """Let rows go; an event is idle from then on when the last of its rows has gone.

        `at` is when they were settled, unless they know that better themselves.
        """
        for row in rows:
            row.give_up()
            del self._rows[row.id]
            position = self._positions[row.event.id]
            settled_at = at or row.finished_at
            self._idle[position] = max(settled_at, self._idle.get(position, settled_at))

    def _note(
        self,
        action: str,
        actor: Actor,
        *,
        now: datetime,
        ids: Sequence[DeliveryId] = (),
        count: int | None = None,
        detail: str = "",
    ) -> None:
        """Write the audit entry of an act, and wake who waits."""
        self._last_audit_id += 1
        self._record(
            AuditEntry(
                id=self._last_audit_id,
                at=now,
                by=actor.by,
                why=actor.why,
                action=action,
                count=len(ids) if count is None else count,
                deliveries=tuple(ids),
                detail=detail,
            )
        )
        self._tell()

    def _groups_named(self, group: str | None) -> frozenset[str] | None:
        """Return a group and where its letters went since; `None` when none was asked for."""
        if group is None:
            return None
        found = [group]
        for one in found:  # it grows meanwhile
            found += [new for new in self._aliases.get(one, ()) if new not in found]
        return frozenset(found)

    def _record(self, entry: AuditEntry) -> None:
        self._audit.append(entry)

    def _tell(self) -> None:
        """Wake everybody who waits for work, and whoever claimed last before they wait."""
        self._has_news = True
        self._told += 1
        for waiter in self._waiters:
            with contextlib.suppress(RuntimeError):  # its loop is closed, so nobody waits there
                waiter.loop.call_soon_threadsafe(waiter.news.set)
