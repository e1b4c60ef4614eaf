"""The part of the caller's transaction that is ours: all of it happens, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.errors import TransactionError
from redrive.stores.postgres.connection import Address
from redrive.stores.postgres.pool import Link

__all__ = ["savepoint"]

_MEANINGS = {
    "25P01": (
        "within= got a connection that is not in a transaction, because it commits each statement "
        "by itself; begin a transaction first, and use no AUTOCOMMIT isolation level."
    ),
    "25P02": (
        "within= got a transaction that has failed before; roll it back and begin again. "
        "Nothing was stored."
    ),
    "25006": "within= got a transaction that is read only; nothing was stored.",
    "42501": (
        "within= got a connection whose user may not write to the schema {schema}; grant it "
        "USAGE on the schema and all on its tables and sequences. Nothing was stored."
    ),
    "42P01": (
        "within= got a connection to a database without the schema {schema} of this app; "
        "connect it to {name}. Nothing was stored."
    ),
}
_MEANINGS["3F000"] = _MEANINGS["42883"] = _MEANINGS["42P01"]
_LOST = (
    "This happened inside the transaction of within=, which cannot go on; roll it back, and "
    "nothing of it is stored."
)


@asynccontextmanager
async def savepoint(link: Link, address: Address) -> AsyncIterator[None]:
    """Undo what the block did if it fails; the caller's transaction goes on as if it had not.

    What the caller's driver raises passes as it is, since the caller knows it and may have to
    act on it, as on a serialization failure. Only mistakes in the use of `within=` are ours.
    """
    try:
        await link.fetch("SAVEPOINT redrive_publish")
        try:
            yield
        except GeneratorExit:  # nobody is there any more who could wait for an answer
            raise
        except BaseException as error:
            await _undo(link, error)
            raise
        await link.fetch("RELEASE SAVEPOINT redrive_publish")
    except Exception as error:
        meaning = _MEANINGS.get(_state(error))
        if meaning is None:
            raise
        raise TransactionError(meaning.format(schema=address.schema, name=address.name)) from error


async def _undo(link: Link, error: BaseException) -> None:
    try:
        await link.fetch("ROLLBACK TO SAVEPOINT redrive_publish")
        await link.fetch("RELEASE SAVEPOINT redrive_publish")
    except Exception:  # noqa: BLE001 - the first error is the one to be told
        error.add_note(_LOST)


def _state(error: BaseException) -> str:
    """Return the server's code for an error, whichever library has wrapped it."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if state:
            return str(state)
    return ""
