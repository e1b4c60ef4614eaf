"""A connection in an open transaction, as the statements of both databases use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Lease
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.store import Appended, Entry
from redrive.stores.codec import from_micros
from redrive.stores.sealed import READ_ENCRYPTION, Codec

__all__ = ["MOST_PROMOTED", "Either", "Lane", "Session", "instant"]

MOST_PROMOTED = 2_000
"""How much of what has come due is made ready at once, whoever has it."""

Lane = tuple[int, str]
"""A destination's number, and the key."""


class Either(NamedTuple):
    """A statement that each database needs in words of its own, most often to use an index.

    Or only a part of one, and `within` returns the whole.
    """

    sqlite: str
    postgres: str

    def within(self, statement: str) -> Either:
        """Return the statement with this part in place of each `{}`."""
        return Either(*(statement.replace("{}", part) for part in self))


def instant(column: Any) -> Any:  # noqa: ANN401 - None for no instant
    """Read a column with a time in it, which SQLite keeps as microseconds; `None` stays `None`."""
    return from_micros(column) if isinstance(column, int) else column


class Session(ABC):
    """One transaction on one connection.

    Statements are written as PostgreSQL reads them: tables as `redrive.deliveries`, values as
    `$1`, many ids as `= ANY ($1::bigint[])`, many rows as `json_to_recordset` of `records`. What
    SQLite says otherwise is listed in `redrive.stores.sqlite.dialect`.
    """

    codec: Codec
    """Writes and reads what carries payloads."""

    now: datetime
    """The present of this transaction, read when it began."""

    log_with_attempt: str
    """The story `d.log` with `given.attempt` at its end, and at most `$2` tries long."""

    @abstractmethod
    async def fetch(self, statement: str | Either, *values: object) -> list[Any]:
        """Run a statement; returns its rows, to be unpacked by place."""

    async def look_at_encryption(self) -> None:
        """Go by how the store is to keep payloads now, for who may not have looked for long."""
        self.codec.learn(await self.value(READ_ENCRYPTION))

    async def value(self, statement: str | Either, *values: object) -> Any:  # noqa: ANN401 - any column
        """Return the first column of the first row, or `None`."""
        rows = await self.fetch(statement, *values)
        return rows[0][0] if rows else None

    @abstractmethod
    def json(self, value: object) -> str:
        """Return a value as JSON text that this database can keep, encrypted if it is to be."""

    @abstractmethod
    def records(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Return many rows as one value, for `json_to_recordset`."""

    @abstractmethod
    def event_id(self, text: str) -> str | None:
        """Return a text as the id of an event, or `None` if no event here can have it."""

    @abstractmethod
    def pattern(self, pattern: str) -> str:
        """Return a pattern with asterisks as `LIKE` takes it here."""

    @abstractmethod
    def search(self, text: str, first: int) -> tuple[str, list[object]]:
        """Return the condition that a delivery says a text somewhere, in any case, and its values.

        `first` is the number of the first of its placeholders.
        """

    @abstractmethod
    async def free_lanes(self, lanes: Sequence[Lane]) -> None:
        """Let the next delivery go in each of the lanes, if nothing stands in front of it."""

    @abstractmethod
    async def make_ready(self) -> bool:
        """Let what has come due wait for its turn; tells if there may be more of it.

        First whatever may wait for others: two that wait for what the other has made ready would
        never end.
        """

    @abstractmethod
    async def line_up(self, ids: Sequence[int]) -> bool:
        """Find out who goes next in the lanes of deliveries that are pending again; tell if any."""

    @abstractmethod
    async def deliver(self, leases: Sequence[Lease]) -> tuple[set[Lease], bool]:
        """Settle as delivered what has a current lease; tell what, and whether a lane was freed."""

    @abstractmethod
    async def change_routes(
        self, changed: Sequence[Destination], *, begins_order: bool = False
    ) -> None:
        """Begin a new version of the routes, for which these destinations change or are new.

        Nobody else may be changing them. Who is publishing by the old version is found out later,
        and until then keeps others of its key waiting, if some destination begins to keep order.
        """

    @abstractmethod
    async def hold(self, name: str) -> None:
        """Wait until nobody else holds a name, and hold it until the transaction ends."""

    @abstractmethod
    async def missing_tables(self, names: Sequence[str]) -> list[str]:
        """Return those names that no table or view of the user has."""

    @abstractmethod
    async def point_views(self, tables: Sequence[str], version: int) -> None:
        """Put the views that readers use on the tables of a version, with all that hangs on them.

        Raises `UsageError` for what would be lost, and `BusyTablesError` if somebody has one.
        """

    @abstractmethod
    async def drop_tables(self, names: Sequence[str]) -> None:
        """Drop tables that nothing uses; raises as `point_views` does."""

    @abstractmethod
    async def insert_deliveries(
        self, rows: Sequence[Mapping[str, object]]
    ) -> Sequence[tuple[int, int, int, int | None]]:
        """Insert rows of deliveries; returns of each its id, position, destination and rule."""

    @abstractmethod
    async def keeps_history(self, history: int) -> bool:
        """Tell whether that is kept already."""

    @abstractmethod
    async def keep_history(self, history: int) -> None:
        """Bound what is kept of past tries when somebody replays by a statement of their own."""

    @abstractmethod
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None,
        history: int,
        of_replay: int | None = None,
        is_automatic: bool = False,
    ) -> list[DeliveryId]:
        """Make those that are unresolved dead letters pending again, and return them.

        It leaves an audit entry, unless it is part of the replay of many that gives its number.
        """

    @abstractmethod
    async def fold_counts(self) -> None:
        """Bring what has changed into the kept counts: all of it, or much."""

    @abstractmethod
    async def count_outcomes(self, replay: int) -> None:
        """Add the outcomes that are not in a replay's row yet; it is locked."""

    @abstractmethod
    async def append(self, entries: Sequence[Entry], *, routes_version: int) -> Appended | None:
        """Append each of the entries that can be; `None` if there are newer routes."""

    @abstractmethod
    async def add_events(
        self, events: Mapping[EventId, Event[msgspec.Raw]]
    ) -> Mapping[EventId, int]:
        """Append events that come back unless they are there; return their positions.

        They and their keys stay as they are until the transaction ends. An idempotency key that
        somebody else has meanwhile stays theirs.
        """
