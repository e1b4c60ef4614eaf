"""Paging: the part of a list that is a caller's, and where it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from redrive.web.route import Call

__all__ = ["at_own", "next_page"]


class _AtDestination(Protocol):
    @property
    def destination(self) -> str: ...


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


D = TypeVar("D", bound=_AtDestination)


def at_own(call: Call, found: Sequence[D]) -> list[D]:
    """Return those of destinations that are the caller's."""
    own = call.caller.grant.destinations
    return [one for one in found if not own or one.destination in own]


def next_page(found: Sequence[_Numbered], limit: int) -> str | None:
    """Return where a list goes on whose pages end with an id."""
    return str(found[-1].id) if len(found) == limit else None
