"""Planted bugs of the counts that are kept."""

from __future__ import annotations

from redrive.stores.sqlite import counting, session
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

BUGS = (
    Bug(
        "what is delivered is not counted",
        on="sqlite",
        patches=((session, "count_delivered", lambda connection, ids: None),),
    ),
    Bug(
        "what is new is counted twice",
        on="sqlite",
        patches=((counting, "_FOLD", counting._FOLD.partition(";")[0]),),  # noqa: SLF001 - spoiled
    ),
    Bug(
        "a statement loses a count",
        on="postgres",
        words=("(destination, 20, '', '', number)", "(destination, 20, '', '', number - 1)"),
    ),
)
