"""What the memory store holds, and the readings its roles share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from redrive.clock import Clock
from redrive.model.audit import AuditEntry
from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination, Order, Routes
from redrive.model.gate import BreakerChange, Gate
from redrive.store import Entry
from redrive.stores.memory.row import Row

__all__ = ["Heads", "Identity", "Lane", "Tables", "Waiter"]


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


class Tables:
    """The state of a memory store. Public methods hold the lock; the others expect it held."""

    def __init__(self, clock: Clock, history: int) -> None:
        self._clock = clock
        self._history = history
        self._lock = threading.Lock()
        self._log: list[Entry] = []
        self._known: dict[Identity, Entry] = {}
        self._destinations: dict[str, Destination] = {}
        self._routes_version = 0
        self._rows: dict[DeliveryId, Row] = {}
        self._last_delivery_id = 0
        self._workers: dict[str, datetime] = {}
        self._audit: list[AuditEntry] = []
        self._refused_settlements = 0
        self._deleted = 0
        self._waiters: list[Waiter] = []
        self._has_news = False
        self._gates: dict[str, Gate] = {}
        self._breaker_changes: list[BreakerChange] = []
        self._gates_open_at: list[datetime] = []

    def _routes(self) -> Routes:
        return Routes(self._routes_version, self._destinations.values())

    def _lane(self, row: Row) -> Lane | None:
        order = self._destinations[row.destination].order
        if row.event.key is None or order is Order.NONE or row.was_passed_by:
            return None
        return Lane(row.destination, row.event.key)

    def _pass_by(self) -> None:
        """Let dead letters leave their lanes where that is how order is kept."""
        for row in self._rows.values():
            if row.is_dead_letter and self._destinations[row.destination].order is Order.SKIP:
                row.was_passed_by = True

    def _heads(self) -> Heads:
        """Return the earliest delivery of each lane that is not out of the way yet."""
        heads: Heads = {}
        for row in self._rows.values():
            lane = self._lane(row)
            if lane is not None and row.blocks_its_lane:
                heads.setdefault(lane, row.id)
        return heads

    def _behind(self, row: Row, heads: Heads) -> DeliveryId | None:
        lane = self._lane(row)
        if lane is None or row.status is not Status.PENDING or heads[lane] == row.id:
            return None
        return heads[lane]

    def _found(self, ids: Iterable[DeliveryId]) -> list[Row]:
        return [self._rows[one] for one in dict.fromkeys(ids) if one in self._rows]

    def _tell(self) -> None:
        """Wake everybody who waits for work, and whoever claimed last before they wait."""
        self._has_news = True
        for waiter in self._waiters:
            with contextlib.suppress(RuntimeError):  # its loop is closed, so nobody waits there
                waiter.loop.call_soon_threadsafe(waiter.news.set)
