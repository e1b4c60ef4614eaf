"""Sessions of SQLAlchemy on the connection that a function is handed, in its open transaction.

`asking` is all that is imported without SQLAlchemy. `borrowed` makes sessions without any pool:
there is one connection, and Redrive commits on it. A module for each driver makes the connection
look as SQLAlchemy wants it.
"""

from __future__ import annotations

from redrive.transports.sessions.asking import begin_session

__all__ = ["begin_session"]
