"""Notifications: the first goes at once, and many go seldom."""

from __future__ import annotations

from redrive.observer import Observers
from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.notifications import Notifications
from redrive.testing.clock import FakeClock


class Sender:
    """Notifications that are counted instead of sent."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sent: list[int] = []
        """When, in milliseconds."""
        self.notifications = Notifications(
            read_address("postgresql://localhost/shop"),
            clock=self.clock,
            observer=Observers(),
            pauses=self.clock,
        )
        self.notifications.start(self._notify)

    async def _notify(self, statement: str) -> None:
        assert "NOTIFY redrive_work" in statement
        self.sent.append(round(self.clock.monotonic() * 1_000))

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(f"{milliseconds}ms")
        for _ in range(10):
            await self.clock.sleep(0)


async def test_the_first_goes_at_once_and_so_does_one_after_a_calm() -> None:
    sender = Sender()

    for _ in range(3):
        sender.notifications.notify()
        await sender.pass_time(0)
        await sender.pass_time(20)

    assert sender.sent == [0, 20, 40]
    await sender.notifications.stop()


async def test_no_second_has_more_than_fifty_and_the_last_is_not_lost() -> None:
    sender = Sender()

    for millisecond in range(2_000):
        sender.notifications.notify()
        if millisecond % 3 == 0:
            sender.notifications.notify_seldom()
        await sender.pass_time(1)
    rung = len(sender.sent)
    await sender.pass_time(20)

    assert rung <= 101
    assert all(
        sum(begin <= one < begin + 1_000 for one in sender.sent) <= 50 for begin in sender.sent
    )
    assert sender.sent[0] <= 1
    assert sender.sent[-1] >= 1_980
    await sender.notifications.stop()


async def test_one_within_the_calm_is_sent_when_it_ends() -> None:
    sender = Sender()

    sender.notifications.notify()
    await sender.pass_time(0)
    sender.notifications.notify()
    await sender.pass_time(19)
    early = list(sender.sent)
    await sender.pass_time(1)

    assert early == [0]
    assert sender.sent == [0, 20]
    await sender.notifications.stop()
