"""The shop's three services: one healthy, one flaky, one with two bugs.

Each keeps a book of its own of the events that took effect, so that the final count does not have
to believe the store.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from redrive.demo.pace import Pace
from redrive.model.event import Event

__all__ = ["Billing", "Mail", "Order", "Search", "Service"]


class Order(msgspec.Struct):
    """The payload of an order."""

    number: int
    total: float


class Service:
    """A service and the ids of the events that had their effect on it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.effects: Counter[str] = Counter()


class Billing(Service):
    """Writes an invoice; always works."""

    async def bill(self, event: Event[Order]) -> None:
        """Handle an order."""
        await self._pace.sleep(0.06)
        self.effects[event.id] += 1


class Mail(Service):
    """Sends a confirmation over a mail server that turns down three mails in ten at first."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(pace)
        self.is_down = False
        self._tried: Counter[str] = Counter()

    async def confirm(self, event: Event[Order]) -> None:
        """Handle an order."""
        await self._pace.sleep(0.09)
        if self.is_down:
            raise ConnectionRefusedError("mail.example:25 refused the connection")
        self._tried[event.id] += 1
        if event.payload.number % 10 in {2, 5, 8} and self._tried[event.id] == 1:
            raise ConnectionResetError("mail.example:25 said 421, try again later")
        self.effects[event.id] += 1


class Search(Service):
    """Keeps the search index; until it is fixed, it trusts every product to be complete."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(pace)
        self.is_fixed = False
        self.index: dict[str, tuple[str, float]] = {}

    async def index_product(self, event: Event[dict[str, Any]]) -> None:
        """Handle a changed product."""
        await self._pace.sleep(0.12)
        product = event.payload
        if self.is_fixed:
            category = product.get("category", "everything else")
            price = float(product["price"].replace(",", "."))
        else:
            category = product["category"]
            price = float(product["price"])
        self.index[product["name"]] = (category, price)
        self.effects[event.id] += 1
