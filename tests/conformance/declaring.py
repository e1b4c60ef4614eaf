"""Which declaration of a destination is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.model.audit import REDRIVE, AuditEntry
from redrive.model.destination import Destination, Order
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered
from redrive.policies.declaring import MOST_SEEN
from redrive.store import Declarer, Registered
from tests.conformance.world import OPERATOR, World, an_event, entries, ids_of, only

__all__ = ["DeclarationConformance"]

_LEASE = timedelta(seconds=15)
_OLD = Destination(name="shop", patterns=("order.*",), limits=Limits(rate=Rate(per_second=5)))
_NEW = Destination(name="shop", patterns=("order.*", "refund.*"), order=Order.PARK)
_WIDE = Destination(name="shop", patterns=("order.*", "mail.*"))
_NARROW = Destination(name="shop", patterns=("order.paid",))


class DeclarationConformance:
    """`Registry.register`, and what else knows of declarations."""

    async def test_what_a_worker_brings_for_the_first_time_takes_effect_as_a_whole(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")

        brought = await _bring(world, _NEW, worker="new")

        assert await _in_force(world) == _NEW
        assert brought.others == ()
        assert (await _bring(world, _OLD, worker="old")).others == ("shop",)

    async def test_who_only_publishes_adds_destinations_and_patterns_and_changes_nothing_else(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")
        mail = Destination(name="mail", patterns=("mail.*",))

        brought = await world.store.register([_NEW, mail])

        added = msgspec.structs.replace(_OLD, patterns=("order.*", "refund.*"))
        assert brought.routes.destinations == (mail, added)

    async def test_what_was_offered_takes_effect_when_a_worker_brings_it(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.register([_NEW])

        await _bring(world, _NEW, worker="new")

        assert await _in_force(world) == _NEW

    async def test_what_was_added_stays_until_a_whole_declaration_takes_effect(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.register([_WIDE])

        again = await _bring(world, _OLD, worker="another")

        assert again.others == ()
        assert (await _in_force(world)).patterns == ("order.*", "mail.*")
        await _bring(world, _NEW, worker="new")
        assert await _in_force(world) == _NEW
        await world.store.register([_WIDE])
        assert await _in_force(world) == _NEW

    async def test_who_publishes_by_the_last_release_changes_nothing(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await _bring(world, _NEW, worker="new")
        version = (await world.store.routes()).version

        brought = await world.store.register([_OLD])

        assert (brought.version, brought.changes) == (version, ())
        assert await _in_force(world) == _NEW

    async def test_one_seen_before_waits_while_a_live_worker_declares_the_one_in_force(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")
        await _bring(world, _NEW, worker="new")
        world.clock.advance(_LEASE / 2)
        await world.store.heartbeat("new", [], lease=_LEASE)
        world.clock.advance(_LEASE / 2)

        await _bring(world, _OLD, worker="old", again=True)
        assert await _in_force(world) == _NEW

        world.clock.advance(_LEASE / 2)
        brought = await _bring(world, _OLD, worker="old", again=True)
        assert brought.others == ()
        assert await _in_force(world) == _OLD

    async def test_one_seen_before_follows_at_once_where_the_others_have_retired(
        self, world: World
    ) -> None:
        await _bring(world, _OLD, worker="old")
        await _bring(world, _NEW, worker="new")
        await world.store.retire("new")

        await _bring(world, _OLD, worker="old", again=True)

        assert await _in_force(world) == _OLD

    async def test_a_worker_that_brings_a_part_again_still_declares_the_rest(
        self, world: World
    ) -> None:
        before = Destination(name="mail", patterns=("*",))
        mail = Destination(name="mail", patterns=("mail.*",))
        await world.declare(before)
        by = Declarer(worker="old", lease=_LEASE)
        await world.store.register([_OLD, mail], by=by)

        await world.store.register([_OLD], by=by, again=True)

        await world.store.register([before], by=Declarer(worker="new", lease=_LEASE))
        assert (await _in_force(world, "mail")) == mail

    async def test_two_releases_that_crash_in_turn_do_not_change_it_with_each_start(
        self, world: World
    ) -> None:
        for number in range(10):
            release = (_OLD, _NEW)[number % 2]
            await _bring(world, release, worker=f"w{number}")
            await world.store.retire(f"w{number}")
            world.clock.advance("1s")

        assert len(await _changes(world)) <= 2
        world.clock.advance(_LEASE)
        await _bring(world, _NEW, worker="new")
        assert await _in_force(world) == _NEW

    async def test_so_many_are_told_from_those_never_seen(self, world: World) -> None:
        for number in range(MOST_SEEN + 1):
            await world.declare(_numbered(number))
        await _bring(world, _numbered(MOST_SEEN), worker="live")

        await _bring(world, _numbered(1), worker="late")
        assert await _in_force(world) == _numbered(MOST_SEEN)

        await _bring(world, _numbered(0), worker="later")
        assert await _in_force(world) == _numbered(0)

    async def test_of_two_brought_at_once_one_comes_last(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")

        await asyncio.gather(
            *[_bring(world, one, worker=one.patterns[-1]) for one in (_NEW, _WIDE, _NARROW)]
        )

        assert await _in_force(world) in (_NEW, _WIDE, _NARROW)
        assert len(await _changes(world)) == 3

    async def test_a_removal_is_not_undone_by_what_was_seen(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.register([_NEW])
        await world.store.unregister("shop", actor=OPERATOR)
        world.clock.advance(2 * _LEASE)

        brought = await _bring(world, _OLD, worker="old")
        await world.store.register([_NEW])
        await _bring(world, _NEW, worker="new")

        assert brought.others == ("shop",)
        assert (await world.store.routes()).destinations == ()

    async def test_a_removal_is_undone_by_one_never_seen(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.unregister("shop", actor=OPERATOR)

        await _bring(world, _NEW, worker="new")

        assert await _in_force(world) == _NEW
        assert "no longer removed" in (await world.store.audit())[0].detail

    async def test_a_removal_is_undone_by_a_publisher_of_one_never_seen(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.unregister("shop", actor=OPERATOR)

        await world.store.register([_NEW])

        assert await _in_force(world) == _NEW

    async def test_what_was_restored_is_as_it_was(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.register([_WIDE])
        before = await _in_force(world)
        await world.store.unregister("shop", actor=OPERATOR)

        await world.store.reregister("shop", actor=OPERATOR)

        assert await _in_force(world) == before
        assert (await _bring(world, _OLD, worker="old")).others == ()

    async def test_each_change_is_an_audit_entry_with_the_difference(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        await world.store.register([_WIDE], by=Declarer(host="web-1"))
        await _bring(world, _NEW, worker="new")
        await _bring(world, _NEW, worker="new-2")

        whole, added = await _changes(world)

        assert (added.by, added.count, added.deliveries) == (REDRIVE, 1, ())
        assert added.why == "declared by a process that publishes or operates on web-1"
        assert added.detail == 'shop: patterns[1]: nothing → "mail.*"'
        assert whole.why == "declared by worker new on host-of-new"
        assert 'order: "none" → "park"' in whole.detail
        assert "rate" in whole.detail

    async def test_new_destinations_beside_others_are_one_audit_entry(self, world: World) -> None:
        await world.version()

        await world.store.register(
            [Destination(name=name, patterns=("*",)) for name in ("one", "two")]
        )

        entry = only(await world.store.audit())
        assert (entry.action, entry.count, entry.detail) == ("declare", 2, "one, two: new")

    async def test_a_change_is_returned_to_who_brought_it(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")

        brought = await _bring(world, _NEW, worker="new")

        change = only(brought.changes)
        assert change.destination == "shop"
        assert 'order: "none" → "park"' in change.difference

    async def test_the_figures_tell_which_workers_declare_another(self, world: World) -> None:
        mail = Destination(name="mail", patterns=("mail.*",))
        await world.store.register([_OLD, mail], by=Declarer(worker="old", lease=_LEASE))
        await world.store.register([_NEW, mail], by=Declarer(worker="new", lease=_LEASE))
        await world.store.unregister("mail", actor=OPERATOR)
        await world.store.heartbeat("untold", [], lease=_LEASE)

        figures = await world.store.figures()

        assert {one.id: one.others for one in figures.workers} == {
            "new": ("mail",),
            "old": ("mail", "shop"),
            "untold": (),
        }

    async def test_a_claim_tells_the_version_of_the_routes(self, world: World) -> None:
        version = await world.version()
        await world.publish(an_event())

        claims = [await world.claim() for _ in range(3)]
        changed = await world.declare(msgspec.structs.replace(_OLD, name="billing"))
        [after] = [await world.claim()]

        assert {one.routes_version for one in claims} <= {version, None}
        assert claims[0].routes_version == version
        assert after.routes_version == changed.version > version

    async def test_who_brings_something_is_heard_of(self, world: World) -> None:
        await _bring(world, _OLD, worker="old")
        world.clock.advance("1s")
        await _bring(world, _OLD, worker="old", again=True)

        worker = only((await world.store.figures()).workers)

        assert (worker.id, worker.seen_at) == ("old", world.now)

    async def test_events_are_held_to_the_order_in_force(self, world: World) -> None:
        """What waits, and what is published by whoever declares another, stands in lanes."""
        await _bring(world, _OLD, worker="old")
        waiting = await _publish(world, "k", "k", "other")
        await _bring(world, _NEW, worker="new")
        await world.store.register([_OLD])
        later = await _publish(world, "k")

        first = await world.claim("shop", worker="old")
        assert ids_of(first) == [waiting[0], waiting[2]]
        await world.settle(first.deliveries[0], Delivered())
        second = await world.claim("shop", worker="new")
        assert ids_of(second) == [waiting[1]]
        await world.settle(second.deliveries[0], Delivered())
        assert ids_of(await world.claim("shop")) == list(later)

    async def test_a_backlog_goes_at_the_rate_in_force(self, world: World) -> None:
        slow = msgspec.structs.replace(_NARROW, limits=Limits(rate=Rate(per_second=1, burst=2)))
        await _bring(world, _WIDE, worker="old")
        await _publish(world, *([None] * 9))
        assert len((await world.claim("shop", total=3)).deliveries) == 3

        await _bring(world, slow, worker="new")

        assert len((await world.claim("shop", worker="old")).deliveries) == 2
        world.clock.advance("1s")
        assert len((await world.claim("shop", worker="old")).deliveries) == 1


async def _bring(
    world: World, destination: Destination, *, worker: str, again: bool = False
) -> Registered:
    by = Declarer(worker=worker, host=f"host-of-{worker}", lease=_LEASE)
    return await world.store.register([destination], by=by, again=again)


async def _in_force(world: World, name: str = "shop") -> Destination:
    routes = await world.store.routes()
    return only([one for one in routes.destinations if one.name == name])


async def _changes(world: World) -> Sequence[AuditEntry]:
    return [one for one in await world.store.audit(limit=500) if one.action == "declare"]


async def _publish(world: World, *keys: str | None) -> list[int]:
    events = [an_event(key=key) for key in keys]
    version = (await world.store.routes()).version
    batch = entries(*events, to=["shop"])
    await world.store.append(batch, routes_version=version, all_or_nothing=True)
    return [(await world.find_one(event, "shop")).id for event in events]


def _numbered(number: int) -> Destination:
    return Destination(name="shop", patterns=(f"type-{number}",))
