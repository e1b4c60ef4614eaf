"""The shop: its app with three destinations, its own table, and its book of what it published."""

from __future__ import annotations

from redrive.app import Redrive
from redrive.demo.pace import Pace
from redrive.demo.services import Billing, Mail, Search, Service
from redrive.model.event import NewEvent, Receipt
from redrive.policies.retry import Proportional, Retry

__all__ = ["Shop"]

_CATEGORIES = ("books", "garden", "kitchen", "toys")


class _CardDeclinedError(Exception):
    """The shop's own error: it undoes the order and its event together."""


class Shop:
    """A shop whose orders and products are events; `wanted_by` is who it expects to get each."""

    def __init__(self, store: str, pace: Pace) -> None:
        self.billing, self.mail, self.search = Billing(pace), Mail(pace), Search(pace)
        self.wanted_by: dict[str, tuple[str, ...]] = {}
        self.orders = 0
        # Said in full, so that a redrive.toml or the environment cannot change the story.
        self.app = Redrive(
            store,
            payload_limit="1MiB",
            concurrency=50,
            lease="15s",
            grace="2s",
            poll="1s",
            generation="demo",
            generations=["demo"],
            history=20,
        )
        self._declare(pace)

    @property
    def services(self) -> dict[str, Service]:
        """The services by the name of their destination."""
        return {"billing": self.billing, "mail": self.mail, "search": self.search}

    def _declare(self, pace: Pace) -> None:
        patiently = Retry(
            max_attempts=12,
            base=pace.duration(1.0),
            factor=1.4,
            cap=pace.duration(2.5),
            jitter=Proportional(0.3),
        )
        app = self.app
        app.handler("order.*", name="billing")(self.billing.bill)
        app.handler("order.*", name="mail", retry=patiently)(self.mail.confirm)
        app.handler("product.*", name="search", concurrency=5, terminal=(KeyError, ValueError))(
            self.search.index_product
        )

    async def furnish(self) -> None:
        """Create the shop's own table, in the same file as the events."""
        async with self.app.transaction() as tx:
            tx.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, total REAL NOT NULL)")

    async def sell(self, number: int) -> None:
        """Write an order and publish it in one transaction; a declined card undoes both."""
        total = 5 + number * 37 % 90
        try:
            async with self.app.transaction() as tx:
                tx.execute("INSERT INTO orders VALUES (?, ?)", (number, total))
                receipt = await self.app.publish(
                    "order.paid",
                    {"number": number, "total": total},
                    key=f"order-{number}",
                    within=tx,
                )
                _charge_card(number)
        except _CardDeclinedError:
            return
        self.orders += 1
        self._note(receipt, "billing", "mail")

    async def change_product(self, number: int) -> None:
        """Publish a change of one of the shop's own, complete products."""
        product = {"name": f"own-{number}", "category": _CATEGORIES[number % 4], "price": "9.90"}
        self._note(await self.app.publish("product.changed", product), "search")

    async def import_price_list(self, products: int) -> None:
        """Publish a supplier's price list at once.

        Every fifth line lacks a category, and every tenth has a comma in its price.
        """
        events = [
            NewEvent(type="product.changed", payload=_line(number)) for number in range(products)
        ]
        for receipt in await self.app.publish_many(events):
            self._note(receipt, "search")

    def _note(self, receipt: Receipt, *wanted_by: str) -> None:
        self.wanted_by[receipt.event_id] = wanted_by


def _charge_card(number: int) -> None:
    if number % 20 == 0:
        raise _CardDeclinedError


def _line(number: int) -> dict[str, str]:
    line = {
        "name": f"supplier-{number}",
        "category": _CATEGORIES[number % 4],
        "price": f"{5 + number}.50",
    }
    if number % 5 == 1:
        del line["category"]
    elif number % 10 == 0:
        line["price"] = line["price"].replace(".", ",")
    return line
