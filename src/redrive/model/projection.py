"""Versions of a projection, what each is called, its tables; and partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from redrive.errors import ConfigurationError

__all__ = [
    "check_partitions",
    "check_tables",
    "check_version",
    "destination_of",
    "partition_of",
    "spread",
    "table_of",
]

_TABLE = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,49}")
_MOST_VERSIONS = 999_999
_MOST_PARTITIONS = 64


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


def spread(text: str) -> int:
    """Return a number from 0 to 65,535 for a text, the same wherever and whenever it is asked for.

    Stores say the same in words of their own, for they choose events by it.

    >>> spread("order-1"), spread("order-2")
    (2991, 15710)
    """
    return int.from_bytes(sha256(text.encode()).digest()[:2], "big")


def partition_of(key: str | None, event_id: str, partitions: int) -> int:
    """Return the partition of an event: that of its key, or if it has none, of its id."""
    return 0 if partitions == 1 else spread(event_id if key is None else key) % partitions


def check_partitions(partitions: object) -> int:
    """Return how many partitions a projection has, or say what is wrong with that."""
    if (
        isinstance(partitions, int)
        and not isinstance(partitions, bool)
        and 1 <= partitions <= _MOST_PARTITIONS
    ):
        return partitions
    raise ConfigurationError(
        f"partitions is {partitions!r}; it is a whole number from 1 to {_MOST_PARTITIONS}: how "
        "many readers may apply events side by side, each those of its own keys."
    )


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
