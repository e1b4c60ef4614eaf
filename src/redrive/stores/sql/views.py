"""The names that readers use for read models: views, each on a table of one version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redrive.errors import UsageError

__all__ = ["BusyTablesError", "cannot_drop", "cannot_keep", "is_no_view", "quoted"]


class BusyTablesError(Exception):
    """Somebody has a table or view for longer than others shall wait for a change of it."""


def quoted(name: str) -> str:
    """Return the name of a table, with its schema if it names one, as a statement has it.

    >>> quoted("sales.orders")
    '"sales"."orders"'
    """
    return ".".join(f'"{part}"' for part in name.split("."))


def is_no_view(name: str, version: int) -> UsageError:
    """Say that what readers use is not a view, so that no version can be put behind it."""
    return UsageError(
        f"{name} is a table, and readers of a projection use a view, so that a new version can "
        f"take its place; rename the table, to {name}_v{version} if it has what version {version} "
        "would write."
    )


def cannot_keep(name: str, hanging: Sequence[str]) -> UsageError:
    """Say what would be lost with a view whose columns go, or change."""
    return UsageError(
        f"The view {name} cannot be put on another table without losing what hangs on it: "
        f"{_listed(hanging)}. Keep the columns and their types, and add new ones; or take that "
        "away, swap, and bring it back."
    )


def cannot_drop(name: str, hanging: Sequence[str]) -> UsageError:
    """Say what still uses a table."""
    return UsageError(f"The table {name} is still used: {_listed(hanging)}. Nothing was dropped.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))
