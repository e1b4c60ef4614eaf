"""The store goes down under load, and comes back: everything is there, once, and in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from redrive import IdempotencyConflictError, Redrive, StoreUnavailableError, Tracking
from redrive.app.declaration import Ports
from redrive.clock import SystemClock
from redrive.errors import TransactionError
from redrive.journal.folder import FileState, files_of
from redrive.model.delivery import Status
from redrive.model.destination import Routes
from redrive.store import Admissions, Append, Entry, Query, Tried
from redrive.stores.memory import MemoryStore
from redrive.tracking.tracker import Tracker
from tests.tracking.sinks import Good
from tests.waiting import eventually


class Weak(MemoryStore):
    """A store that a test takes down: calls fail, or are carried out and their answer is lost."""

    is_down = False
    loses_answers = 0

    def _ask(self) -> None:
        if self.is_down:
            raise StoreUnavailableError("the store is down")

    async def open(self) -> None:
        self._ask()

    async def admit(self, wanted: Mapping[str, int]) -> Admissions:
        self._ask()
        return await super().admit(wanted)

    async def routes(self) -> Routes:
        self._ask()
        return await super().routes()

    async def take_over(self, batch: Sequence[Tried]) -> int:
        self._ask()
        made = await super().take_over(batch)
        if self.loses_answers:
            self.loses_answers -= 1
            raise StoreUnavailableError("applied, and the answer is lost")
        return made

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        self._ask()
        return await super().append(
            entries,
            routes_version=routes_version,
            all_or_nothing=all_or_nothing,
            within=within,
        )


class Shop:
    """An app on a weak store, with a sink past the store and one that keeps order."""

    def __init__(self, folder: Path) -> None:
        self.store = Weak(SystemClock())
        self.folder = folder
        self.app = Redrive("memory://", journal=folder, tracking=Tracking(rate=None))
        self.sink, self.ordered = Good(), Good(batch=1)
        self.app.destination("sink", "page.*", transport=self.sink)
        self.app.destination("ordered", "step.*", transport=self.ordered, order="park")

    async def pending(self, destination: str) -> list[str]:
        page = await self.store.find(
            Query(status=Status.PENDING, destination=destination), limit=10_000
        )
        return [one.event_id for one in page.deliveries]


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path / "journal")
    with shop.app.rewired(Ports(), lambda: shop.store):
        yield shop
        shop.store.is_down = False
        await shop.app.close()


async def drained(tracker: Tracker, records: int) -> None:
    await eventually(lambda: tracker.figures().drained >= records, what="the journal is drained")


@pytest.mark.parametrize("lost", [0, 2])
async def test_what_is_tracked_while_the_store_is_down_is_there_once(shop: Shop, lost: int) -> None:
    before = [shop.app.track("page.seen").event_id for _ in range(100)]
    await shop.app.flush()
    shop.store.is_down = True
    during, spilled = [], 0
    while spilled < 200:  # what is known of gates is used for a second
        during += [shop.app.track("page.seen").event_id for _ in range(20)]
        spilled = (await shop.app.flush()).spilled

    shop.store.loses_answers = lost
    shop.store.is_down = False
    await drained(shop.app.tracking, spilled)
    after = [shop.app.track("page.seen").event_id for _ in range(100)]
    figures = await shop.app.flush()

    stored = await shop.pending("sink")
    assert len(stored) == len(set(stored)) == spilled > 0
    assert {*shop.sink.taken, *stored} == {*before, *during, *after}
    assert len(shop.sink.taken) + len(stored) == 200 + len(during)
    assert figures.is_balanced
    assert figures.drained == spilled
    assert all(one.state is FileState.DRAINED for one in files_of(shop.folder))


async def test_what_keeps_an_order_does_not_overtake_what_is_in_the_journal(shop: Shop) -> None:
    tracked = []
    for phase in range(3):
        shop.store.is_down = phase == 1
        for number in range(30):
            tracked.append(shop.app.track("step.done", [phase, number], key="k").event_id)
            if number % 10 == 0:
                await shop.app.flush()
        await shop.app.flush()
    await drained(shop.app.tracking, shop.app.tracking.figures().spilled)

    log = await shop.store.read_key("k", limit=1000)
    assert [one.event.id for one in log] == tracked
    await shop.app.drain()
    assert shop.ordered.taken == tracked


async def test_a_publish_goes_to_the_journal_if_it_may(shop: Shop) -> None:
    async with shop.app:
        shop.store.is_down = True
        with pytest.raises(StoreUnavailableError):
            await shop.app.publish("page.seen", 1)
        journaled = await shop.app.publish("page.seen", 2, journal=True, idempotency_key="k")
        shop.store.is_down = False
        await drained(shop.app.tracking, 1)
        stored = await shop.app.publish("page.seen", 3, journal=True)
        again = await shop.app.publish("page.seen", 2, journal=True, idempotency_key="k")

        assert (journaled.is_journaled, stored.is_journaled) == (True, False)
        assert again.event_id == journaled.event_id
        assert again.is_duplicate
        assert sorted(await shop.pending("sink")) == sorted([journaled.event_id, stored.event_id])
        with pytest.raises(IdempotencyConflictError):
            await shop.app.publish("page.seen", 4, journal=True, idempotency_key="k")
        with pytest.raises(TransactionError, match="journal=True and within="):
            await shop.app.publish("page.seen", 5, journal=True, within=object())


async def test_an_outage_under_load_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    from tests.tracking.outage import suffer  # noqa: PLC0415 - it is made of this module's store

    await suffer(tmp_path / "journal", seconds=0.2)
