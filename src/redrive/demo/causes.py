"""Causes: dead letters that failed in the same way, put together."""

from __future__ import annotations

import re

import msgspec

from redrive.model.delivery import Delivery
from redrive.operations import Operations
from redrive.store import Query

__all__ = ["Cause", "find_causes", "find_deliveries", "normalised"]

_IDENTIFIER = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*\b")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one destination that failed in the same way."""

    destination: str
    error_class: str
    message: str
    deliveries: tuple[int, ...]

    @property
    def what(self) -> str:
        """What went wrong, in one line."""
        return f"{self.error_class}: {self.message}"


def normalised(message: str) -> str:
    """Return a message without what differs from one failure to the next.

    >>> normalised("could not convert string to float: '19,90'")
    "could not convert string to float: '#'"
    """
    return _NUMBER.sub("#", _IDENTIFIER.sub("#", message))


async def find_causes(operations: Operations) -> tuple[Cause, ...]:
    """Group the dead letters there are, the largest group first."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for letter in await find_deliveries(operations, Query()):
        if letter.fault is not None:
            fault = letter.fault
            cause = (letter.destination, fault.error_class, normalised(fault.message))
            groups.setdefault(cause, []).append(letter.id)
    causes = [
        Cause(
            destination=destination,
            error_class=error_class,
            message=message,
            deliveries=tuple(sorted(ids)),
        )
        for (destination, error_class, message), ids in groups.items()
    ]
    return tuple(sorted(causes, key=lambda cause: (-len(cause.deliveries), cause.what)))


async def find_deliveries(operations: Operations, query: Query) -> list[Delivery]:
    """Return all deliveries a query finds, page by page."""
    found: list[Delivery] = []
    cursor: str | None = None
    while True:
        page = await operations.deliveries(query, cursor=cursor, limit=1_000)
        found += page.deliveries
        cursor = page.next_cursor
        if cursor is None:
            return found
