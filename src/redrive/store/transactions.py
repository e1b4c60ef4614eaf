"""The transaction that is open around a piece of code, and the calls that must not bypass it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from redrive.errors import TransactionError

__all__ = ["Committing", "open_transaction", "refuse_in_transaction"]


@runtime_checkable
class Committing(Protocol):
    """A transaction that tells when it has committed."""

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it when the transaction has committed, and never if it has not."""


class _Transaction(Protocol):
    @property
    def is_open(self) -> bool: ...


open_transaction: contextvars.ContextVar[_Transaction | None] = contextvars.ContextVar(
    "redrive_open_transaction", default=None
)
"""The transaction that is open in this context and keeps others from writing, if any."""


def refuse_in_transaction(advice: str) -> None:
    """Refuse a write past an open transaction: it would wait for the lock which that one holds."""
    current = open_transaction.get()
    # A task begun inside the block keeps its context when the block is over.
    if current is not None and current.is_open:
        raise TransactionError(
            "A transaction of app.transaction(), or of a transactional handler, is open here and "
            f"holds the write lock; {advice} after the block."
        )
