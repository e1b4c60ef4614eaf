"""Pages: what a view is given, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.setting import SettingInForce
from redrive.operations import Operations
from redrive.web.caller import Caller
from redrive.web.pages.readings import Look

__all__ = ["MOST_READ", "Moved", "Page", "PageRoute", "Step", "View", "Visit"]

MOST_READ = 20_000
"""How many events or deliveries are looked at, at most, for one page."""
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
    `is_live` says that a script may bring it up to date meanwhile, where a part has `data-live`.
    `status` is that of the answer: a form that has to be looked at again is no success.
    """

    template: str
    title: str
    model: object
    refresh: int | None = None
    is_live: bool = False
    status: HTTPStatus = HTTPStatus.OK


class Moved(msgspec.Struct, frozen=True):
    """Something was done: `said` tells it on the page at `to`, which shows what came of it."""

    to: str
    said: str = ""


class Visit:
    """One request for a page that was let in."""

    def __init__(
        self,
        *,
        operations: Operations,
        look: Look,
        caller: Caller,
        path: Mapping[str, str],
        query: Mapping[str, str],
        form: Mapping[str, str],
        now: datetime,
        settings: Sequence[SettingInForce] = (),
    ) -> None:
        self.operations = operations
        self._look = look
        self.caller = caller
        self.path = path
        self.query = query
        self.form = form
        self.now = now
        self.settings = settings

    @property
    def as_of(self) -> datetime:
        """Of when the oldest is that this visit has looked at."""
        return self._look.as_of(self.now)

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
        number = int(self.path["id"])
        if number > _LARGEST_ID:
            raise NotFoundError(f"There is no {number}; numbers are not that large.")
        return number

    @property
    def name(self) -> str:
        """The name that the path names or, in an act, the form."""
        return self.path.get("name") or self.form.get("name", "")

    def may(self, operation: str) -> bool:
        """Tell whether to offer them an act."""
        return self.caller.may(operation)

    def asked(self, name: str) -> str | None:
        """Return what the query says of a name, if it says anything."""
        return self.query.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """Return a number of the query, such as where the next page begins."""
        text = self.asked(name)
        if text is None:
            return None
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_ID))
        if not (is_number and int(text) <= _LARGEST_ID):
            raise UsageError(f"{name} is {text[:50]!r}; it is a whole number.")
        return int(text)


View = Callable[[Visit], Awaitable[Page | Moved]]


class PageRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: an address, the view behind it, and the operation that says who may.

    `longest` is how many bytes its form may have.
    """

    method: str
    path: str
    operation: str
    view: View
    longest: int = 64 * 1024
