"""A transaction of the PostgreSQL store, as the statements of both databases use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.stores.postgres import lanes as lanes_here
from redrive.stores.postgres.codec import jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.searching import contains
from redrive.stores.sql.session import Either, Lane, Session

__all__ = ["PostgresSession"]

_TEXTS = (
    "d.fault ->> 'message'",
    "d.fault ->> 'error_class'",
    "redrive.payload_of(e.document)::text",
    "d.payload",
)


class PostgresSession(Session, Link):
    """A transaction on a connection; what the statements call `redrive` is any schema."""

    async def fetch(self, statement: str | Either, *values: object) -> list[Any]:
        text = statement.postgres if isinstance(statement, Either) else statement
        return await Link.fetch(self, text, *values)

    def instant(self, column: Any) -> Any:  # noqa: ANN401 - None for no instant
        return column

    def json(self, value: object) -> str:
        return jsonb(value)

    def records(self, rows: Sequence[Mapping[str, object]]) -> str:
        return jsonb(rows)

    def pattern(self, pattern: str) -> str:
        escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return escaped.replace("*", "%")

    def search(self, text: str, first: int) -> tuple[str, list[object]]:
        return contains(text, _TEXTS, first)

    async def free_lanes(self, lanes: Sequence[Lane]) -> None:
        await lanes_here.free_lanes(self, lanes)

    async def line_up(self, ids: Sequence[int]) -> None:
        await lanes_here.line_up(self, ids)

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
        found = await self.fetch(
            "SELECT redrive.replay_all($1::bigint[], $2, $3, $4, $5, $6, $7, $8)",
            list(ids),
            generation,
            actor.by,
            actor.why,
            history,
            self.now,
            of_replay,
            is_automatic,
        )
        return [DeliveryId(number) for (number,) in found]
