"""What a store promises when dead letters are given other groups than they had."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.delivery import Delivery
from redrive.model.outcome import Fault
from redrive.store import NewReplay, Query, Selection
from tests.conformance.world import OPERATOR, World, a_fault, an_event, only

__all__ = ["RegroupConformance"]

_FIRST_OF_TODAY = "m"


def _of_today(fault: Fault, destination: str) -> Fault:
    """Tell letters apart by their message, as those of the old groups here do not."""
    return msgspec.structs.replace(
        fault, group=f"m {fault.message} {destination}", title=f"{fault.message}, of today"
    )


def _old(message: str = "it hurts", group: str = "a") -> Fault:
    return a_fault(message, group=group)


async def _regroup(world: World, *, limit: int = 200) -> int:
    return await world.store.regroup(_of_today, before=_FIRST_OF_TODAY, limit=limit)


async def _find(world: World, query: Query) -> Sequence[Delivery]:
    return (await world.store.find(query)).deliveries


class RegroupConformance:
    """Letters of outdated groups get new ones, and are found by both."""

    async def test_outdated_letters_get_the_group_they_belong_to(self, world: World) -> None:
        first = await world.dead_letter(fault=_old("it hurts"))
        other = await world.dead_letter(fault=_old("it itches"))
        elsewhere = await world.dead_letter(to="mailing", fault=_old("it hurts"))

        assert await _regroup(world) == 3

        found = {one.id: (one.example, one.title) for one in await world.groups()}
        assert found == {
            "m it hurts billing": (first, "it hurts, of today"),
            "m it itches billing": (other, "it itches, of today"),
            "m it hurts mailing": (elsewhere, "it hurts, of today"),
        }
        letter = await world.store.find_delivery(first)
        assert letter is not None
        assert letter.fault == _of_today(_old("it hurts"), "billing")

    async def test_letters_of_groups_of_today_are_left_alone(self, world: World) -> None:
        for group in ("m", "n", "zebra"):
            await world.dead_letter(fault=_old(group=group))

        assert await _regroup(world) == 0
        assert {one.id for one in await world.groups()} == {"m", "n", "zebra"}

    async def test_resolved_letters_are_regrouped_too(self, world: World) -> None:
        letter = await world.dead_letter(fault=_old())
        await world.store.resolve([letter], actor=OPERATOR)

        assert await _regroup(world) == 1
        [group] = await world.groups(with_resolved=True)
        assert group.id == "m it hurts billing"

    async def test_what_waits_or_runs_again_is_in_no_group_and_left_alone(
        self, world: World
    ) -> None:
        letter = await world.dead_letter(fault=_old())
        await world.store.replay([letter], actor=OPERATOR)

        assert await _regroup(world) == 0

    async def test_few_are_regrouped_at_a_time_and_the_rest_is_counted(self, world: World) -> None:
        for _ in range(5):
            await world.dead_letter(fault=_old())
        await world.dead_letter(fault=_old(group="new"))

        counts = [await world.store.outdated(before=_FIRST_OF_TODAY)]
        done: list[int] = []
        while counts[-1] and len(done) < 5:
            done.append(await _regroup(world, limit=2))
            counts.append(await world.store.outdated(before=_FIRST_OF_TODAY))

        assert (done, counts) == ([2, 2, 1], [5, 3, 1, 0])
        assert await _regroup(world, limit=2) == 0

    async def test_an_old_group_finds_its_letters_wherever_they_are_now(self, world: World) -> None:
        hurts = await world.dead_letter(fault=_old("it hurts"))
        itches = await world.dead_letter(fault=_old("it itches"))
        await world.dead_letter(fault=_old("it aches", group="b"))
        await _regroup(world, limit=1)
        halfway = await _find(world, Query(group="a"))
        await _regroup(world)

        query = Query(group="a")

        assert {one.id for one in halfway} == {hurts, itches}
        assert {one.id for one in await _find(world, query)} == {hurts, itches}
        groups = await world.groups(group="a")
        assert {one.id for one in groups} == {"m it hurts billing", "m it itches billing"}
        page = await world.store.letters(query)
        assert {one.delivery.id for one in page.letters} == {hurts, itches}
        survey = await world.store.survey(Selection(query=query))
        assert survey.selected == 2
        replay = await world.store.start_replay(
            NewReplay(selection=Selection(query=query)), actor=OPERATOR
        )
        assert replay is not None
        assert replay.selected == 2

    async def test_an_old_group_finds_who_joins_its_letters_later(self, world: World) -> None:
        letter = await world.dead_letter(fault=_old("it hurts"))
        await _regroup(world)
        newcomer = await world.dead_letter(fault=_of_today(_old("it hurts"), "billing"))

        found = await _find(world, Query(group="a"))

        assert {one.id for one in found} == {letter, newcomer}

    async def test_a_group_is_found_by_the_names_of_all_its_past(self, world: World) -> None:
        letter = await world.dead_letter(fault=_old("it hurts"))
        await _regroup(world)

        def again(fault: Fault, _: str) -> Fault:
            return msgspec.structs.replace(fault, group=f"z{fault.group}")

        assert await world.store.regroup(again, before="z") == 1

        for name in ("a", "m it hurts billing", "zm it hurts billing"):
            assert only(await _find(world, Query(group=name))).id == letter
        assert only(await world.groups(group="a")).id == "zm it hurts billing"

    async def test_another_filter_narrows_an_old_group(self, world: World) -> None:
        await world.dead_letter(an_event(tenant="a"), fault=_old())
        mine = await world.dead_letter(an_event(tenant="b"), fault=_old())
        await _regroup(world)

        assert only(await _find(world, Query(group="a", tenant="b"))).id == mine

    async def test_an_unknown_group_finds_nothing(self, world: World) -> None:
        await world.dead_letter(fault=_old())
        await _regroup(world)

        assert await world.groups(group="b") == []
