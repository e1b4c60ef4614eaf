"""The whole way of what is tracked: to its destinations, and what fails to the store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from redrive import Breaker, Redrive
from redrive.model.delivery import Kind, Status
from redrive.model.gate import Open
from redrive.store import Query
from redrive.tracking.terms import Tracking
from tests.tracking.sinks import Dead, Good, Hung


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def make_app(store: str, journal: Path, **terms: object) -> Redrive:
    return Redrive(store, journal=journal, tracking=Tracking(**terms))  # type: ignore[arg-type]


async def test_what_is_tracked_arrives_and_leaves_nothing_in_the_store(
    store: str, journal: Path
) -> None:
    app, good = make_app(store, journal), Good()
    app.destination("sink", "page.*", transport=good)

    async with app:
        tracked = [app.track("page.seen", {"n": number}) for number in range(250)]
        figures = await app.flush()

        assert good.taken == [one.event_id for one in tracked]
        assert (figures.tracked, figures.sent, figures.waiting) == (250, 250, 0)
        assert figures.destinations["sink"].arrived == 250
        assert figures.is_balanced
        assert await app.operations.events() is not None
        assert (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries == ()
    assert good.threads == {"redrive-tracking"}
    assert list(journal.parent.glob("journal/*")) == []


async def test_what_fails_is_in_the_store_with_its_try_and_goes_on_as_a_delivery(
    store: str, journal: Path
) -> None:
    app, good, dead = make_app(store, journal), Good(), Dead()
    app.destination("sink", "page.*", transport=good)
    app.destination("dead", "page.*", transport=dead)

    async with app:
        tracked = app.track("page.seen", {"n": 1}, key="k", tenant="acme")
        figures = await app.flush()
        page = await app.operations.deliveries(Query(status=Status.PENDING))

    (delivery,) = page.deliveries
    assert (delivery.event_id, delivery.destination) == (tracked.event_id, "dead")
    assert (delivery.attempts, delivery.kind) == (1, Kind.RETRY)
    (attempt,) = delivery.log
    assert attempt.fault is not None
    assert attempt.fault.error_class == "ConnectionError"
    assert attempt.worker == "tracking"
    assert (figures.stored, figures.sent, figures.tracked) == (1, 0, 1)
    assert figures.destinations["dead"].failed == 1
    assert good.taken == [tracked.event_id]
    assert figures.shares == {"0.5": 1}


async def test_a_hung_destination_delays_no_other(store: str, journal: Path) -> None:
    app, good, hung = make_app(store, journal, fan_out="200ms"), Good(), Hung()
    app.destination("sink", "page.*", transport=good)
    app.destination("hung", "page.*", transport=hung)

    async with app:
        tracked = [app.track("page.seen", {"n": number}) for number in range(150)]
        figures = await app.flush("10s")
        pending = (
            await app.operations.deliveries(Query(status=Status.PENDING), limit=500)
        ).deliveries

    assert good.taken == [one.event_id for one in tracked]
    assert len(pending) == 150
    assert {one.destination for one in pending} == {"hung"}
    assert figures.stored == 150
    there = figures.destinations["hung"]
    assert there.failed + there.held == 150
    assert there.failed == len(hung.asked) == sum(one.attempts for one in pending)
    assert figures.is_balanced


@pytest.mark.parametrize("of_thread", [True, False])
async def test_it_may_be_called_from_any_thread_and_loop(
    sqlite_url: str, journal: Path, *, of_thread: bool
) -> None:
    app, good = make_app(sqlite_url, journal), Good()
    app.destination("sink", "page.*", transport=good)

    def track() -> None:
        async def inside() -> None:
            app.track("page.seen")

        app.track("page.seen")
        asyncio.run(inside())

    if of_thread:
        threads = [threading.Thread(target=track) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    else:
        for _ in range(4):
            await asyncio.to_thread(track)
    figures = await app.flush()
    await app.close()

    assert (figures.tracked, figures.sent) == (8, 8)
    assert len(good.taken) == 8


async def test_without_a_way_of_its_own_a_process_leaves_it_to_the_store(
    sqlite_url: str, journal: Path
) -> None:
    worker = Redrive(sqlite_url)
    seen = []

    @worker.handler("page.*", name="elsewhere")
    async def elsewhere(event: object) -> None:
        seen.append(event)

    async with worker:
        pass
    app = make_app(sqlite_url, journal)

    async with app:
        app.track("page.seen", {"n": 1})
        figures = await app.flush()

    assert figures.destinations["elsewhere"].held == 1
    async with worker:
        await worker.drain()
    assert len(seen) == 1


async def test_ordered_and_paused_destinations_go_through_the_store_untried(
    store: str, journal: Path
) -> None:
    app, ordered, paused = make_app(store, journal), Good(), Good()
    app.destination("ordered", "page.*", transport=ordered, order="park")
    app.destination("paused", "page.*", transport=paused)

    async with app:
        await app.operations.pause("paused", by="ada", why="maintenance")
        app.track("page.seen", key="k")
        figures = await app.flush()
        pending = (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries

        assert sorted((one.destination, one.attempts) for one in pending) == [
            ("ordered", 0),
            ("paused", 0),
        ]
        assert figures.stored == 1
    assert (ordered.taken, paused.taken) == ([], [])


async def test_what_nobody_wants_is_counted(store: str, journal: Path) -> None:
    app = make_app(store, journal)
    app.destination("sink", "page.*", transport=Good())

    async with app:
        app.track("nothing.known")
        figures = await app.flush()

    assert figures.dropped == {"unrouted": 1}
    assert figures.is_balanced


async def test_what_was_tracked_a_moment_before_the_end_is_sent_all_the_same(
    sqlite_url: str, journal: Path
) -> None:
    app, good = make_app(sqlite_url, journal), Good()
    app.destination("sink", "page.*", transport=good)
    async with app:
        app.track("page.seen")

    assert (len(good.taken), app.tracking.figures().sent) == (1, 1)
    assert list(journal.parent.glob("journal/*")) == []


async def test_processes_that_end_beside_a_hung_destination_find_out_that_it_is_down(
    sqlite_url: str, journal: Path
) -> None:
    """Or each of them, such as those of jobs, would wait for it again."""
    hung, app = Hung(), make_app(sqlite_url, journal)
    for number in range(7):
        app = make_app(sqlite_url, journal, fan_out="100ms", flush_limit="90ms")
        app.destination("hung", "page.*", transport=hung, breaker=Breaker(failures=3))
        async with app:
            await app.operations.status()
            app.track("page.seen", number)

    assert len(hung.asked) < 7
    async with app:
        (gate,) = await app.operations.gates()
        pending = (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries
    assert isinstance(gate.gate.breaker, Open)
    assert len(pending) == 7
