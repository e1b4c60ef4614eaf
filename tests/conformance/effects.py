"""Effects of handlers: committed together with their delivery, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.errors import TransactionError
from redrive.model.delivery import Leased, Status
from redrive.model.event import Event
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import ALREADY_APPLIED, Appended, Effect, Ending, Pruned, Query
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["EffectConformance", "InboxConformance", "Trace", "prune_all"]

_AT_MOST = timedelta(seconds=5)
_SHORT = Retention(
    delivered=timedelta(days=1),
    events=timedelta(days=2),
    idempotency=timedelta(days=3),
    inbox=timedelta(days=10),
)


class Counted:
    """An effect that does nothing but count how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, connection: object) -> bool:
        self.runs += 1
        return True


class Trace:
    """An effect that can be seen: it publishes an event within the transaction."""

    def __init__(self, world: World, *, is_kept: bool = True) -> None:
        self.runs = 0
        self._world = world
        self._is_kept = is_kept
        self._event = an_event(type="trace.left")

    async def __call__(self, connection: Any) -> bool:  # noqa: ANN401 - whatever the store hands out
        self.runs += 1
        version = (await self._world.store.routes()).version
        stored = await self._world.store.append(
            entries(self._event, to=[]),
            routes_version=version,
            all_or_nothing=True,
            within=connection,
        )
        assert isinstance(stored, Appended)
        return self._is_kept

    async def is_left(self) -> bool:
        """Tell whether it is durable."""
        return await self._world.store.find_event(self._event.id) is not None


def _has_effects(world: World) -> bool:
    return world.store.capabilities.effects_at_once > 0


async def _apply(world: World, leased: Leased, effect: Effect) -> Ending:
    return await world.store.apply(leased, effect, at_most=_AT_MOST)


async def _publish_and_apply(world: World, event: Event[msgspec.Raw]) -> Counted:
    trace = Counted()
    await world.publish(event)
    assert await _apply(world, await world.claim_one(), trace) is Ending.APPLIED
    return trace


async def prune_all(world: World, *, after: timedelta) -> Pruned:
    """Let time pass, and prune until nothing more goes."""
    world.clock.advance(after)
    rounds: list[Pruned] = []
    while (pruned := await world.store.prune(_SHORT)).most:
        rounds.append(pruned)
    return _sum(rounds)


def _sum(rounds: Sequence[Pruned]) -> Pruned:
    names = Pruned.__struct_fields__
    return Pruned(**{name: sum(getattr(one, name) for one in rounds) for name in names})


class EffectConformance:
    """What an effect and its delivery have in common."""

    async def test_a_store_without_a_database_refuses_effects(self, world: World) -> None:
        """It must not run what it cannot commit with the delivery."""
        [delivery_id] = await world.publish(an_event())
        leased, trace = await world.claim_one(), Trace(world)
        if _has_effects(world):
            return

        with pytest.raises(TransactionError):
            await _apply(world, leased, trace)

        assert trace.runs == 0
        assert (await world.show(delivery_id)).status is Status.IN_FLIGHT

    async def test_an_effect_and_its_delivery_are_kept_together(self, world: World) -> None:
        """One commit for both."""
        if not _has_effects(world):
            return
        [delivery_id] = await world.publish(an_event())
        leased, trace = await world.claim_one(), Trace(world)

        ending = await _apply(world, leased, trace)

        assert (ending, trace.runs) == (Ending.APPLIED, 1)
        assert await trace.is_left()
        assert (await world.show(delivery_id)).status is Status.DELIVERED
        assert await world.settle(leased, Delivered()) == [leased.lease]
        beat = await world.store.heartbeat("worker-1", [leased.lease], lease=_AT_MOST)
        assert list(beat) == [leased.lease]
        assert (await world.figures_of()).delivered == 1

    async def test_an_effect_that_asks_for_it_leaves_nothing(self, world: World) -> None:
        """The delivery is still leased, and is settled in the ordinary way."""
        if not _has_effects(world):
            return
        [delivery_id] = await world.publish(an_event())
        leased, trace = await world.claim_one(), Trace(world, is_kept=False)

        ending = await _apply(world, leased, trace)

        assert (ending, trace.runs) == (Ending.UNDONE, 1)
        assert not await trace.is_left()
        assert (await world.show(delivery_id)).status is Status.IN_FLIGHT
        assert await world.retry(leased, "0s") == []
        assert await _apply(world, await world.claim_one(), Trace(world)) is Ending.APPLIED

    async def test_an_effect_that_raises_leaves_nothing(self, world: World) -> None:
        """What it raised passes."""
        if not _has_effects(world):
            return
        [delivery_id] = await world.publish(an_event())
        leased, trace = await world.claim_one(), Trace(world)

        async def stumble(connection: object) -> bool:
            await trace(connection)
            raise LookupError("no such account")

        with pytest.raises(LookupError, match="no such account"):
            await _apply(world, leased, stumble)

        assert not await trace.is_left()
        assert (await world.show(delivery_id)).status is Status.IN_FLIGHT
        assert await _apply(world, leased, Trace(world)) is Ending.APPLIED

    async def test_an_effect_that_is_cancelled_leaves_nothing(self, world: World) -> None:
        """As a time-out does it."""
        if not _has_effects(world):
            return
        await world.publish(an_event())
        leased, trace, begun = await world.claim_one(), Trace(world), asyncio.Event()

        async def hang(connection: object) -> bool:
            await trace(connection)
            begun.set()
            await asyncio.Event().wait()
            return True

        running = asyncio.ensure_future(_apply(world, leased, hang))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])

        assert running.cancelled()
        assert not await trace.is_left()
        assert await _apply(world, leased, Trace(world)) is Ending.APPLIED

    async def test_no_effect_runs_for_a_lease_that_is_not_current(self, world: World) -> None:
        """It would be undone anyway."""
        if not _has_effects(world):
            return
        await world.publish(an_event())
        late = await world.crash()
        current, trace = await world.claim_one(), Trace(world)

        assert await _apply(world, late, trace) is Ending.REFUSED
        assert trace.runs == 0
        assert await _apply(world, current, trace) is Ending.APPLIED

    async def test_the_effect_of_a_late_worker_is_undone(self, world: World) -> None:
        """Its lease ran out while it worked; nothing of it remains."""
        if not _has_effects(world):
            return
        [delivery_id] = await world.publish(an_event())
        leased, trace = await world.claim_one(), Trace(world)

        async def take_too_long(connection: object) -> bool:
            world.clock.advance("30s")
            return await trace(connection)

        ending = await _apply(world, leased, take_too_long)

        assert (ending, trace.runs) == (Ending.REFUSED, 1)
        assert not await trace.is_left()
        assert (await world.show(delivery_id)).status is Status.IN_FLIGHT
        assert await world.settle(leased, Delivered()) == [leased.lease]

    async def test_of_two_who_apply_the_same_one_does(self, world: World) -> None:
        """The other waits for it, and runs nothing."""
        if not _has_effects(world):
            return
        await world.publish(an_event())
        leased, first, second = await world.claim_one(), Trace(world), Trace(world)

        endings = await asyncio.gather(_apply(world, leased, first), _apply(world, leased, second))

        assert sorted(endings) == [Ending.APPLIED, Ending.REFUSED]
        assert first.runs + second.runs == 1

    async def test_each_destination_has_an_effect_of_its_own(self, world: World) -> None:
        """Of an event that several destinations want."""
        if not _has_effects(world):
            return
        await world.append(entries(an_event(idempotency_key="k"), to=["billing", "mailing"]))

        for name in ("billing", "mailing"):
            trace = Trace(world)
            assert await _apply(world, await world.claim_one(name), trace) is Ending.APPLIED
            assert await trace.is_left()

    async def test_an_effect_frees_the_next_of_its_lane(self, world: World) -> None:
        """Like any other delivery that arrives."""
        if not _has_effects(world):
            return
        first, second = await world.publish(an_event(key="42"), an_event(key="42"), to="ledger")
        leased = await world.claim_one("ledger")
        assert leased.lease.delivery_id == first

        assert await _apply(world, leased, Trace(world)) is Ending.APPLIED

        assert (await world.claim_one("ledger")).lease.delivery_id == second


class InboxConformance:
    """What is known as applied, and for how long."""

    async def test_what_was_applied_is_not_applied_again(self, world: World) -> None:
        """An event comes back from a file in which it was a dead letter."""
        if not _has_effects(world):
            return
        delivery_id = await world.dead_letter()
        letters = (await world.store.letters(Query())).letters
        await world.store.replay([delivery_id], actor=OPERATOR)
        assert await _apply(world, await world.claim_one(), Counted()) is Ending.APPLIED
        assert (await prune_all(world, after=timedelta(days=5))).events == 1
        [again] = (await world.store.restore(letters, actor=OPERATOR)).deliveries
        await world.store.replay([again], actor=OPERATOR)
        trace = Counted()

        ending = await _apply(world, await world.claim_one(worker="worker-7"), trace)

        assert (ending, trace.runs) == (Ending.REPEATED, 0)
        shown = await world.show(again)
        assert shown.status is Status.DELIVERED
        told = only(shown.log)
        assert (told.result, told.worker, told.number) == (ALREADY_APPLIED, "worker-7", 1)

    async def test_a_key_that_was_applied_is_not_applied_again(self, world: World) -> None:
        """Its idempotency record has gone, so another event was stored under it."""
        if not _has_effects(world):
            return
        key = {"source": "shop", "idempotency_key": "order-42"}
        await _publish_and_apply(world, an_event(**key))
        gone = await prune_all(world, after=timedelta(days=5))
        assert (gone.events, gone.keys, gone.inbox) == (1, 1, 0)
        await world.publish(an_event(**key))
        trace = Counted()

        assert await _apply(world, await world.claim_one(), trace) is Ending.REPEATED
        assert trace.runs == 0

    async def test_the_same_key_of_another_source_is_another(self, world: World) -> None:
        """And so is an event without a key."""
        if not _has_effects(world):
            return
        for event in (
            an_event(source="shop", idempotency_key="42"),
            an_event(source="till", idempotency_key="42"),
            an_event(source="shop"),
            an_event(source="shop"),
        ):
            assert (await _publish_and_apply(world, event)).runs == 1

    async def test_the_inbox_is_pruned_after_its_time(self, world: World) -> None:
        """Counted from when the last delivery of the event was settled."""
        if not _has_effects(world):
            return
        for _ in range(3):
            await _publish_and_apply(world, an_event())

        before = await prune_all(world, after=timedelta(days=9))
        could = await world.store.prunable(_SHORT)
        world.clock.advance("1d")
        batches = [await world.store.prune(_SHORT, limit=2) for _ in range(3)]

        assert (before.events, before.inbox, could) == (3, 0, Pruned())
        assert batches == [Pruned(inbox=2), Pruned(inbox=1), Pruned()]

    async def test_what_could_be_pruned_of_the_inbox_is_counted(self, world: World) -> None:
        """With the events it goes with, and without them."""
        if not _has_effects(world):
            return
        for _ in range(2):
            await _publish_and_apply(world, an_event(idempotency_key=None))
        world.clock.advance("11d")

        could = await world.store.prunable(_SHORT)

        assert could == Pruned(delivered=2, events=2, inbox=2)
        assert await prune_all(world, after=timedelta(0)) == could

    async def test_a_dead_letter_keeps_what_is_known_of_its_event(self, world: World) -> None:
        """However old it is: it may yet be moved, or sent again."""
        if not _has_effects(world):
            return
        await world.append(entries(an_event(), to=["billing", "mailing"]))
        assert await _apply(world, await world.claim_one("billing"), Counted()) is Ending.APPLIED
        assert not await world.fail(await world.claim_one("mailing"))

        gone = await prune_all(world, after=timedelta(days=100))

        assert gone == Pruned(delivered=1)

    async def test_a_key_in_use_keeps_what_was_applied_under_it(self, world: World) -> None:
        """The event that has it now may wait for longer than the first one is remembered."""
        if not _has_effects(world):
            return
        await _publish_and_apply(world, an_event(idempotency_key="42"))
        await prune_all(world, after=timedelta(days=5))
        await world.publish(an_event(idempotency_key="42"))

        gone = await prune_all(world, after=timedelta(days=30))

        assert gone == Pruned()
        assert await _apply(world, await world.claim_one(), Counted()) is Ending.REPEATED
