"""The bell: the first ring goes at once, and many go seldom."""

from __future__ import annotations

from redrive.observer import Observers
from redrive.stores.postgres.bell import Bell
from redrive.stores.postgres.connection import read_address
from redrive.testing.clock import FakeClock


class Tower:
    """A bell whose rings are counted instead of sent."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sent: list[int] = []
        """When, in milliseconds."""
        self.bell = Bell(
            read_address("postgresql://localhost/shop"),
            clock=self.clock,
            observer=Observers(),
            pauses=self.clock,
        )
        self.bell.start(self._notify)

    async def _notify(self, statement: str) -> None:
        assert "NOTIFY redrive_work" in statement
        self.sent.append(round(self.clock.monotonic() * 1_000))

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(f"{milliseconds}ms")
        for _ in range(10):
            await self.clock.sleep(0)


async def test_the_first_ring_goes_at_once_and_so_does_one_after_a_calm() -> None:
    tower = Tower()

    for _ in range(3):
        tower.bell.ring()
        await tower.pass_time(0)
        await tower.pass_time(20)

    assert tower.sent == [0, 20, 40]
    await tower.bell.stop()


async def test_no_second_has_more_than_fifty_rings_and_the_last_is_not_lost() -> None:
    tower = Tower()

    for millisecond in range(2_000):
        tower.bell.ring()
        if millisecond % 3 == 0:
            tower.bell.hint()
        await tower.pass_time(1)
    rung = len(tower.sent)
    await tower.pass_time(20)

    assert rung <= 101
    assert all(
        sum(begin <= one < begin + 1_000 for one in tower.sent) <= 50 for begin in tower.sent
    )
    assert tower.sent[0] <= 1
    assert tower.sent[-1] >= 1_980
    await tower.bell.stop()


async def test_a_ring_within_the_calm_is_sent_when_it_ends() -> None:
    tower = Tower()

    tower.bell.ring()
    await tower.pass_time(0)
    tower.bell.ring()
    await tower.pass_time(19)
    early = list(tower.sent)
    await tower.pass_time(1)

    assert early == [0]
    assert tower.sent == [0, 20]
    await tower.bell.stop()
