"""What a store promises about schedules that it describes itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from redrive.errors import ConfigurationError
from redrive.model.rule import NO_SERVICE, Stored
from redrive.model.schedule import Schedule, ScheduleStanding
from redrive.store import Appended, Declarer, GatewayChange, Ticked
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["StoredScheduleConformance"]

_CODE = Schedule(name="nightly", type="order.paid", cron="0 2 * * *")
_ONE = Declarer(worker="one", host="shop-1")


def _kept(version: int = 1, *, name: str = "nightly") -> Stored:
    document = {"event": "order.paid", "n": version}
    return Stored(
        kind="schedule", name=name, service=NO_SERVICE, version=version, document=document
    )


async def _keep(world: World, *schedules: Schedule, gone: Sequence[Stored] = ()) -> int | None:
    """Change stored schedules, and what is kept of them, together."""
    return await world.store.change_gateway(
        GatewayChange(
            kept=tuple(_kept(one.stored, name=one.name) for one in schedules),
            gone=tuple(gone),
            schedules=schedules,
            details=tuple(f"schedule {one.name}: changed" for one in schedules),
        ),
        revision=(await world.store.gateway()).revision,
        actor=OPERATOR,
    )


def _hourly(version: int = 1, *, name: str = "nightly", cron: str = "0 * * * *") -> Schedule:
    return Schedule(name=name, type="order.paid", cron=cron, stored=version)


async def _standings(world: World) -> Mapping[str, ScheduleStanding]:
    return {one.standing.name: one.standing for one in (await world.store.timetable()).schedules}


class StoredScheduleConformance:
    """`Services` and `Schedules`, where they meet."""

    async def test_a_stored_schedule_counts_from_when_it_is_put_in_force(
        self, world: World
    ) -> None:
        since = world.now
        await _keep(world, _hourly())
        world.clock.advance("3h")
        await _keep(world, _hourly(2))
        same_times = (await _standings(world))["nightly"]
        await _keep(world, _hourly(3, cron="30 * * * *"))

        other_times = (await _standings(world))["nightly"]
        assert (same_times.since, same_times.in_force.stored) == (since, 2)
        assert (other_times.since, other_times.in_force.stored) == (world.now, 3)
        assert only((await world.store.gateway([NO_SERVICE])).schedules).version == 3
        assert (await world.store.gateway([NO_SERVICE])).sources == ()

    async def test_schedules_change_together_or_not_at_all(self, world: World) -> None:
        await world.store.declare_schedules([_CODE], by=_ONE)

        with pytest.raises(ConfigurationError, match="'nightly' belongs to a schedule that an app"):
            await _keep(world, _hourly(name="a"), _hourly(), _hourly(name="z"))

        assert list(await _standings(world)) == ["nightly"]
        assert (await world.store.gateway()).schedules == ()
        assert [one.action for one in await world.store.audit()] == ["declare"]

    async def test_a_name_of_a_stored_schedule_cannot_be_declared_by_code(
        self, world: World
    ) -> None:
        await _keep(world, _hourly())
        other = msgspec.structs.replace(_CODE, name="a")

        with pytest.raises(ConfigurationError, match=r"'nightly' .* stored \(version 1\)"):
            await world.store.declare_schedules([other, _CODE], by=_ONE)

        assert list(await _standings(world)) == ["nightly"]
        await _keep(world, gone=[_kept()])
        await world.store.declare_schedules([_CODE], by=_ONE)
        assert (await _standings(world))["nightly"].in_force == _CODE

    async def test_a_tick_of_another_version_is_not_published(self, world: World) -> None:
        since = world.now
        await _keep(world, _hourly())
        world.clock.advance("1h")
        await _keep(world, _hourly(2))
        version = await world.version()

        late, done = [
            await world.store.publish_ticks(
                Ticked(schedule="nightly", since=since, until=world.now, stored=stored),
                entries(an_event()),
                routes_version=version,
            )
            for stored in (1, 2)
        ]

        assert late is None
        assert isinstance(done, Appended)

    async def test_a_tick_of_a_deleted_schedule_is_not_published(self, world: World) -> None:
        since = world.now
        await _keep(world, _hourly())
        world.clock.advance("1h")
        await _keep(world, gone=[_kept()])
        again = Ticked(schedule="nightly", since=since, until=world.now, stored=1)

        done = await world.store.publish_ticks(
            again, entries(an_event()), routes_version=await world.version()
        )

        assert done is None
        assert await _standings(world) == {}

    async def test_workers_that_publish_a_stored_schedule_are_known(self, world: World) -> None:
        await _keep(world, _hourly())
        await world.store.declare_schedules([msgspec.structs.replace(_CODE, name="a")], by=_ONE)

        for worker in ("one", "two"):
            await world.store.attend_schedules(["nightly", "a", "b"], by=Declarer(worker=worker))
        both = (await _standings(world))["nightly"].declared
        world.clock.advance("1m")
        await world.store.attend_schedules(["nightly"], by=Declarer(worker="two"))

        assert sorted(both) == ["one", "two"]
        standings = await _standings(world)
        assert list(standings["nightly"].declared) == ["two"]
        assert list(standings["a"].declared) == ["one"]

    async def test_what_code_has_declared_can_be_forgotten(self, world: World) -> None:
        await world.store.declare_schedules([_CODE], by=_ONE)
        await _keep(world, _hourly(name="stored"))

        forgotten = [
            await world.store.forget_schedule(name, actor=OPERATOR)
            for name in ("nightly", "nightly", "stored")
        ]

        assert forgotten == [True, False, False]
        assert list(await _standings(world)) == ["stored"]
        assert (await world.store.audit())[0].action == "forget_schedule"
