"""Two companies whose APIs get the orders, each in a shape of its own, and who record them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from redrive.demo.service import Service
from redrive.demo.tempo import Tempo

__all__ = ["Company", "Crm", "Ledger", "Recorded"]


class Recorded(NamedTuple):
    """A request that was accepted, and the release that accepted it."""

    release: int
    method: str
    path: str
    body: object


class Company(Service, ABC):
    """Records what it accepts, by the event's id."""

    def __init__(self, pace: Tempo) -> None:
        super().__init__(pace)
        self.release = 1
        self.recorded: dict[str, Recorded] = {}

    @abstractmethod
    def shape(self, order: Mapping[str, Any], release: int) -> Recorded:
        """Return the request that an order should have become."""

    def note(self, request: web.Request, order: dict[str, Any]) -> None:
        """Record a request; its id is that of the event and the rule's name."""
        event, _, _ = request.headers["webhook-id"].rpartition("-")
        self.effects[event] += 1
        self.recorded[event] = Recorded(self.release, request.method, request.path, order)

    def misshapen(self, orders: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the events that arrived in another shape than their orders should have."""
        return [
            event
            for event, one in self.recorded.items()
            if event in orders and one != self.shape(orders[event], one.release)
        ]


class Crm(Company):
    """Keeps contacts; its second release has another name for the customer."""

    def shape(self, order: Mapping[str, Any], release: int) -> Recorded:
        """Return a contact, at the address of its order."""
        field = "customer" if release == 1 else "client"
        body = {"order": order["number"], field: order["customer"]["name"].upper()}
        return Recorded(release, "PUT", f"/orders/{order['number']}", body)

    def refusal(self, order: dict[str, Any]) -> str:
        """Refuse what the release that runs does not know."""
        unknown = "customer" if self.release > 1 else "client"
        return f"{unknown} is no field of a contact" if unknown in order else ""


class Ledger(Company):
    """Keeps the books, in cents; always works."""

    def shape(self, order: Mapping[str, Any], release: int) -> Recorded:
        """Return an entry."""
        body = {"text": f"Order {order['number']}", "cents": order["total"] * 100}
        return Recorded(release, "POST", "/entries", body)
