"""The simulated event loop: virtual time, order by the seed, and processes that die."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation import loop as looping
from tests.simulation.loop import Deadlock, Livelock, SimulationLoop, Strand, current_strand


@contextmanager
def a_loop(seed: int = 0) -> Iterator[SimulationLoop]:
    loop = SimulationLoop(seed)
    try:
        yield loop
    finally:
        loop.discard()


def order_of(seed: int) -> list[int]:
    """Return the order in which ten tasks get to run."""
    ran: list[int] = []

    async def step(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        await asyncio.gather(*(step(number) for number in range(10)))

    with a_loop(seed) as loop:
        loop.run_until_complete(main())
    return ran


def test_waiting_costs_no_time() -> None:
    async def main() -> None:
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3_600)

    with a_loop() as loop:
        with pytest.raises(TimeoutError):
            loop.run_until_complete(main())

        assert loop.time() == 3_600


def test_the_seed_decides_the_order() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)
    assert sorted(order_of(1)) == list(range(10))


def test_a_deadlock_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with a_loop() as loop, pytest.raises(Deadlock):
        loop.run_until_complete(main())


def test_going_round_without_end_is_an_error() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        while True:
            ready = loop.create_future()
            ready.set_result(None)
            loop.call_soon(lambda: None)
            await asyncio.gather(ready)

    with a_loop() as loop, pytest.raises(Livelock):
        loop.run_until_complete(main())


@pytest.mark.parametrize(
    ("limit", "complaint"), [("_MOST_STEPS", "no end after"), ("_MOST_KILOBYTES", "MB are held")]
)
def test_a_run_without_end_or_bound_is_given_up(
    limit: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looping, "_TIDIES_EVERY", 500)
    monkeypatch.setattr(looping, limit, 1_000)

    async def main(loop: SimulationLoop) -> None:
        while True:
            await loop.pause(1.0)

    with a_loop() as loop, pytest.raises(Livelock, match=complaint):
        loop.run_until_complete(main(loop))


def test_what_nobody_can_reach_is_let_go_but_no_task_ends_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead process runs no `finally`, however long its world goes on."""
    monkeypatch.setattr(looping, "_TIDIES_EVERY", 100)
    ended: list[str] = []

    async def forgotten() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("forgotten")

    async def main(loop: SimulationLoop) -> list[str]:
        loop.create_task(forgotten())
        for _ in range(200):
            await loop.pause(1.0)
        return list(ended)

    with a_loop() as loop:
        assert loop.run_until_complete(main(loop)) == []


class Victim:
    """A process that works, cleans up, and tells how far it came."""

    def __init__(self, loop: SimulationLoop) -> None:
        self.strand = Strand("victim")
        self.said: list[str] = []
        self._loop = loop

    def start(self) -> None:
        self._spawn(self._work())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.create_task(work, context=self.strand.context())

    async def _work(self) -> None:
        try:
            await self._loop.pause(1)
            self.said.append("half")
            await self._loop.pause(1)
            self.said.append(f"done at {self._loop.time():g}")
        finally:
            self.said.append("cleaned up")


def test_a_dead_process_takes_no_step_and_cleans_nothing_up() -> None:
    with a_loop() as loop:
        victim = Victim(loop)

        async def main() -> None:
            victim.start()
            await loop.pause(1.5)
            victim.strand.die()
            await loop.pause(10)

        loop.run_until_complete(main())

        assert victim.said == ["half"]


def test_a_stopped_process_goes_on_as_if_nothing_had_been() -> None:
    with a_loop() as loop:
        victim = Victim(loop)

        async def main() -> None:
            victim.start()
            await loop.pause(1.5)
            victim.strand.stop()
            await loop.pause(100)
            victim.strand.go_on(loop)
            await loop.pause(1)

        loop.run_until_complete(main())

        assert victim.said == ["half", "done at 101.5", "cleaned up"]


def test_what_a_process_starts_belongs_to_it() -> None:
    seen: list[str | None] = []

    async def child() -> None:
        strand = current_strand()
        seen.append(None if strand is None else strand.name)

    async def parent() -> None:
        await asyncio.gather(child(), asyncio.ensure_future(child()))

    with a_loop() as loop:
        task = loop.create_task(parent(), context=Strand("home").context())
        loop.run_until_complete(task)

    assert seen == ["home", "home"]
