"""What a checker is: it watches one invariant and complains when it is broken."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.checkers.ledger import Ledger, Step
from tests.proof.checkers.records import Record

__all__ = ["Check"]


class Check:
    """Watches one invariant, which its docstring says. What it yields is wrong, in words."""

    name: str

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        """Look at a step of the store; the ledger is as it was before it."""
        yield from ()

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        """Look at any other record."""
        yield from ()
