"""Tests of a Django project: what they publish stays in memory, and can be asserted."""

from __future__ import annotations

from typing import Any

import msgspec
from django.db import connections

from redrive.integrations.django.project import get_app
from redrive.model.event import Event
from redrive.testing.kit import SyncKit
from redrive.testing.transactions import Unpublished

__all__ = ["DjangoKit", "RedriveTestMixin"]


class DjangoKit(SyncKit):
    """The kit for the app that REDRIVE_APP names.

    Django's `TestCase` wraps each test in a transaction that never commits. So what is published
    in a transaction that is still open counts as published here; what was rolled back does not.
    To have it delivered by `drain`, let Django run what waits for the commit:
    `captureOnCommitCallbacks(execute=True)`.
    """

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(get_app(), seed=seed)

    def _events(self) -> list[Event[Any]]:
        open_here = [
            msgspec.structs.replace(one.event, payload=msgspec.json.decode(one.event.payload))
            for connection in connections.all(initialized_only=True)
            for _, waiting, *_ in connection.run_on_commit
            if isinstance(waiting, Unpublished) and waiting.store in self._stores
            for one in waiting.entries
        ]
        return [*super()._events(), *open_here]


class RedriveTestMixin:
    """Gives each test of a `TestCase` a kit, as `self.redrive`.

    >>> class CheckoutTest(RedriveTestMixin, TestCase):  # doctest: +SKIP
    ...     def test_a_basket_is_announced(self):
    ...         check_out(7)
    ...         self.assert_published("basket.checked_out", payload={"basket": 7}, times=1)
    """

    redrive: DjangoKit

    def setUp(self) -> None:
        """Connect the project's app to a new kit, until the test has ended."""
        super().setUp()  # type: ignore[misc]  # of the TestCase beside it
        self.redrive = DjangoKit()
        self.redrive.open()
        self.addCleanup(self.redrive.close)  # type: ignore[attr-defined]  # as above

    def assert_published(
        self, event_type: str, *, times: int | None = None, **attributes: object
    ) -> list[Event[Any]]:
        """Fail unless such events were published, `times` times or at least once; return them."""
        return self.redrive.assert_published(event_type, times=times, **attributes)

    def assert_nothing_published(self) -> None:
        """Fail if any event was published."""
        self.redrive.assert_nothing_published()
