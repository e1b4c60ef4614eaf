"""Notifications: wake who waits for work, over NOTIFY where that works, by polling everywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg

from redrive.clock import Clock, SystemClock, is_of_machine, wait_at_most
from redrive.errors import StoreError
from redrive.observer import ListeningBack, ListeningLost, Observer
from redrive.stores.postgres.connection import Address
from redrive.stores.postgres.pool import PLANS, session_settings

__all__ = ["Notifications"]

_CALM_SECONDS = 0.02
"""At most 50 a second: each is a commit, and all of a server's take turns at one lock."""
_LAST_SECONDS = 1.0
_CALM_AFTER_A_HINT_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
_PULSE_SECONDS = 10.0


class Turns:
    """When a process may notify: not more than 50 times a second, whatever it has open."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next = 0.0

    def take(self) -> float:
        """Take a turn; returns in how many seconds it comes."""
        with self._lock:
            now = self._monotonic()
            turn = max(now, self._next)
            self._next = turn + _CALM_SECONDS
        return turn - now


_of_process = Turns(SystemClock().monotonic)


def _turns_by(clock: Clock) -> Turns:
    """Return the turns of this process; where a simulation has several, those of one of them."""
    is_simulated = is_of_machine(clock) and type(clock) is not SystemClock
    return Turns(clock.monotonic) if is_simulated else _of_process


class Notifications:
    """Sent after a commit of ours, and heard by the others.

    One may be lost: whoever waits looks again by itself, at the latest after a second. Nothing
    here is needed for an event to be delivered, only for it to be delivered at once.
    """

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock,
        observer: Observer,
        pauses: Clock | None = None,
    ) -> None:
        self._address = address
        self._channel = f"{address.schema}_work"
        self._clock = clock
        # Of the connections, whatever time it is for deliveries.
        self._pauses: Clock = pauses or SystemClock()
        self._turns = _turns_by(clock) if pauses is None else Turns(pauses.monotonic)
        self._observer = observer
        self._news = asyncio.Event()
        self._readers: list[asyncio.Event] = []
        self.heard = 0
        """How many there were: what a reader of the log goes by, which no claim clears."""
        self._notify: Callable[[str], Awaitable[object]] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_unsent = False
        self._hinting: asyncio.Task[None] | None = None
        self._hints_again = False

    def start(self, notify: Callable[[str], Awaitable[object]] | None) -> None:
        """Begin; without `notify`, as behind a proxy that pools transactions, nothing is sent."""
        self._notify = notify
        self._news.clear()

    def forget(self) -> None:
        """Let go of what has ended with its event loop."""
        self._notify = self._listening = self._hinting = self._sending = None

    async def stop(self) -> None:
        """End it when the last one is sent; whoever waits returns."""
        self._hear()
        if self._hints_again:
            self.notify()
        await self.finish()
        self._notify = None
        begun = (self._listening, self._hinting, self._sending)
        self._listening = self._hinting = self._sending = None
        tasks = [task for task in begun if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def notify(self) -> None:
        """Wake this process now, and the others at once, but not more often than makes sense."""
        self._hear()
        if self._notify is None:
            return
        self._is_unsent = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(self._notify))

    async def finish(self) -> None:
        """Return when what was told is sent: whoever ends at once is to be heard as well."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_LAST_SECONDS)

    def notify_seldom(self) -> None:
        """Wake this process now, and the others a little less often than `notify` does.

        For what this process finds itself in most cases: a notification costs the server a commit.
        """
        self._hear()
        if self._notify is None:
            return
        if self._hinting is None or self._hinting.done():
            self._hinting = asyncio.get_running_loop().create_task(self._hint())
        else:
            self._hints_again = True

    async def _hint(self) -> None:
        while True:
            self._hints_again = False
            self.notify()
            await self._pauses.sleep(_CALM_AFTER_A_HINT_SECONDS)
            if not self._hints_again:
                return

    def clear(self) -> None:
        """Forget earlier ones, as a claim does that is about to look."""
        self._news.clear()

    async def wait(self, at_most: timedelta, since: object = None) -> None:
        """Return at a notification since `clear`, at the latest after `at_most`.

        With `since`, at one that came when so many had been `heard`.
        """
        if self._listening is None and self._notify is not None:
            self._listening = asyncio.get_running_loop().create_task(self._stay_connected())
        if since is None:
            await wait_at_most(self._news, at_most.total_seconds(), self._clock)
        elif since == self.heard:
            reader = asyncio.Event()
            self._readers.append(reader)
            try:
                await wait_at_most(reader, at_most.total_seconds(), self._clock)
            finally:
                self._readers.remove(reader)

    async def _send(self, notify: Callable[[str], Awaitable[object]]) -> None:
        while self._is_unsent:
            if (seconds := self._turns.take()) > 0:
                await self._pauses.sleep(seconds)
            self._is_unsent = False
            with suppress(StoreError):  # one that cannot be reached is noticed by who needs it
                # One trip and one transaction; nobody needs it to outlive a crash of the server.
                await notify(f"SET LOCAL synchronous_commit = off; NOTIFY {self._channel}")

    async def _stay_connected(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        is_lost = False
        while True:
            try:
                connection = await asyncpg.connect(
                    self._address.dsn,
                    timeout=_PULSE_SECONDS,
                    command_timeout=_PULSE_SECONDS,
                    server_settings=session_settings(self._address) | PLANS,
                )
                try:
                    await connection.add_listener(self._channel, self._hear)
                    if is_lost:
                        self._observer.notice(ListeningBack(store=self._address.name))
                        self._hear()  # what was published while nobody listened
                    is_lost, pause = False, _FIRST_PAUSE_SECONDS
                    await self._stay_on(connection)
                finally:
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - polling is enough, whatever it is
                if not is_lost:
                    said = self._address.censored(str(error)) or type(error).__name__
                    self._observer.notice(ListeningLost(store=self._address.name, error=said))
                is_lost = True
                await self._pauses.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    async def _stay_on(self, connection: asyncpg.Connection[Any]) -> None:
        """Keep listening; returns never, raises when it is lost."""
        is_cut = asyncio.Event()
        connection.add_termination_listener(lambda _: is_cut.set())
        while not await wait_at_most(is_cut, _PULSE_SECONDS, self._pauses):
            await connection.execute("SELECT 1")  # one that died in silence is noticed by that
        raise ConnectionError("the server closed the connection")

    def _hear(self, *_: object) -> None:
        self.heard += 1
        self._news.set()
        for reader in self._readers:
            reader.set()
