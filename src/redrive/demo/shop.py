"""The shop: its app with two HTTP destinations, its own table, and its book of receipts."""

from __future__ import annotations

import msgspec

from redrive.app.redrive import Redrive
from redrive.clock import SystemClock
from redrive.demo.takings import declare_takings
from redrive.demo.tempo import Tempo
from redrive.demo.venue import Venue
from redrive.model.event import Receipt
from redrive.model.limits import Breaker, Rate
from redrive.policies.retry import Proportional, Retry
from redrive.transports.http import http

__all__ = [
    "DESTINATIONS",
    "MOST_PER_SECOND",
    "REPLAYS_PER_SECOND",
    "RETRIES_PER_SECOND",
    "Plan",
    "Shop",
    "make_app",
]

DESTINATIONS = ("billing", "warehouse")
_FRESH_PER_SECOND = 20
RETRIES_PER_SECOND = 15
REPLAYS_PER_SECOND = 10
MOST_PER_SECOND = _FRESH_PER_SECOND + RETRIES_PER_SECOND
"""What the warehouse can take: so many fresh orders, and so many that have waited."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the shop and its workers, each a process of its own, have to agree on.

    `takings` is the table of a read model, for those workers that make it.
    """

    store: str
    poll: str
    billing: str
    warehouse: str
    speed: float
    takings: str = ""


def make_app(plan: Plan) -> Redrive:
    """Return the app of the shop, the same in every process."""
    pace = Tempo(SystemClock(), plan.speed)
    # Said in full, so that a redrive.toml or the environment cannot change the story.
    app = Redrive(
        plan.store,
        payload_limit="1MiB",
        concurrency=50,
        lease="3s",
        grace="2s",
        poll=plan.poll,
        generation="demo",
        generations=["demo"],
        history=20,
        keep_delivered="1d",
        keep_events="30d",
        keep_idempotency="30d",
        export_folder="",
    )
    patiently = Retry(
        max_attempts=30,
        base=pace.duration(1.0),
        factor=1.4,
        cap=pace.duration(3.0),
        jitter=Proportional(0.3),
    )
    # A public address would need no permission; loopback has to be allowed by name.
    loopback = ("127.0.0.1",)
    app.destination(
        "billing",
        "order.*",
        transport=http(plan.billing, allow_networks=loopback),
        retry=patiently,
    )
    app.destination(
        "warehouse",
        "order.*",
        transport=http(plan.warehouse, allow_networks=loopback),
        retry=patiently,
        breaker=Breaker(failures=5, open_for=pace.duration(2.5), successes=3),
        rate=Rate(per_second=_FRESH_PER_SECOND * plan.speed, burst=2),
        retry_rate=Rate(per_second=RETRIES_PER_SECOND * plan.speed, burst=2),
        replay_rate=Rate(per_second=REPLAYS_PER_SECOND * plan.speed, burst=1),
    )
    if plan.takings:
        declare_takings(app, plan.takings)
    return app


class _CardDeclinedError(Exception):
    """The shop's own error: it undoes the order and its event together."""


class Shop:
    """A shop whose orders are events; `wanted_by` is who it expects to get each.

    `at_risk` are the deliveries, by event and destination, that a killed worker had under way.
    """

    def __init__(self, plan: Plan, venue: Venue) -> None:
        self.app = make_app(plan)
        self.venue = venue
        self.wanted_by: dict[str, tuple[str, ...]] = {}
        self.at_risk: list[tuple[str, str]] = []
        self.orders = 0
        self.takings = 0

    async def furnish(self) -> None:
        """Create the shop's own table, beside the events."""
        await self.venue.furnish(self.app)

    async def sell(self, number: int, **details: object) -> bool:
        """Write an order and publish it in one transaction; a declined card undoes both.

        Tells whether it was sold.
        """
        total = 5 + number * 37 % 90
        order: dict[str, object] = {"number": number, "total": total, **details}
        if number % 8 == 0:
            order["voucher"] = f"GIFT-{number}"
        try:
            async with self.venue.sale(self.app, number, total) as tx:
                receipt = await self.app.publish(
                    "order.paid", order, key=f"order-{number}", within=tx
                )
                _charge_card(number)
        except _CardDeclinedError:
            return False
        self.orders += 1
        self.takings += total
        self._note(receipt)
        return True

    def _note(self, receipt: Receipt) -> None:
        self.wanted_by[receipt.event_id] = DESTINATIONS


def _charge_card(number: int) -> None:
    if number % 20 == 0:
        raise _CardDeclinedError
