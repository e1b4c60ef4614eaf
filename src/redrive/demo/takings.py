"""The takings: a read model of the shop's orders, made by a projection from the log."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from redrive.app.redrive import Redrive
from redrive.model.event import Event
from redrive.transports.projection import ReadModel

__all__ = ["PROJECTION", "declare_takings"]

PROJECTION = "takings"


def declare_takings(app: Redrive, table: str) -> None:
    """Have workers of an app sum up what was paid, in a table of one row."""

    async def create(model: ReadModel) -> None:
        await _run(model, f"CREATE TABLE {model.table(table)} (orders INTEGER, total INTEGER)")
        await _run(model, f"INSERT INTO {model.table(table)} VALUES (0, 0)")  # noqa: S608 - our name

    async def add(events: Sequence[Event[dict[str, object]]], model: ReadModel) -> None:
        total = sum(int(str(one.payload["total"])) for one in events)
        await _run(
            model,
            f"UPDATE {model.table(table)} "  # noqa: S608 - our name, and our numbers
            f"SET orders = orders + {len(events)}, total = total + {total}",
        )

    declare = app.projection(
        "order.paid", name=PROJECTION, tables=[table], create=create, batch=True
    )
    declare(add)


async def _run(model: ReadModel, statement: str) -> None:
    """Run a statement on SQLite, or on PostgreSQL, which has to be awaited."""
    done = model.connection.execute(statement)
    if inspect.isawaitable(done):
        await done
