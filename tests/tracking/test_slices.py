"""The sender works in small pieces while the app is at work, and in large ones when it must end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive.model.event import Severity
from redrive.testing import FakeClock
from redrive.tracking.buffer import Buffer
from redrive.tracking.item import Item
from redrive.tracking.slices import MOST_HANDED_OVER, Slices


class Sparing(FakeClock):
    """Notes the pauses, which take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_it_pauses_between_small_pieces_of_work() -> None:
    clock, done = Sparing(), list[Sequence[int]]()
    slices = Slices(Buffer(1_000), clock)

    await slices.each(range(25), done.append)

    assert [len(one) for one in done] == [10, 10, 5]
    assert [one for piece in done for one in piece] == list(range(25))
    assert len(clock.pauses) == 2
    assert all(clock.pauses)


async def test_it_lets_nobody_pass_when_it_must_end() -> None:
    clock, done = Sparing(), list[Sequence[int]]()
    slices = Slices(Buffer(1_000), clock)
    slices.end()

    await slices.each(range(150), done.append)
    await slices.let_gather([])

    assert [len(one) for one in done] == [100, 50]
    assert not any(clock.pauses)


async def test_it_lets_nobody_pass_while_somebody_waits_for_it() -> None:
    clock, buffer = Sparing(), Buffer(1_000)
    slices = Slices(buffer, clock)
    buffer.books.tracked = 1
    buffer.items.append(Item(1, "one", "page.seen", b"null", clock.now(), Severity.INFO))
    buffer.await_all()

    await slices.give_way()

    assert clock.pauses == [0]


async def test_few_events_gather_until_somebody_waits_for_them() -> None:
    class Awaited(Sparing):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if len(self.pauses) == 2:
                buffer.await_all()

    buffer, clock = Buffer(1_000), Awaited()
    slices = Slices(buffer, clock)
    buffer.books.tracked = 1
    buffer.items.append(Item(1, "one", "page.seen", b"null", clock.now(), Severity.INFO))

    await slices.let_gather([])

    assert len(clock.pauses) == 2


async def test_what_has_gathered_is_handed_over_at_once() -> None:
    clock = Sparing()

    await Slices(Buffer(1_000), clock).let_gather(range(MOST_HANDED_OVER))

    assert clock.pauses == []


async def test_what_is_cancelled_between_two_pieces_is_done_all_the_same() -> None:
    clock, done, begun = FakeClock(), list[Sequence[int]](), asyncio.Event()
    slices = Slices(Buffer(1_000), clock)

    def do(some: Sequence[int]) -> None:
        done.append(some)
        begun.set()

    task = asyncio.create_task(slices.each(range(50), do))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [len(one) for one in done] == [10, 40]
