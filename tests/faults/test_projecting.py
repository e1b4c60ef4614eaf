"""Writers, workers that project, and `kill -9`: the read model is a recount of the log.

With `REDRIVE_TEST_LONG=1` everything has its full size.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from redrive import NewEvent, Redrive
from redrive.store import ProjectionFigures
from tests.effects.ledger import Entries
from tests.faults.machine import Child, Machine, on_each_store
from tests.scale import IS_LONG, scaled
from tests.waiting import eventually, spend

MachineOf = Callable[[str], Machine]
WRITERS = 8
KEYS, BETWEEN_KILLS = (500, 4.0) if IS_LONG else (40, 0.3)
KILLS = scaled("KILLS", usually=15 if IS_LONG else 1)
BATCHES = 10
"""How much each writer publishes in any case."""
SECONDS = 300 if IS_LONG else 120


async def publish(app: Redrive, writer: int, stopped: asyncio.Event, numbers: count[int]) -> None:
    """Publish batches to any keys, one event in a hundred of them bad, until it is enough."""
    chance = random.Random(writer)  # noqa: S311 - no secret
    for batch in count():
        if batch >= BATCHES and stopped.is_set():
            return
        await app.publish_many(
            [
                NewEvent(
                    type="thing.made" if chance.random() > 0.3 else "other.made",
                    key=f"key-{chance.randrange(KEYS)}",
                    payload={"number": next(numbers), "is_bad": chance.randrange(100) == 0},
                )
                for _ in range(5)
            ]
        )
        await spend(0.005)


async def kill_the_oldest(machine: Machine, workers: list[Child]) -> None:
    """Kill again and again who has projected for the longest; another is at hand."""
    for left in reversed(range(KILLS)):
        await spend(BETWEEN_KILLS)
        workers.pop(0).kill()
        if left:
            workers.append(machine.start_worker())


async def recount(app: Redrive) -> dict[str, list[int]]:
    """Return what the log has for each key, in order."""
    found: dict[str, list[int]] = {}
    for one in await app.log.read(types="thing.*", limit=10_000_000):
        found.setdefault(one.event.key or "", []).append(one.event.payload["number"])
    return found


async def figures(app: Redrive) -> ProjectionFigures:
    """Return how far it is, asked so seldom that the workers get on."""
    await spend(0.2)
    [found] = await app.projections.list()
    return found


async def replay_all(app: Redrive) -> bool:
    """Replay what has died; tell whether nothing is left."""
    if ids := await app.operations.select():
        await app.operations.replay(ids, by="ada", why="mended")
    return (await figures(app)).handed_over == 0


async def is_shared(app: Redrive) -> bool:
    """Tell whether each of two workers reads for half of the partitions, if there are any."""
    readers = Counter(one.checkpoint.worker for one in (await figures(app)).parts)
    return not readers or sorted(readers.values()) == [2, 2]


async def run(machine: Machine) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
    """Return the read model, the recount, and how much was parked before it was mended."""
    entries, stopped, numbers = Entries(machine.store), asyncio.Event(), count()
    async with machine.app as app:
        await app.operations.status()  # the store is there before the table is
        await entries.create()
        workers = [machine.start_worker()]

        async def has_begun() -> bool:
            return bool(await app.projections.list())

        async def is_caught_up() -> bool:
            return (await figures(app)).is_caught_up

        await eventually(has_begun, what="it is read", within=SECONDS)
        workers.append(machine.start_worker())
        await eventually(lambda: is_shared(app), what="both workers read", within=SECONDS)
        async with asyncio.TaskGroup() as group:
            for writer in range(WRITERS):
                group.create_task(publish(app, writer, stopped, numbers))
            await kill_the_oldest(machine, workers)
            stopped.set()
        await eventually(is_caught_up, what="all is read", within=SECONDS)
        parked = (await figures(app)).parked_keys
        (machine.folder / "mended").touch()
        await eventually(lambda: replay_all(app), what="nothing is parked", within=SECONDS)
        return await entries.by_key(), await recount(app), parked


@on_each_store
@pytest.mark.parametrize("behaviour", ["projecting", "dividing"])
@pytest.mark.timeout(3 * SECONDS + KILLS * 30)
def test_the_read_model_is_a_recount_of_the_log_whoever_is_killed(
    machine_of: MachineOf, behaviour: str
) -> None:
    model, log, parked = asyncio.run(run(machine_of(behaviour)))

    assert parked > 0
    assert model == log


async def outlive(machine: Machine) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Freeze who projects past its lease, have another go on, and let it come back."""
    entries, numbers = Entries(machine.store), count()
    stopped = asyncio.Event()
    stopped.set()
    async with machine.app as app:
        await app.operations.status()
        await entries.create()
        zombie = machine.start_worker()

        async def is_caught_up() -> bool:
            return bool(await app.projections.list()) and (await figures(app)).is_caught_up

        await publish(app, 0, stopped, numbers)
        await eventually(is_caught_up, what="all is read", within=SECONDS)
        first = (await figures(app)).checkpoint.worker
        await asyncio.to_thread(machine.freeze, zombie)
        await publish(app, 1, stopped, numbers)
        machine.start_worker()
        await eventually(is_caught_up, what="another has taken over", within=SECONDS)
        assert (await figures(app)).checkpoint.worker != first
        zombie.send(signal.SIGCONT)
        await publish(app, 2, stopped, numbers)
        (machine.folder / "mended").touch()
        await eventually(is_caught_up, what="all is read in the end", within=SECONDS)
        await eventually(lambda: replay_all(app), what="nothing is parked", within=SECONDS)
        return await entries.by_key(), await recount(app)


@pytest.mark.timeout(3 * SECONDS)
def test_who_comes_back_after_its_lease_applies_nothing_twice(machine_of: MachineOf) -> None:
    model, log = asyncio.run(outlive(machine_of("projecting")))

    assert model == log
