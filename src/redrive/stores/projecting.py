"""What all stores say about projections."""

from __future__ import annotations

from redrive.errors import UsageError

__all__ = ["still_read"]


def still_read(projection: str, worker: str) -> UsageError:
    """Say that a projection cannot be dropped, because a live worker would begin it again."""
    return UsageError(
        f"The projection {projection!r} is read by the worker {worker}, which would begin it "
        "again; take it out of the app, stop the workers that have it, and drop it then."
    )
