"""The final count, by id, from three books: the shop's, its services', and the store's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from redrive.app.redrive import Redrive
from redrive.demo.service import Service
from redrive.demo.shop import Shop
from redrive.model.delivery import Delivery, Status
from redrive.operations import Operations
from redrive.store import Query

__all__ = ["Count", "count_deliveries", "count_up"]

_EXAMPLES = 3
_Pair = tuple[str, str]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """What the three books say; a delivery is a pair of an event id and a destination.

    `lost` are those the shop expects of which no service saw the effect and that do not wait in
    the store either. `repeated` are effects beyond the first of a delivery, which at-least-once
    allows where an answer may have been lost; `unexcused` are those of which nobody knows that.
    `misshapen` arrived in another shape than was asked for. Orders are those in a shop's own table.
    `takings` are what it was paid, and `takings_read` what its read model makes of the log.
    """

    published: int
    stored: int
    expected: int
    effects: int
    repeated: int
    delivered: int
    failed: int
    pending: int
    orders_paid: int = 0
    orders_written: int = 0
    takings: int = 0
    takings_read: int = 0
    unaccounted: tuple[_Pair, ...] = ()
    lost: tuple[_Pair, ...] = ()
    unexpected: tuple[_Pair, ...] = ()
    unexcused: tuple[_Pair, ...] = ()
    misshapen: tuple[_Pair, ...] = ()

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """What is counted, and what the shop's, the services' and the store's books say."""
        sold = ("orders sold", f"{self.orders_paid}", "", f"{self.orders_written}")
        taken = ("takings", f"{self.takings}", "", f"{self.takings_read}")
        return [
            ("events published", f"{self.published}", "", f"{self.stored}"),
            *([sold] if self.orders_paid or self.orders_written else []),
            *([taken] if self.takings or self.takings_read else []),
            ("deliveries", f"{self.expected}", f"{self.effects}", f"{self.delivered}"),
            ("received again", "", f"{self.repeated}", ""),
            ("failed", "", "", f"{self.failed}"),
            ("still pending", "", "", f"{self.pending}"),
        ]

    @property
    def adds_up(self) -> bool:
        """Whether the books agree and everything arrived."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """What does not add up, in sentences."""
        found = []
        if self.lost:
            found.append(f"{len(self.lost)} lost: {_examples(self.lost)}.")
        if self.published != self.stored:
            found.append(
                f"The shop got receipts for {self.published} events, "
                f"and the store holds {self.stored}."
            )
        found += self._shop_problems
        if self.unaccounted:
            found.append(
                f"{len(self.unaccounted)} of the expected deliveries are not in the store: "
                f"{_examples(self.unaccounted)}."
            )
        if self.unexpected:
            found.append(
                f"{len(self.unexpected)} deliveries that nobody expects: "
                f"{_examples(self.unexpected)}."
            )
        if self.unexcused:
            found.append(
                f"{len(self.unexcused)} deliveries took effect more than once, and no answer was "
                f"lost: {_examples(self.unexcused)}."
            )
        if self.misshapen:
            found.append(
                f"{len(self.misshapen)} deliveries arrived in the wrong shape: "
                f"{_examples(self.misshapen)}."
            )
        if self.failed or self.pending:
            found.append(
                f"{self.failed} deliveries have failed and {self.pending} are still pending; "
                "at the end of the story everything should have arrived."
            )
        if not found and not self.expected == self.delivered == self.effects:
            found.append(
                f"Of {self.expected} deliveries the store says {self.delivered} are delivered, "
                f"and the services saw {self.effects}."
            )
        return found

    @property
    def _shop_problems(self) -> list[str]:
        found = []
        if self.orders_paid != self.orders_written:
            found.append(
                f"The shop sold {self.orders_paid} orders, "
                f"and its table holds {self.orders_written}."
            )
        if self.takings != self.takings_read:
            found.append(
                f"The shop took {self.takings}, and its read model says {self.takings_read}."
            )
        return found


async def count_up(shop: Shop, services: Mapping[str, Service]) -> Count:
    """Count with the workers stopped, the shop's table too."""
    place = shop.app.settings.store
    count = await count_deliveries(place, shop.wanted_by, services, at_risk=shop.at_risk)
    async with Redrive(place) as app:
        orders_written = await shop.venue.orders_written(app)
        takings_read = await shop.venue.takings_read(app)
    return msgspec.structs.replace(
        count,
        orders_paid=shop.orders,
        orders_written=orders_written,
        takings=shop.takings,
        takings_read=takings_read,
    )


async def count_deliveries(
    place: str,
    wanted_by: Mapping[str, tuple[str, ...]],
    services: Mapping[str, Service],
    *,
    at_risk: Collection[_Pair] = (),
) -> Count:
    """Count by a store that is opened anew, as any other process would."""
    expected = {(event, name) for event, names in wanted_by.items() for name in names}
    effects = {
        (event, name): times
        for name, one in services.items()
        for event, times in one.effects.items()
    }
    async with Redrive(place) as app:
        stored: dict[_Pair, Delivery] = {}
        for each in Status:
            for one in await _find_deliveries(app.operations, Query(status=each)):
                stored[one.event_id, one.destination] = one
        figures = await app.operations.status()
    states = [one.status for one in stored.values()]
    waits = {pair for pair, one in stored.items() if one.status is not Status.DELIVERED}
    repeated = {pair for pair, times in effects.items() if times > 1}
    excused = {pair for pair, one in stored.items() if _may_have_lost_a_try(one)}
    excused |= set(at_risk)
    return Count(
        published=len(wanted_by),
        stored=figures.events,
        expected=len(expected),
        effects=len(effects),
        repeated=sum(effects.values()) - len(effects),
        delivered=states.count(Status.DELIVERED),
        failed=states.count(Status.FAILED),
        pending=states.count(Status.PENDING) + states.count(Status.IN_FLIGHT),
        unaccounted=_sorted(expected - stored.keys()),
        lost=_sorted(expected - effects.keys() - waits),
        unexpected=_sorted((effects.keys() | stored.keys()) - expected),
        unexcused=_sorted(repeated - excused),
    )


def _may_have_lost_a_try(delivery: Delivery) -> bool:
    """Tell whether the answer to one of its tries may not have come back."""
    tries = [delivery.attempts, *(cycle.attempts for cycle in delivery.cycles)]
    return delivery.crashes > 0 or max(tries) > 1


async def _find_deliveries(operations: Operations, query: Query) -> list[Delivery]:
    found: list[Delivery] = []
    cursor: str | None = None
    while True:
        page = await operations.deliveries(query, cursor=cursor, limit=1_000)
        found += page.deliveries
        cursor = page.next_cursor
        if cursor is None:
            return found


def _sorted(pairs: Iterable[_Pair]) -> tuple[_Pair, ...]:
    return tuple(sorted(pairs))


def _examples(pairs: tuple[_Pair, ...]) -> str:
    shown = ", ".join(f"{event} to {name}" for event, name in pairs[:_EXAMPLES])
    return shown if len(pairs) <= _EXAMPLES else f"{shown} and others"
