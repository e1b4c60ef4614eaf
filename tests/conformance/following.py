"""Followers: what stands behind the head of a lane is applied in its transaction, or untouched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.errors import TransactionError
from redrive.model.delivery import DeliveryId, Leased, Status
from redrive.model.event import Event
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered
from redrive.store import AppliedLane, Ending, Followed
from tests.conformance.effects import Trace, prune_all
from tests.conformance.world import LEDGER, OPERATOR, World, an_event, entries, only

__all__ = ["FollowerConformance"]

_AT_MOST = timedelta(seconds=5)


class Lane:
    """The lane of one key at `ledger`, whose function fails for the deliveries in `poison`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.poison: set[DeliveryId] = set()
        self.most = 100
        self.ids: tuple[DeliveryId, ...] = ()
        self.tried: list[DeliveryId] = []

    async def begin(self, count: int, *events: Event[msgspec.Raw]) -> Leased:
        """Publish to the lane, and claim its head."""
        given = [an_event(key="42") for _ in range(count)]
        self.ids = await self.world.publish(*given, *events, to="ledger")
        return await self.world.claim_one("ledger")

    async def apply(self, head: Leased) -> AppliedLane:
        return await self.world.store.apply_lane(
            head, Trace(self.world), self.follow, at_most=_AT_MOST
        )

    async def follow(self, connection: Any, followers: Sequence[Leased]) -> Followed:  # noqa: ANN401 - whatever the store hands out
        for place, one in enumerate(followers):
            if place == self.most:
                return Followed(place)
            number = one.lease.delivery_id
            self.tried.append(number)
            await self._write(connection, number)
            if number in self.poison:
                return Followed(place, is_clean=False)
        return Followed(len(followers))

    async def _write(self, connection: object, number: DeliveryId) -> None:
        version = (await self.world.store.routes()).version
        await self.world.store.append(
            entries(an_event(type="trace.left", key=f"of-{number}"), to=[]),
            routes_version=version,
            all_or_nothing=True,
            within=connection,
        )

    async def written(self) -> list[DeliveryId]:
        """Return whose effects are durable, in their order."""
        await self.world.logged(1)
        page = await self.world.store.read_events(types=("trace.left",))
        keys = [one.event.key for one in page.events if one.event.key]
        return [DeliveryId(int(key.removeprefix("of-"))) for key in keys]

    async def statuses(self) -> list[Status]:
        return [(await self.world.show(one)).status for one in self.ids]


def _taken(lane: AppliedLane) -> list[DeliveryId]:
    return [one.lease.delivery_id for one in lane.followers]


def _has_effects(world: World) -> bool:
    return world.store.capabilities.effects_at_once > 0


class FollowerConformance:
    """`Effects.apply_lane`."""

    async def test_a_store_without_a_database_runs_no_lane(self, world: World) -> None:
        lane = Lane(world)
        head = await lane.begin(2)
        if _has_effects(world):
            return

        with pytest.raises(TransactionError):
            await lane.apply(head)

        assert lane.tried == []
        assert await lane.statuses() == [Status.IN_FLIGHT, Status.PENDING]

    async def test_what_stands_behind_goes_with_the_head(self, world: World) -> None:
        """In order, each with a try and an inbox record of its own, in one commit."""
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(4)

        applied = await lane.apply(head)

        assert (applied.ending, _taken(applied)) == (Ending.APPLIED, list(lane.ids[1:]))
        assert await lane.written() == list(lane.ids[1:])
        assert await lane.statuses() == [Status.DELIVERED] * 4
        shown = await world.show(lane.ids[2])
        assert (shown.attempts, shown.worker, shown.behind) == (1, None, None)
        assert [one.attempt for one in applied.followers] == [1, 1, 1]
        assert await world.settle(applied.followers[0], Delivered()) != []
        figures = await world.figures_of("ledger")
        assert (figures.pending, figures.in_flight, figures.delivered) == (0, 0, 4)

    async def test_one_that_fails_is_left_as_it_was_with_all_behind_it(self, world: World) -> None:
        """It comes as the next head, with all of its attempts."""
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(5)
        lane.poison = {lane.ids[3]}

        applied = await lane.apply(head)

        assert _taken(applied) == list(lane.ids[1:3])
        assert await lane.written() == list(lane.ids[1:3])
        assert await lane.statuses() == [Status.DELIVERED] * 3 + [Status.PENDING] * 2
        following = await world.claim_one("ledger")
        assert (following.lease.delivery_id, following.attempt) == (lane.ids[3], 1)
        figures = await world.figures_of("ledger")
        assert (figures.pending, figures.in_flight, figures.delivered) == (1, 1, 3)

    async def test_what_was_not_begun_waits_for_the_next_head(self, world: World) -> None:
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(4)
        lane.most = 1

        applied = await lane.apply(head)

        assert _taken(applied) == [lane.ids[1]]
        assert await world.run_all("ledger") == list(lane.ids[2:])

    async def test_a_head_that_fails_or_is_late_takes_nobody_along(self, world: World) -> None:
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(2)
        undone = await world.store.apply_lane(
            head, Trace(world, is_kept=False), lane.follow, at_most=_AT_MOST
        )
        tried_before = list(lane.tried)

        async def take_too_long(connection: object, followers: Sequence[Leased]) -> Followed:
            world.clock.advance("31s")
            return await lane.follow(connection, followers)

        refused = await world.store.apply_lane(head, Trace(world), take_too_long, at_most=_AT_MOST)

        assert (undone.ending, tried_before) == (Ending.UNDONE, [])
        assert (refused, lane.tried) == (AppliedLane(Ending.REFUSED), [lane.ids[1]])
        assert await lane.statuses() == [Status.IN_FLIGHT, Status.PENDING]
        assert (await world.show(lane.ids[1])).attempts == 0

    async def test_what_may_not_be_claimed_yet_ends_what_is_taken(self, world: World) -> None:
        """A delivery of another generation, in the middle of the lane."""
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(2, an_event(key="42", generation="green"), an_event(key="42"))

        applied = await lane.apply(head)

        assert _taken(applied) == [lane.ids[1]]

    async def test_what_was_applied_before_is_not_taken_along(self, world: World) -> None:
        """It comes as a head, and its story says so; what it did is not done twice."""
        if not _has_effects(world):
            return
        lane = Lane(world)
        key = {"key": "42", "source": "shop", "idempotency_key": "order-42"}
        await world.publish(an_event(**key), to="ledger")
        assert (await lane.apply(await world.claim_one("ledger"))).ending is Ending.APPLIED
        assert (await prune_all(world, after=timedelta(days=5))).keys == 1
        head = await lane.begin(2, an_event(**key), an_event(key="42"))

        applied = await lane.apply(head)
        repeated = await lane.apply(await world.claim_one("ledger"))

        assert (applied.ending, _taken(applied)) == (Ending.APPLIED, [lane.ids[1]])
        assert (repeated.ending, _taken(repeated)) == (Ending.REPEATED, [lane.ids[3]])
        assert await lane.written() == [lane.ids[1], lane.ids[3]]

    async def test_a_gate_that_counts_lets_only_the_head_through(self, world: World) -> None:
        if not _has_effects(world):
            return
        limits = Limits(rate=Rate(per_second=1.0, burst=5.0))
        await world.declare(msgspec.structs.replace(LEDGER, limits=limits))
        lane = Lane(world)
        head = await lane.begin(2)

        assert await lane.apply(head) == AppliedLane(Ending.APPLIED)

    async def test_a_pause_lets_no_more_of_a_lane_through(self, world: World) -> None:
        if not _has_effects(world):
            return
        lane = Lane(world)
        head = await lane.begin(2)
        await world.store.pause("ledger", actor=OPERATOR)

        applied = await lane.apply(head)

        assert (applied, lane.tried) == (AppliedLane(Ending.APPLIED), [])
        assert only([await world.show(lane.ids[1])]).status is Status.PENDING
