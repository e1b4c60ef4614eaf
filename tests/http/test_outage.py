"""An outage: the destination is down for a while, comes back, and is not knocked over again."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from redrive import NewEvent, Redrive, Retry
from redrive.model.delivery import Status
from redrive.model.gate import Open
from redrive.model.limits import Breaker
from redrive.observer import BreakerChanged, Claimed, Fact
from redrive.store import Query
from redrive.transports.http import http
from tests.http.receiver import receiving
from tests.scale import IS_LONG

SECONDS_DOWN = 10 if IS_LONG else 3
PER_SECOND = 100
RETRY_RATE, BURST = 50, 5
TOLERANCE = 1.15
"""The server sees requests a little later than their tokens were taken, so windows blur."""


class Service:
    """A web service that can be down; it keeps when what arrived, and what it answered."""

    def __init__(self) -> None:
        self.is_down = True
        self.seen: list[tuple[float, str, bool]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        self.seen.append((loop.time(), request.headers["webhook-id"], not self.is_down))
        return web.Response(status=503 if self.is_down else 204)


class Watching:
    """Keeps when tokens were taken, and every change of a breaker."""

    def __init__(self) -> None:
        self.claimed: list[float] = []
        self.changes: list[tuple[float, BreakerChanged]] = []

    def notice(self, fact: Fact) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(fact, Claimed):
            self.claimed += [now] * len(fact.deliveries)
        elif isinstance(fact, BreakerChanged):
            self.changes.append((now, fact))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    return str(request.getfixturevalue("postgres_url"))


async def test_a_destination_that_comes_back_is_not_knocked_over_again(store: str) -> None:
    service, watching = Service(), Watching()
    app = Redrive(store)
    app.observe(watching)
    async with receiving() as receiver:
        receiver.always(service.answer)
        app.destination(
            "crm",
            "order.*",
            transport=http(receiver.url, allow_private=True),
            retry=Retry(max_attempts=20, base="200ms", cap="1s"),
            breaker=Breaker(failures=5, open_for="1s", successes=3),
            retry_rate=f"{RETRY_RATE}/s",
        )
        published: list[str] = []
        async with app, app.worker():
            for _ in range(SECONDS_DOWN * 10):
                batch = [NewEvent(type="order.paid", payload=n) for n in range(PER_SECOND // 10)]
                published += [one.event_id for one in await app.publish_many(batch)]
                await _pass(0.1)
            service.is_down = False
            back = asyncio.get_running_loop().time()
            async with asyncio.timeout(SECONDS_DOWN * PER_SECOND / RETRY_RATE + 20):
                while len(published) > sum(ok for _, _, ok in service.seen):
                    await _pass(0.05)

        arrived = Counter(event_id for _, event_id, ok in service.seen if ok)
        assert arrived == Counter(published)

        most_taken = _most_within_a_second([when for when in watching.claimed if when >= back])
        most_seen = _most_within_a_second([when for when, _, _ in service.seen if when >= back])
        assert most_taken <= (RETRY_RATE + BURST) * TOLERANCE
        assert most_seen <= (RETRY_RATE + BURST) * TOLERANCE

        later = [fact.change for when, fact in watching.changes if when > back + 0.5]
        assert not any(isinstance(change.after, Open) for change in later)

        tries = Counter(event_id for _, event_id, _ in service.seen)
        page = await app.operations.deliveries(Query(status=Status.DELIVERED), limit=1000)
        spent = {str(one.event_id): one.attempts for one in page.deliveries}
        assert all(1 <= spent[one] <= count for one, count in tries.items())
        assert sum(not ok for _, _, ok in service.seen) < SECONDS_DOWN * PER_SECOND / 4
        await app.close()


async def _pass(seconds: float) -> None:
    """Let real time pass: the scenario is about it."""
    never = asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.wait([never], timeout=seconds)
    never.cancel()


def _most_within_a_second(instants: list[float]) -> int:
    return max(
        (sum(begin <= one < begin + 1.0 for one in instants) for begin in instants), default=0
    )
