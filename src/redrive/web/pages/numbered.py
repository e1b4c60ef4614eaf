"""Lists that are found by a part of a name and shown a hundred rows at a time, by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from redrive.web.pages.page import Visit

__all__ = ["Numbered", "Sought"]

T = TypeVar("T")
_PER_PAGE = 100


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What a visit asks for: a part of a name, and which page of what has it."""

    part: str
    number: int

    @classmethod
    def by(cls, visit: Visit) -> Sought:
        """Read it from the address."""
        return cls(part=visit.asked("name") or "", number=max(1, visit.number("page") or 1))

    def fits(self, *names: str) -> bool:
        """Tell whether one of the names has the part in it."""
        return any(self.part.lower() in one.lower() for one in names)

    def shown(self, found: Sequence[T]) -> Sequence[T]:
        """Return those of all that were found which stand on the page."""
        return found[(self.number - 1) * _PER_PAGE : self.number * _PER_PAGE]


class Numbered(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list at `path`; `found` counts the rows of all pages."""

    path: str
    rows: tuple[T, ...]
    sought: Sought
    found: int

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.found // _PER_PAGE))

    def address(self, number: int) -> str:
        """Return where another page of the same is shown."""
        return f"{self.path}?{urlencode({'name': self.sought.part, 'page': number})}"
