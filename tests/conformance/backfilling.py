"""What a store promises about destinations that come late."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from redrive.model.delivery import DeliveryId, Kind, Status
from redrive.model.destination import Destination, Order
from redrive.model.limits import Limits, Rate
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Backfilled, LogSlice
from tests.conformance.world import (
    BILLING,
    OPERATOR,
    World,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["BackfillConformance"]

_LATE = Destination(name="late", patterns=("order.*",))
_LATE_LEDGER = Destination(name="late-ledger", patterns=("order.*",), order=Order.PARK)


class BackfillConformance:
    """`Rerouting.read_log` and `Rerouting.backfill`."""

    async def test_missing_events_get_a_delivery_once(self, world: World) -> None:
        events = [an_event({"n": number}) for number in range(3)]
        await world.append(entries(*events[:2]))
        await world.append(entries(events[2], to=[]))
        await world.store.register([_LATE])

        found = await world.store.read_log("late")
        positions = [position for position, _ in found.missing]
        first = await world.store.backfill("late", positions, actor=OPERATOR)
        second = await world.store.backfill("late", positions, actor=OPERATOR)

        assert found == LogSlice(missing=((1, None), (2, None), (3, None)), last=3)
        assert (first, second) == (Backfilled(added=3), Backfilled())
        assert (await world.store.read_log("late")).missing == ()
        claimed = (await world.claim("late")).deliveries
        assert [one.event for one in claimed] == events

    async def test_the_log_is_read_for_one_destination(self, world: World) -> None:
        await world.append(entries(an_event(key="a"), to=["billing", "ledger"]))
        await world.append(entries(an_event(type="mail.sent", key="b"), to=["mailing"]))
        await world.append(entries(an_event(key="c"), to=["mailing"]))

        found = await world.store.read_log("billing")
        rest = await world.store.read_log("billing", after=1, limit=1)

        assert found == LogSlice(missing=((3, "c"),), given=((1, "a"),), last=3)
        assert rest == LogSlice(last=2)
        assert await world.store.read_log("billing", after=3) == LogSlice()

    async def test_a_destination_of_a_tenant_misses_only_its_events(self, world: World) -> None:
        await world.append(entries(*[an_event(tenant=one) for one in ("acme", None, "zoe")], to=[]))
        await world.store.register([msgspec.structs.replace(_LATE, tenant="ac*")])

        found = await world.store.read_log("late")

        assert [position for position, _ in found.missing] == [1]

    async def test_the_log_is_narrowed_by_time_and_type(self, world: World) -> None:
        times = [world.after("1h"), world.after("2h"), world.after("3h")]
        await world.append(entries(*[an_event(published_at=one) for one in times], to=[]))
        await world.append(entries(an_event(type="order.sent", published_at=times[1]), to=[]))

        async def positions(**narrowed: object) -> list[int]:
            found = await world.store.read_log("billing", **narrowed)  # type: ignore[arg-type]
            return [position for position, _ in found.missing]

        assert await positions() == [1, 2, 3, 4]
        assert await positions(since=times[1]) == [2, 3, 4]
        assert await positions(until=times[1]) == [1]
        assert await positions(event_type="order.s*") == [4]

    async def test_events_past_their_deadline_are_not_missing(self, world: World) -> None:
        await world.append(entries(an_event(deadline=world.after("1h")), to=[]))
        await world.append(entries(an_event(deadline=world.after("3h")), to=[]))
        world.clock.advance("2h")

        assert (await world.store.read_log("billing")).missing == ((2, None),)

    async def test_what_arrived_and_was_pruned_is_not_missing(self, world: World) -> None:
        await world.publish(an_event())
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance("2d")
        await world.store.prune(Retention())

        found = await world.store.read_log("billing")

        assert (found.missing, found.given) == ((), ((1, None),))
        assert await world.store.backfill("billing", [1], actor=OPERATOR) == Backfilled()

    async def test_what_a_person_deleted_is_not_missing(self, world: World) -> None:
        await world.store.delete([await world.dead_letter()], actor=OPERATOR)

        assert (await world.store.read_log("billing")).missing == ()

    async def test_an_event_somebody_wants_now_is_no_longer_unrouted(self, world: World) -> None:
        await world.append(entries(an_event(), an_event(), to=[]))

        await world.store.backfill("billing", [1], actor=OPERATOR)

        assert (await world.store.figures()).unrouted == 1
        await world.store.backfill("mailing", [1, 2], actor=OPERATOR)
        assert (await world.store.figures()).unrouted == 0

    async def test_a_backfilled_event_is_not_pruned_while_it_waits(self, world: World) -> None:
        await world.append(entries(an_event(), to=[]))
        world.clock.advance("29d")
        await world.store.backfill("billing", [1], actor=OPERATOR)
        world.clock.advance("100d")

        await world.store.prune(Retention())
        leased = await world.claim_one()
        await world.settle(leased, Delivered())
        world.clock.advance("30d")
        pruned = await world.store.prune(Retention())

        assert (pruned.delivered, pruned.events) == (1, 1)

    async def test_backfilled_deliveries_go_after_live_ones_as_replays(self, world: World) -> None:
        await world.append(entries(an_event(priority=100), to=[]))
        await world.store.backfill("billing", [1], actor=OPERATOR)
        [live] = await world.publish(an_event(priority=-99))

        claimed = (await world.claim()).deliveries

        assert [one.lease.delivery_id for one in claimed] == [live, live - 1]
        assert claimed[1].kind is Kind.REPLAY

    async def test_a_backfill_counts_against_the_limit_of_replays(self, world: World) -> None:
        await world.append(entries(*[an_event() for _ in range(3)], to=[]))
        await world.store.backfill("billing", [1, 2, 3], actor=OPERATOR)
        limits = Limits(replay_rate=Rate(per_second=1.0, burst=1.0))
        await world.declare(msgspec.structs.replace(BILLING, limits=limits))

        assert len((await world.claim()).deliveries) == 1

    async def test_a_backfilled_delivery_waits_for_its_due_time(self, world: World) -> None:
        await world.append(entries(an_event(due=world.after("1h")), to=[]))
        await world.append(entries(an_event(due=world.after("1s")), to=[]))
        world.clock.advance("1m")

        await world.store.backfill("billing", [1, 2], actor=OPERATOR)

        assert [one.due for one in await world.found(status=Status.PENDING)] == [
            world.now,
            world.after("59m"),
        ]
        assert len((await world.claim()).deliveries) == 1

    async def test_a_backfill_may_name_a_generation(self, world: World) -> None:
        await world.append(entries(an_event(generation="old"), to=[]))
        await world.append(entries(an_event(generation="old"), to=[]))
        await world.store.backfill("billing", [1], actor=OPERATOR)
        await world.store.backfill("billing", [2], actor=OPERATOR, generation="new")

        claimed = await world.claim(generations=["new"])

        assert len(claimed.deliveries) == 1
        assert len((await world.claim(generations=["old"])).deliveries) == 1

    async def test_a_backfill_is_on_record(self, world: World) -> None:
        await world.append(entries(an_event(), an_event(), to=[]))

        await world.store.backfill("billing", [1, 2], actor=OPERATOR)

        entry = only(await world.store.audit())
        assert (entry.action, entry.detail, entry.count) == ("backfill", "billing", 2)

    async def test_an_ordered_destination_is_backfilled_in_publish_order(
        self, world: World
    ) -> None:
        await world.append(entries(*[an_event(key="k") for _ in range(3)]))
        await world.store.register([_LATE_LEDGER])

        await world.store.backfill("late-ledger", [3, 1, 2], actor=OPERATOR)
        [live] = await world.publish(an_event(key="k"), to="late-ledger")

        order = await world.run_all("late-ledger")
        assert order[-1] == live
        assert await _positions(world, order) == [1, 2, 3, 4]

    async def test_what_was_overtaken_at_an_ordered_destination_is_left_out(
        self, world: World
    ) -> None:
        await world.append(entries(an_event(key="k"), an_event(key="other"), an_event()))
        await world.store.register([_LATE_LEDGER])
        [live] = await world.publish(an_event(key="k"), to="late-ledger")

        filled = await world.store.backfill("late-ledger", [1, 2, 3], actor=OPERATOR)

        assert filled == Backfilled(added=2, overtaken=1)
        assert live in ids_of(await world.claim("late-ledger"))

    @pytest.mark.parametrize("order", [Order.PARK, Order.SKIP])
    async def test_a_dead_letter_overtakes_as_well(self, world: World, order: Order) -> None:
        """Sent again, it would go before an earlier event that was added behind it."""
        await world.append(entries(an_event(key="k"), an_event(key="other")))
        await world.store.register([msgspec.structs.replace(_LATE_LEDGER, order=order)])
        await world.dead_letter(an_event(key="k"), to="late-ledger")

        filled = await world.store.backfill("late-ledger", [1, 2], actor=OPERATOR)

        assert filled == Backfilled(added=1, overtaken=1)

    async def test_the_log_tells_whether_a_destination_keeps_order(self, world: World) -> None:
        await world.store.register([BILLING, _LATE_LEDGER])
        await world.store.unregister("late-ledger", actor=OPERATOR)

        assert (await world.store.read_log("late-ledger")).is_ordered
        assert not (await world.store.read_log("billing")).is_ordered

    async def test_who_waits_for_work_hears_of_a_backfill(self, world: World) -> None:
        await world.append(entries(an_event(), to=[]))

        assert await world.wakes(lambda: world.store.backfill("billing", [1], actor=OPERATOR))


async def _positions(world: World, ids: Sequence[DeliveryId]) -> list[int]:
    logged = {one.event.id: one.position.number for one in await world.logged(len(ids))}
    return [logged[(await world.show(one)).event_id] for one in ids]
