"""Versions of a projection: what each is called, and its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from redrive.errors import ConfigurationError

__all__ = ["check_tables", "check_version", "destination_of", "table_of"]

_TABLE = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,49}")
_MOST_VERSIONS = 999_999


def destination_of(projection: str, version: int) -> str:
    """Return the name of the destination that a version of a projection is.

    >>> destination_of("orders", 1), destination_of("orders", 2)
    ('orders', 'orders.v2')
    """
    return projection if version == 1 else f"{projection}.v{version}"


def table_of(table: str, version: int) -> str:
    """Return the name of a table as a version has it; readers use the plain one.

    >>> table_of("orders", 2)
    'orders_v2'
    """
    return f"{table}_v{version}"


def check_version(version: object) -> int:
    """Return the version of a projection, or say what is wrong with it."""
    if (
        isinstance(version, int)
        and not isinstance(version, bool)
        and 1 <= version <= _MOST_VERSIONS
    ):
        return version
    raise ConfigurationError(
        f"version is {version!r}; it is a whole number from 1, and the next one for each new shape "
        "of the read model."
    )


def check_tables(tables: object) -> tuple[str, ...]:
    """Return the tables of a projection, or say what is wrong with one."""
    if isinstance(tables, str) or not isinstance(tables, Iterable):
        raise ConfigurationError(
            f'tables is {tables!r}; name those of the read model in a list, such as ["orders"].'
        )
    names = tuple(tables)
    for name in names:
        if not isinstance(name, str) or not _TABLE.fullmatch(name):
            raise ConfigurationError(
                f"The table {name!r} of a projection has a name that cannot be used; use small "
                'letters, digits and "_", at most 50, such as "orders" or "sales.orders".'
            )
    return tuple(sorted(set(names)))
