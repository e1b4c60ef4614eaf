"""Processes that each live for one job tell each other of a destination that hangs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive import Redrive, Tracking
from redrive.app.store_factory import store_name
from redrive.model.delivery import Leased, Status
from redrive.model.outcome import Outcome
from redrive.store import Query, Tried
from redrive.stores.sqlite import SqliteStore
from redrive.tracking import hung
from redrive.tracking.hung import Hung
from tests.tracking.sinks import Good
from tests.tracking.sinks import Hung as HungSink


class Slow(Good):
    """Answers from elsewhere, and not at once."""

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        await asyncio.to_thread(str)
        return await super().send(deliveries)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Hung:
    monkeypatch.setattr(hung, "_shared", [])
    hung.share()
    shared = hung.shared()
    assert shared is not None
    return shared


def test_it_is_left_alone_for_twelve_times_as_long_as_somebody_has_waited(memory: Hung) -> None:
    memory.note("shop", "mail", waited=5.0, now=100.0)

    assert memory.is_hung("shop", "mail", now=159.9)
    assert not memory.is_hung("shop", "mail", now=160.1)
    assert not memory.is_hung("shop", "crm", now=101.0)
    assert not memory.is_hung("other", "mail", now=101.0)


def test_there_is_room_for_those_that_hang_now(memory: Hung) -> None:
    for number in range(1_000):
        memory.note("shop", f"mail-{number}", waited=5.0, now=float(number))

    assert memory.is_hung("shop", "mail-999", now=1_000.0)
    assert memory.is_hung("shop", "mail-950", now=1_000.0)


def test_a_parent_knows_what_its_child_has_found_out(memory: Hung) -> None:
    child = os.fork()
    if not child:
        memory.note("shop", "mail", waited=5.0, now=100.0)
        os._exit(0)
    os.waitpid(child, 0)

    assert memory.is_hung("shop", "mail", now=101.0)


@pytest.mark.usefixtures("memory")
async def test_what_is_left_of_an_event_and_where_it_has_arrived_is_one_write(
    sqlite_url: str, tmp_path: Path, memory: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[Sequence[Tried]] = []
    take_over = SqliteStore.take_over

    async def on_record(store: SqliteStore, batch: Sequence[Tried]) -> int:
        writes.append(batch)
        return await take_over(store, batch)

    monkeypatch.setattr(SqliteStore, "take_over", on_record)
    app = Redrive(sqlite_url, journal=tmp_path / "journal")
    app.destination("hung", "page.*", transport=HungSink())
    app.destination("good", "page.*", transport=Slow())
    memory.note(store_name(app.settings.store), "hung", waited=60.0, now=time.monotonic())

    async with app:
        app.track("page.seen", 1)

    [[rest, *arrivals]] = writes
    assert [one.destination for one in rest.rest] == ["hung"]
    assert {name for one in (rest, *arrivals) for name in one.arrived} == {"good"}


@pytest.mark.usefixtures("memory")
async def test_only_the_first_of_those_that_follow_each_other_waits_for_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    sink, asked = HungSink(), list[int]()
    for number in range(4):
        terms = Tracking(flush_limit="200ms", fan_out="200ms")
        app = Redrive(sqlite_url, journal=tmp_path / "journal", tracking=terms)
        app.destination("hung", "page.*", transport=sink)
        async with app:
            app.track("page.seen", number)
        asked.append(len(sink.asked))

    assert asked == [1, 1, 1, 1]
    async with Redrive(sqlite_url) as app:
        pending = (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries
    assert len(pending) == 4
