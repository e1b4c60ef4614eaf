"""Orders and their read model in the terms of `eventsourcing`, which alone can import this."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Order", "Orders", "Paid", "view_of"]

_domain: Any = importlib.import_module("eventsourcing.domain")
_application: Any = importlib.import_module("eventsourcing.application")
_projection: Any = importlib.import_module("eventsourcing.projection")
_topic_of: Any = importlib.import_module("eventsourcing.utils").get_topic


class Order(_domain.Aggregate):  # type: ignore[misc] # the library is not here
    """What is paid again and again."""

    @_domain.event("Placed")  # type: ignore[untyped-decorator] # the library is not here
    def __init__(self, key: str) -> None:
        self.key = key

    @_domain.event("Paid")  # type: ignore[untyped-decorator] # the library is not here
    def pay(self, key: str, number: int) -> None:
        """Take a payment."""
        self.last = (key, number)


class Orders(_application.Application):  # type: ignore[misc] # the library is not here
    """Keeps them."""


class Paid(_projection.Projection):  # type: ignore[misc] # the library is not here
    """Counts what was paid, each event in a transaction of its view."""

    topics = (_topic_of(Order.Paid),)

    def process_event(self, domain_event: Any, tracking: Any) -> None:  # noqa: ANN401 - its types are not here
        """Hand it to the view."""
        self.view.paid(domain_event.key, domain_event.number, tracking)


def view_of(recorder: type[Any], table: str, upsert: str) -> type[Any]:
    """Return a view that upserts a row and tracks its event in one transaction."""

    class View(recorder):  # type: ignore[misc] # the library is not here
        def __init__(self, *given: Any, **options: Any) -> None:  # noqa: ANN401 - its types are not here
            super().__init__(*given, **options)
            with self.datastore.transaction(commit=True) as cursor:
                cursor.execute(table)

        def paid(self, key: str, number: int, tracking: Any) -> None:  # noqa: ANN401 - its types are not here
            with self.datastore.transaction(commit=True) as cursor:
                cursor.execute(upsert, (key, number))
                self._insert_tracking(cursor, tracking)

        def counted(self) -> int:
            with self.datastore.transaction(commit=False) as cursor:
                cursor.execute("SELECT sum(times) AS times FROM paid")
                return int(cursor.fetchone()["times"])

    return View
