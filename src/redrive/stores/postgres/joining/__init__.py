"""What `within=` takes: the caller's connection, whichever driver it belongs to."""

from __future__ import annotations

from redrive.errors import TransactionError
from redrive.stores.postgres.joining.caller import Caller

__all__ = ["adopt"]

_JOINABLE = (
    "an asyncpg or psycopg connection, a SQLAlchemy connection or session, or Django's "
    "`transaction.get_connection()`"
)


async def adopt(within: object) -> Caller:
    """Return what `within=` got as our statements use it; raises `TransactionError` otherwise.

    A driver is known by the name of its package and imported only if the caller has done so.
    """
    for cls in type(within).__mro__:
        adopted = await _adopt(cls.__module__.partition(".")[0], within)
        if adopted is not None:
            return adopted
    if type(within).__module__.startswith("sqlite3"):
        raise TransactionError(
            "within= got a connection of sqlite3, but this app keeps its events in PostgreSQL; "
            f"pass {_JOINABLE}."
        )
    raise TransactionError(f"within= got {type(within).__name__}; on PostgreSQL pass {_JOINABLE}.")


async def _adopt(package: str, within: object) -> Caller | None:
    match package:
        case "asyncpg":
            from redrive.stores.postgres.joining import asyncpg  # noqa: PLC0415 - see above

            return asyncpg.adopt(within)
        case "psycopg":
            from redrive.stores.postgres.joining import psycopg  # noqa: PLC0415 - see above

            return psycopg.adopt(within)
        case "sqlalchemy":
            from redrive.stores.postgres.joining import sqlalchemy  # noqa: PLC0415 - see above

            return await sqlalchemy.adopt(within)
        case "django":
            from redrive.stores.postgres.joining import django  # noqa: PLC0415 - see above

            return django.adopt(within)
        case _:
            return None
