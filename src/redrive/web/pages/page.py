"""Pages: what a view is given, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import msgspec

from redrive.errors import UsageError
from redrive.operations import Operations
from redrive.policies.access import refusal
from redrive.web.caller import Caller

__all__ = ["Moved", "Page", "PageRoute", "Step", "View", "Visit"]

_LARGEST_ID = 2**63 - 1


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may do next: a link or, with an `operation`, a form that carries it out."""

    label: str
    to: str
    operation: str = ""
    fields: dict[str, str] = {}


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown: a model of plain data, and the template that makes HTML of it.

    `refresh` is after how many seconds it is looked at again, if something goes on meanwhile.
    """

    template: str
    title: str
    model: object
    refresh: int | None = None


class Moved(msgspec.Struct, frozen=True):
    """Something was done; `to` shows what came of it."""

    to: str


class Visit:
    """One request for a page that was let in."""

    def __init__(
        self,
        *,
        operations: Operations,
        caller: Caller,
        path: Mapping[str, str],
        query: Mapping[str, str],
        form: Mapping[str, str],
        now: datetime,
    ) -> None:
        self.operations = operations
        self.caller = caller
        self.path = path
        self.query = query
        self.form = form
        self.now = now

    @property
    def by(self) -> str:
        """Who acts, for the audit log."""
        return self.caller.by

    @property
    def why(self) -> str:
        """The reason that the form gives."""
        return self.form.get("why", "").strip()

    @property
    def id(self) -> int:
        """The number that the path names."""
        return int(self.path["id"])

    def may(self, operation: str) -> bool:
        """Tell whether to offer them an act."""
        return refusal(self.caller.grant, operation) is None

    def asked(self, name: str) -> str | None:
        """Return what the query says of a name, if it says anything."""
        return self.query.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """Return a number of the query, such as where the next page begins."""
        text = self.asked(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_ID):
            raise UsageError(f"{name} is {text[:50]!r}; it is a whole number.")
        return int(text)


View = Callable[[Visit], Awaitable[Page | Moved]]


class PageRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: an address, the view behind it, and the operation that says who may."""

    method: str
    path: str
    operation: str
    view: View
