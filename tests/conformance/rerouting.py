"""What a store promises about destinations that go, and what becomes of their deliveries."""

from __future__ import annotations

import msgspec
import pytest

from redrive.errors import NotFoundError
from redrive.model.delivery import Status
from redrive.model.destination import Destination, Order
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, Requeued
from redrive.store import Moved, Rescue, RoutesChanged
from tests.conformance.letters import edit
from tests.conformance.world import (
    OPERATOR,
    World,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["MoveConformance", "RemovalConformance"]

_SECOND_LEDGER = Destination(name="ledger-2", patterns=("order.*",), order=Order.PARK)
_SKIPPER = Destination(name="skipper", patterns=("order.*",), order=Order.SKIP)


class RemovalConformance:
    """`Rerouting.unregister`, `Rerouting.waiting_for` and `Rerouting.drop`."""

    async def test_nothing_is_routed_to_what_was_removed(self, world: World) -> None:
        version = await world.version()

        is_new = await world.store.unregister("billing", actor=OPERATOR)

        routes = await world.store.routes()
        assert is_new
        assert routes.version > version
        assert routes.destinations_for("order.paid", None) == ("ledger", "mailing")
        refused = await world.store.append(
            entries(an_event()), routes_version=version, all_or_nothing=False
        )
        assert isinstance(refused, RoutesChanged)

    async def test_what_was_removed_keeps_its_deliveries(self, world: World) -> None:
        [waiting] = await world.publish(an_event())

        await world.store.unregister("billing", actor=OPERATOR)

        figures = await world.figures_of("billing")
        assert (figures.pending, figures.is_removed) == (1, True)
        assert (await world.show(waiting)).destination == "billing"
        assert "billing" in [one.destination for one in await world.store.gates()]

    async def test_what_was_removed_and_has_nothing_is_not_listed(self, world: World) -> None:
        await world.version()

        await world.store.unregister("billing", actor=OPERATOR)

        names = [one.name for one in (await world.store.figures()).destinations]
        gates = [one.destination for one in await world.store.gates()]
        some = [one.destination for one in await world.store.gates(["billing", "ledger"])]
        assert names == gates == ["ledger", "mailing"]
        assert some == ["ledger"]

    async def test_what_was_removed_and_has_only_history_has_no_gate(self, world: World) -> None:
        """The figures tell of what has arrived; there is nothing left to hold."""
        await world.publish(an_event())
        await world.run_all("billing")

        await world.store.unregister("billing", actor=OPERATOR)

        gates = [one.destination for one in await world.store.gates()]
        assert "billing" not in gates
        assert (await world.figures_of("billing")).delivered == 1

    async def test_what_was_removed_keeps_its_gate_for_a_dead_letter(self, world: World) -> None:
        [waiting] = await world.publish(an_event())
        await world.cancel([waiting])

        await world.store.unregister("billing", actor=OPERATOR)

        assert "billing" in [one.destination for one in await world.store.gates()]

    async def test_a_removal_is_on_record_once(self, world: World) -> None:
        await world.version()
        await world.store.unregister("billing", actor=OPERATOR)

        again = await world.store.unregister("billing", actor=OPERATOR)

        entry = only(await world.store.audit())
        assert not again
        assert (entry.action, entry.detail, entry.count) == ("remove", "billing", 1)

    async def test_a_removal_is_taken_back_by_who_says_so(self, world: World) -> None:
        await world.version()
        await world.store.unregister("billing", actor=OPERATOR)
        version = (await world.store.routes()).version

        is_new = await world.store.reregister("billing", actor=OPERATOR)
        again = await world.store.reregister("billing", actor=OPERATOR)

        routes = await world.store.routes()
        assert (is_new, again) == (True, False)
        assert routes.version == version + 1
        assert "billing" in routes.destinations_for("order.paid", None)
        assert not (await world.figures_of("billing")).is_removed
        entry = (await world.store.audit())[0]
        assert (entry.action, entry.detail, entry.count) == ("restore", "billing", 1)

    async def test_an_unknown_destination_is_named(self, world: World) -> None:
        await world.version()
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.unregister("biling", actor=OPERATOR)
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.reregister("biling", actor=OPERATOR)
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.waiting_for("biling")
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.move([], target="biling", actor=OPERATOR)
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.backfill("biling", [], actor=OPERATOR)
        with pytest.raises(NotFoundError, match="billing"):
            await world.store.read_log("biling")

    async def test_what_waits_for_a_destination_is_found_in_order(self, world: World) -> None:
        dead = await world.dead_letter()
        ids = await world.publish(*[an_event() for _ in range(3)])
        await world.publish(an_event(), to="mailing")

        waiting = await world.store.waiting_for("billing")
        both = await world.store.waiting_for("billing", with_dead_letters=True)
        rest = await world.store.waiting_for("billing", after=ids[0], limit=1)

        assert list(waiting) == list(ids)
        assert list(both) == [dead, *ids]
        assert list(rest) == [ids[1]]

    async def test_dropped_deliveries_are_gone_counted_and_on_record(self, world: World) -> None:
        dead = await world.dead_letter()
        first, second = await world.publish(an_event(), an_event())

        dropped = await world.store.drop([dead, first, first], actor=OPERATOR)

        assert list(dropped) == [first]
        assert await world.store.find_delivery(first) is None
        assert ids_of(await world.claim()) == [second]
        assert (await world.store.figures()).deleted == 1
        entry = only(await world.store.audit())
        assert (entry.action, entry.count, entry.deliveries) == ("drop", 1, (first,))

    async def test_a_dropped_head_frees_its_lane(self, world: World) -> None:
        first, second = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")

        await world.store.drop([first], actor=OPERATOR)

        assert ids_of(await world.claim("ledger")) == [second]

    async def test_the_event_of_a_dropped_delivery_goes_in_the_end(self, world: World) -> None:
        ids = await world.publish(an_event())
        await world.store.drop(ids, actor=OPERATOR)

        world.clock.advance("30d")

        assert (await world.store.prune(Retention())).events == 1


class MoveConformance:
    """`Rerouting.move`."""

    async def test_moved_deliveries_run_at_their_new_destination(self, world: World) -> None:
        event = an_event({"n": 1}, key="k", tenant="t", idempotency_key="i")
        [moving] = await world.publish(event)

        moved = await world.store.move([moving], target="mailing", actor=OPERATOR)

        assert moved == Moved(moved=(moving,))
        assert (await world.claim("billing")).deliveries == ()
        leased = await world.claim_one("mailing")
        assert (leased.lease.delivery_id, leased.event) == (moving, event)
        assert (leased.destination, leased.attempt) == ("mailing", 1)

    async def test_moves_are_on_record(self, world: World) -> None:
        ids = await world.publish(an_event(), an_event())

        await world.store.move(ids, target="mailing", actor=OPERATOR)

        entry = only(await world.store.audit())
        assert (entry.action, entry.detail) == ("move", "mailing")
        assert (entry.count, entry.deliveries) == (2, ids)

    async def test_dead_letters_are_moved_as_they_are(self, world: World) -> None:
        dead = await world.dead_letter()
        before = await world.show(dead)

        await world.store.move([dead], target="mailing", actor=OPERATOR)

        after = await world.show(dead)
        assert after == msgspec.structs.replace(before, destination="mailing")
        assert (await world.figures_of("mailing")).failed == 1

    async def test_what_is_settled_or_runs_is_not_moved(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(3)])
        delivered, failed, _running = (await world.claim()).deliveries
        await world.settle(delivered, Delivered())
        await world.fail(failed)
        await world.store.resolve([failed.lease.delivery_id], actor=OPERATOR)
        audit = await world.store.audit()

        moved = await world.store.move(ids, target="mailing", actor=OPERATOR)

        assert moved == Moved()
        assert (await world.figures_of("mailing")).pending == 0
        assert await world.store.audit() == audit

    async def test_an_event_that_was_given_there_already_is_skipped(self, world: World) -> None:
        event, other = an_event(), an_event()
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.append(entries(other, to=["billing"]))
        ids = await world.store.waiting_for("billing")

        moved = await world.store.move(ids, target="mailing", actor=OPERATOR)

        assert (len(moved.moved), moved.skipped) == (1, 1)
        assert (await world.figures_of("mailing")).pending == 2
        assert (await world.find_one(event, "billing")).status is Status.PENDING

    async def test_of_two_deliveries_of_an_event_one_is_moved(self, world: World) -> None:
        """A destination never gets an event twice, whoever hands it over."""
        await world.append(entries(an_event(), to=["billing", "ledger"]))
        [one] = await world.store.waiting_for("billing")
        [other] = await world.store.waiting_for("ledger")

        moved = await world.store.move([one, other], target="mailing", actor=OPERATOR)

        assert (len(moved.moved), moved.skipped) == (1, 1)
        assert (await world.figures_of("mailing")).pending == 1

    async def test_what_arrived_there_and_was_pruned_is_skipped_too(self, world: World) -> None:
        await world.append(entries(an_event(), to=["billing", "mailing"]))
        await world.settle(await world.claim_one("mailing"), Delivered())
        world.clock.advance("2d")
        await world.store.prune(Retention())
        ids = await world.store.waiting_for("billing")

        moved = await world.store.move(ids, target="mailing", actor=OPERATOR)

        assert (moved.moved, moved.skipped) == ((), 1)

    async def test_a_move_can_be_taken_back(self, world: World) -> None:
        ids = await world.publish(an_event())
        await world.store.move(ids, target="mailing", actor=OPERATOR)

        moved = await world.store.move(ids, target="billing", actor=OPERATOR)

        assert moved.moved == ids
        assert ids_of(await world.claim("billing")) == list(ids)

    async def test_moved_deliveries_keep_publish_order_among_those_already_there(
        self, world: World
    ) -> None:
        await world.store.register([_SECOND_LEDGER])
        old = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
        new = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger-2")

        await world.store.move(old, target="ledger-2", actor=OPERATOR)

        heads = ids_of(await world.claim("ledger-2", lease="1s"))
        assert heads == [old[0]]
        world.clock.advance("1s")
        await _take_back(world)
        assert await world.run_all("ledger-2") == [*old, *new]

    async def test_moved_deliveries_wait_behind_what_was_published_before_them(
        self, world: World
    ) -> None:
        await world.store.register([_SECOND_LEDGER])
        before = await world.publish(an_event(key="k"), to="ledger-2")
        moving = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")

        await world.store.move(moving, target="ledger-2", actor=OPERATOR)

        assert (await world.figures_of("ledger-2")).behind == 2
        assert await world.run_all("ledger-2") == [*before, *moving]

    async def test_a_move_frees_the_lanes_it_leaves(self, world: World) -> None:
        await world.store.register([_SECOND_LEDGER])
        first, second = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")

        await world.store.move([first], target="ledger-2", actor=OPERATOR)

        assert ids_of(await world.claim("ledger", "ledger-2")) == [second, first]

    async def test_from_an_ordered_destination_to_one_without_order(self, world: World) -> None:
        ids = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")

        await world.store.move(ids, target="mailing", actor=OPERATOR)

        assert ids_of(await world.claim("mailing")) == list(ids)

    async def test_from_a_destination_without_order_to_an_ordered_one(self, world: World) -> None:
        ids = await world.publish(an_event(key="k"), an_event(key="k"), an_event(), to="mailing")

        await world.store.move(ids, target="ledger", actor=OPERATOR)

        assert ids_of(await world.claim("ledger", lease="1s")) == [ids[0], ids[2]]
        assert (await world.figures_of("ledger")).behind == 1

    async def test_a_moved_dead_letter_parks_its_key(self, world: World) -> None:
        await world.store.register([_SECOND_LEDGER])
        dead = await world.dead_letter(an_event(key="k"), to="ledger")
        [after] = await world.publish(an_event(key="k"), to="ledger-2")

        await world.store.move([dead], target="ledger-2", actor=OPERATOR)

        assert (await world.claim("ledger-2")).deliveries == ()
        assert (await world.show(after)).behind == dead
        await world.store.resolve([dead], actor=OPERATOR)
        assert ids_of(await world.claim("ledger-2")) == [after]

    async def test_a_moved_dead_letter_is_passed_by_where_order_skips(self, world: World) -> None:
        await world.store.register([_SKIPPER])
        dead = await world.dead_letter(an_event(key="k"), to="ledger")
        [after] = await world.publish(an_event(key="k"), to="skipper")

        await world.store.move([dead], target="skipper", actor=OPERATOR)

        assert ids_of(await world.claim("skipper")) == [after]

    async def test_nothing_is_moved_in_front_of_what_is_in_flight(self, world: World) -> None:
        await world.store.register([_SECOND_LEDGER])
        old = await world.publish(an_event(key="k"), an_event(key="other"), to="ledger")
        await world.publish(an_event(key="k"), to="ledger-2")
        running = await world.claim_one("ledger-2")

        busy = await world.store.move(old, target="ledger-2", actor=OPERATOR)
        beside = ids_of(await world.claim("ledger-2"))
        await world.settle(running, Delivered())
        done = await world.store.move(old, target="ledger-2", actor=OPERATOR)

        assert busy == Moved(moved=(old[1],), busy=1)
        assert beside == [old[1]]
        assert done.moved == (old[0],)

    async def test_nothing_is_moved_beside_what_runs_behind_a_letter_that_was_sent_again(
        self, world: World
    ) -> None:
        await world.store.register([_SKIPPER])
        old = await world.publish(an_event(key="k"), to="ledger")
        passed_by = await world.dead_letter(an_event(key="k"), to="skipper")
        await world.publish(an_event(key="k"), to="skipper")
        await world.claim_one("skipper")
        await world.store.replay([passed_by], actor=OPERATOR)

        moved = await world.store.move(old, target="skipper", actor=OPERATOR)

        assert moved == Moved(busy=1)
        assert ids_of(await world.claim("skipper")) == []

    async def test_a_moved_letter_carries_what_it_was_edited_to(self, world: World) -> None:
        edited = await world.dead_letter(an_event({}))
        await edit(world, edited, b'{"total":1}', before=b"{}")

        await world.store.move([edited], target="mailing", actor=OPERATOR)
        await world.store.replay([edited], actor=OPERATOR)

        assert bytes((await world.claim_one("mailing")).event.payload) == b'{"total":1}'

    async def test_a_receipt_names_where_an_event_was_moved_to(self, world: World) -> None:
        event = an_event(idempotency_key="i")
        ids = await world.publish(event)
        await world.store.move(ids, target="mailing", actor=OPERATOR)

        appended = await world.append(entries(event))

        assert [one.destinations for one in appended.results if hasattr(one, "destinations")] == [
            ("mailing",)
        ]

    async def test_who_waits_for_work_hears_of_a_move(self, world: World) -> None:
        ids = await world.publish(an_event())

        assert await world.wakes(lambda: world.store.move(ids, target="mailing", actor=OPERATOR))


async def _take_back(world: World) -> None:
    """Make pending what a worker has lost."""
    overdue = await world.store.overdue()
    requeued = [Rescue(one.lease, Requeued(when=world.now, crashes=0)) for one in overdue]
    await world.store.rescue(requeued)
