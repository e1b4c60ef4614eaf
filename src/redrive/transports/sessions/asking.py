"""Asking for a session, which needs SQLAlchemy only then."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from redrive.transports.sessions.borrowed import Borrowed

__all__ = ["begin_session"]

_NO_DATABASE = (
    "The projection asks for a session, and the store in memory has no database; give the app, or "
    "the kit in a test, one in a file or on PostgreSQL."
)
_NOT_INSTALLED = (
    "The projection asks for a session of SQLAlchemy, and {} is not installed; install it with "
    "`pip install 'sqlalchemy[asyncio]>=2'`, or write by model.connection."
)


def begin_session(connection: Any) -> Borrowed:  # noqa: ANN401 - that of either driver
    """Return a session on a connection with an open transaction."""
    if connection is None:
        raise UsageError(_NO_DATABASE)
    for needed in ("sqlalchemy", "greenlet"):
        if find_spec(needed) is None:
            raise ConfigurationError(_NOT_INSTALLED.format(needed))
    from redrive.transports.sessions.borrowed import borrow  # noqa: PLC0415 - as said above

    return borrow(connection)
