"""How often who waits looks for what other processes have written."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.stores.sqlite import SqliteStore
from redrive.testing.clock import FakeClock
from tests.conformance import World, an_event


class RestlessClock(FakeClock):
    """A clock on which all sleep passes at once, and is on record."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock() -> RestlessClock:
    return RestlessClock()


@pytest.fixture
async def world(tmp_path: Path, clock: RestlessClock) -> AsyncIterator[World]:
    store = SqliteStore(tmp_path / "redrive.db", clock=clock)
    async with World.opened(lambda _: store, history=20) as world:
        yield world


async def wait(world: World, clock: RestlessClock) -> list[float]:
    """Return how long it let pass between looks in a second without news."""
    clock.slept.clear()
    await world.store.wait(at_most=timedelta(seconds=1))
    return list(clock.slept)


async def test_who_found_work_looks_again_soon_and_then_less_and_less_often(
    world: World, clock: RestlessClock
) -> None:
    await world.publish(an_event(), to="billing")
    await world.claim("billing")
    await world.claim("billing")  # the first has changed the file itself

    first, then = await wait(world, clock), await wait(world, clock)

    assert first[:7] == pytest.approx([0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05])
    assert then == pytest.approx([0.05] * 20)


async def test_who_finds_nothing_does_not_look_more_often_however_much_others_write(
    world: World, clock: RestlessClock
) -> None:
    for _ in range(3):
        await world.publish(an_event(), to="billing")
        await world.claim("shipping")

    assert await wait(world, clock) == pytest.approx([0.05] * 20)
