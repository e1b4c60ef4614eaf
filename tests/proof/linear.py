"""Whether claims and settlements of clients at the same time have an order that explains them.

Each client notes when it asked and when it was answered. A history is right if there is one order
of all calls, each at some moment between its question and its answer, in which a single queue
would have given the same answers (Wing and Gong's check, by plain search).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive.app.config import Settings
from redrive.app.declaration import Ports
from redrive.app.store_factory import StoreFactory
from redrive.clock import SystemClock
from redrive.model.delivery import DeliveryId, Lease, Status
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.settlement import Delivered, Settlement, Snoozed
from redrive.observer import Observers
from redrive.store import (
    Allowance,
    Appended,
    ClaimRequest,
    Entry,
    Query,
    Settled,
    Store,
)
from tests.proof.grounds import Site

__all__ = ["Call", "explain", "history_of_processes", "history_of_tasks"]

ROOT = Path(__file__).parents[2]
EVENTS = 3
_LEASE = timedelta(minutes=10)
_MOST_TOKENS = 3


class Call(NamedTuple):
    """One call of one client; `leases` are pairs of a delivery and a token.

    What a claim leased, or whose settlement was accepted or refused.
    """

    client: int
    asked: int
    answered: int
    what: str
    leases: tuple[tuple[int, int], ...]
    is_accepted: bool = True


class _Place(NamedTuple):
    """Where a delivery is: its last token, and whether that lease is current."""

    token: int = 0
    flies: bool = False
    is_done: bool = False


State = tuple[tuple[int, _Place], ...]


def explain(calls: Sequence[Call]) -> list[Call] | None:
    """Return an order that explains the answers, or nothing if there is none."""
    ids = sorted({number for call in calls for number, _ in call.leases})
    start: State = tuple((number, _Place()) for number in ids)
    dead_ends: set[tuple[frozenset[int], State]] = set()

    def search(left: frozenset[int], state: State) -> list[Call] | None:
        if not left:
            return []
        if (left, state) in dead_ends:
            return None
        first_answer = min(calls[one].answered for one in left)
        for one in sorted(left):
            if calls[one].asked > first_answer:
                continue  # somebody else was answered before this one asked
            after = _after(state, calls[one])
            if after is not None:
                rest = search(left - {one}, after)
                if rest is not None:
                    return [calls[one], *rest]
        dead_ends.add((left, state))
        return None

    return search(frozenset(range(len(calls))), start)


def _after(state: State, call: Call) -> State | None:
    """Return what a queue is like after a call, or nothing if it would have answered otherwise."""
    places = dict(state)
    for number, token in call.leases:
        place = places[number]
        if call.what == "claim":
            if place.flies or place.is_done or token != place.token + 1:
                return None
            places[number] = _Place(token, flies=True)
            continue
        is_current = place.flies and place.token == token
        if is_current is not call.is_accepted:
            return None
        if is_current:
            places[number] = _Place(token, is_done=call.what == "deliver")
    return tuple(places.items())


class _Client:
    """Claims, settles what it has, and tries to settle what others may have."""

    def __init__(self, number: int, store: Store, ids: Sequence[int], seed: str) -> None:
        self._number = number
        self._store = store
        self._ids = ids
        self._rng = random.Random(f"{seed}/{number}")  # noqa: S311 - a test that repeats itself
        self._mine: list[Lease] = []
        self.calls: list[Call] = []

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            match self._rng.choice(["claim", "claim", "deliver", "snooze", "release", "guess"]):
                case "claim":
                    await self._claim()
                case "guess":
                    token = self._rng.randint(1, _MOST_TOKENS)
                    lease = Lease(DeliveryId(self._rng.choice(self._ids)), token)
                    await self._end("deliver", lease)
                case what:
                    if self._mine:
                        await self._end(what, self._mine.pop())

    async def _claim(self) -> None:
        asked = time.monotonic_ns()
        claim = await self._store.claim(
            ClaimRequest(
                worker=f"client-{self._number}",
                allowances=(Allowance(destination="proof", total=self._rng.randint(1, 2)),),
                generations=("default",),
                limit=1_000,
                lease=_LEASE,
            )
        )
        leases = [one.lease for one in claim.deliveries]
        self._mine += leases
        pairs = tuple((one.delivery_id, one.token) for one in leases)
        self.calls.append(Call(self._number, asked, time.monotonic_ns(), "claim", pairs))

    async def _end(self, what: str, lease: Lease) -> None:
        asked = time.monotonic_ns()
        if what == "release":
            refused = await self._store.release([lease])
        else:
            now = SystemClock().now()
            settlement: Settlement = Delivered() if what == "deliver" else Snoozed(until=now)
            refused = await self._store.settle([Settled(lease=lease, settlement=settlement)])
        pairs = ((lease.delivery_id, lease.token),)
        self.calls.append(
            Call(self._number, asked, time.monotonic_ns(), what, pairs, is_accepted=not refused)
        )


async def _prepare(site: Site) -> list[int]:
    """Publish a few events that nobody has claimed yet; return the ids of their deliveries."""
    store = site.make(SystemClock())
    await store.open()
    try:
        destination = Destination(name="proof", patterns=("thing.*",))
        version = (await store.register([destination])).version
        now = SystemClock().now()
        events = [
            Event(
                id=EventId(f"01940000-0000-7000-8000-{number:012x}"),
                type="thing.made",
                payload=msgspec.Raw(b"1"),
                published_at=now,
                occurred_at=now,
            )
            for number in range(EVENTS)
        ]
        entries = [Entry(event, ("proof",)) for event in events]
        answer = await store.append(entries, routes_version=version, all_or_nothing=True)
        assert isinstance(answer, Appended)
        page = await store.find(Query(status=Status.PENDING))
        return sorted(one.id for one in page.deliveries)
    finally:
        await store.close()


async def _run_clients(
    stores: Sequence[Store], ids: Sequence[int], seed: str, *, steps: int, first: int = 0
) -> list[Call]:
    clients = [_Client(first + n, store, ids, seed) for n, store in enumerate(stores)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(one.run(steps) for one in clients))
    finally:
        await asyncio.gather(*(store.close() for store in stores))
    return [call for one in clients for call in one.calls]


def history_of_tasks(site: Site, *, clients: int, steps: int, seed: str) -> list[Call]:
    """Let clients of one process loose on a site, each with a store of its own."""

    async def run() -> list[Call]:
        ids = await _prepare(site)
        stores = [site.make(SystemClock()) for _ in range(clients)]
        return await _run_clients(stores, ids, seed, steps=steps)

    return asyncio.run(run())


def history_of_processes(site: Site, *, processes: int, steps: int, seed: str) -> list[Call]:
    """Let processes loose on a site, each with two clients; they begin at the same moment."""
    ids = asyncio.run(_prepare(site))
    started = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.proof.linear", site.url, json.dumps(ids)),
                *(seed, str(steps), str(2 * number)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(processes)
    ]
    calls: list[Call] = []
    try:
        for child in started:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        for child in started:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        for child in started:
            calls += msgspec.json.decode(child.communicate(timeout=60)[0], type=list[Call])
    finally:
        for child in started:
            child.kill()
            child.communicate()
    return calls


async def _work_as_child(url: str, ids: list[int], seed: str, steps: int, first: int) -> None:
    maker = StoreFactory(Ports(), Observers(), str)
    stores = [maker.make(Settings(store=url)) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    calls = await _run_clients(stores, ids, seed, steps=steps, first=first)
    sys.stdout.buffer.write(msgspec.json.encode(calls))


if __name__ == "__main__":
    _url, _ids, _seed, _steps, _first = sys.argv[1:]
    asyncio.run(_work_as_child(_url, json.loads(_ids), _seed, int(_steps), int(_first)))
