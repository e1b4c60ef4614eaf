"""Clients that publish over HTTP, in a thread of this process, and note what was answered."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from redrive.model.event import EventId
from tests.faults.machine import Child, Machine, until
from tests.waiting import spend

__all__ = ["Clients", "publishing", "start_server"]

_PLACE = re.compile(r"Serving .* at (http://127\.0\.0\.1:\d+)")
_OWN_NUMBERS = 1_000_000
_LATE_SECONDS = 60.0


def start_server(machine: Machine) -> tuple[Child, str]:
    """Start `redrive serve`; returns where it listens, once it does."""
    child = machine.start(
        *("-m", "redrive", "serve", "tests.faults.child:app", "--port", "0"), PYTHONUNBUFFERED="1"
    )
    until(lambda: _PLACE.search(child.output) is not None, what="the server listens")
    found = _PLACE.search(child.output)
    assert found is not None
    return child, found[1]


class Clients:
    """Publish numbers at `place`, each client its own, one after the other.

    Every other client sends an `Idempotency-Key`, asks again until it is answered, and then
    once more; the rest go on to their next number, whatever became of the last.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.answered: dict[int, EventId] = {}
        """The id of each number that was answered with 2xx."""
        self.repeated = 0
        """How many were answered twice."""
        self.refused: list[str] = []
        """Every other answer."""
        self.differing: list[int] = []
        """The numbers whose second answer is not the first."""
        self.is_over = threading.Event()

    @staticmethod
    def has_key(number: int) -> bool:
        """Tell whether a number was sent with an `Idempotency-Key`."""
        return number // _OWN_NUMBERS % 2 == 0

    async def publish(self, count: int) -> None:
        """Publish by so many clients until it is over."""
        timeout = aiohttp.ClientTimeout(total=_LATE_SECONDS)
        connector = aiohttp.TCPConnector(limit=count)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as group,
        ):
            for client in range(count):
                group.create_task(self._publish(session, client * _OWN_NUMBERS))

    async def _publish(self, session: aiohttp.ClientSession, number: int) -> None:
        while not self.is_over.is_set():
            answer = await self._ask(session, number)
            if answer is not None:
                self.answered[number] = answer
                if self.has_key(number):
                    again = await self._ask(session, number)
                    self.repeated += again is not None
                    if again not in (None, answer):
                        self.differing.append(number)
            if answer is not None or not self.has_key(number):
                number += 1

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> EventId | None:
        headers = {"Idempotency-Key": f"thing-{number}"} if self.has_key(number) else {}
        body = {"type": "thing.made", "payload": {"number": number}}
        url = f"{self.place}/api/v1/events"
        try:
            async with session.post(url, json=body, headers=headers) as answer:
                if answer.ok:
                    return EventId((await answer.json())["event_id"])
                self.refused.append(f"{answer.status} {await answer.text()}")
        except (aiohttp.ClientError, TimeoutError):
            await spend(0.05)
        return None


@contextmanager
def publishing(place: str, *, clients: int) -> Iterator[Clients]:
    """Let clients publish beside the block; they have had their last answers when it is over."""
    given = Clients(place)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(given.publish(clients))
        except BaseException as error:  # noqa: BLE001 - it is raised where the test sees it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield given
    finally:
        given.is_over.set()
        thread.join()
    if failures:
        raise failures[0]
