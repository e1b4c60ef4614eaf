"""A file that an older version has written: its letters are regrouped, and found by both groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from redrive import Query, Redrive
from redrive.model.retention import Retention
from redrive.observer import LettersRegrouped
from redrive.policies.fingerprint import GROUPING
from redrive.store import Grouping
from redrive.stores.sqlite import SqliteStore
from redrive.testing import FakeClock
from redrive.testing.fakes import InlineExecutor
from redrive.worker.maintenance import Housekeeper, Upkeep
from tests.app.recorder import Recorder

_FOR_EVER = timedelta(days=36_500)

MISFITS, ANSWERS, COLUMNS = "7323e364ff36", "d10cdb3d64a6", "e6e52fcc20d6"
"""The groups it wrote: fields that are missing, answers of a service, columns that are missing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file at schema 9 with eleven dead letters of six causes in three groups."""
    path = tmp_path / "old.db"
    connection = apsw.Connection(str(path))
    connection.execute((Path(__file__).parent / "old" / "schema_9.sql").read_text("utf-8"))
    connection.close()
    return path


def an_app(path: Path) -> tuple[Redrive, Recorder]:
    """Return an app that serves the old file, and what it tells."""
    app, recorder = Redrive(f"sqlite:///{path}"), Recorder()
    app.observe(recorder)
    app.handler("order.*", name="billing")(lambda event: None)
    app.handler("item.*", name="stock")(lambda event: None)
    return app, recorder


async def messages(app: Redrive, group: str) -> list[str]:
    """Return what the letters of a group say, resolved ones too."""
    query = Query(group=group, with_resolved=True)
    page = await app.operations.dead_letters(query)
    return sorted(one.fault.message for one in page.deliveries if one.fault)


class House:
    """The old file, a clock that obeys, and who keeps the house."""

    def __init__(self, path: Path) -> None:
        self.clock, self.recorder = FakeClock(), Recorder()
        self.store = SqliteStore(path, clock=self.clock)
        self.keeper = Housekeeper(
            self.store,
            "keeper",
            Upkeep(retention=Retention(events=_FOR_EVER, idempotency=_FOR_EVER, audit=_FOR_EVER)),
            clock=self.clock,
            executor=InlineExecutor(),
            observer=self.recorder,
        )

    async def outdated(self) -> int:
        return await self.store.outdated(before=GROUPING)

    @property
    def told(self) -> list[tuple[int, int]]:
        """How many were regrouped, and how many were left, each time it was told."""
        return [(one.count, one.left) for one in self.recorder.of(LettersRegrouped)]


@pytest.fixture
async def house(path: Path) -> AsyncIterator[House]:
    house = House(path)
    await house.store.open()
    yield house
    await house.store.close()


async def test_letters_of_an_older_version_are_regrouped_by_a_worker(path: Path) -> None:
    app, recorder = an_app(path)
    async with app:
        before = {one.id for one in await app.operations.groups()}
        outdated = await app.operations.outdated_groups()

        await app.drain()

        groups = await app.operations.groups()
        left = await app.operations.outdated_groups()

    assert (before, outdated, left) == ({MISFITS, ANSWERS, COLUMNS}, 11, 0)
    name = "msgspec.ValidationError: Object missing required field"
    assert {one.title: one.count for one in groups} == {
        f"{name} `total` (function.py, _open)": 3,
        f"{name} `number` (function.py, _open)": 2,  # and one that is resolved
        "ValueError: answered 502 for order # (shop.py, book)": 2,
        "ValueError: answered 401 for order # (shop.py, book)": 1,
        "ValueError: no column 'sku' (shop.py, book)": 1,
        "ValueError: no column 'iban' (shop.py, book)": 1,
    }
    assert all(one.id.startswith(GROUPING) for one in groups)
    assert [(one.count, one.left) for one in recorder.of(LettersRegrouped)] == [(11, 0)]


async def test_a_group_that_the_audit_log_names_still_finds_its_letters(path: Path) -> None:
    app, _ = an_app(path)
    async with app:
        [entry] = await app.operations.audit()
        before = {one: await messages(app, one) for one in (MISFITS, ANSWERS, COLUMNS)}

        await app.drain()

        after = {one: await messages(app, one) for one in before}
        selected = await app.operations.select(Query(group=ANSWERS))
        await app.operations.replay(selected, by="ada")
        tally = await app.drain()

    assert entry.why.endswith(MISFITS)
    assert [len(one) for one in before.values()] == [6, 3, 2]
    assert after == before
    assert tally.delivered == 3


async def test_much_is_regrouped_bit_by_bit_and_the_progress_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.worker.maintenance.housekeeper._BATCH", 4)

    left = [await house.outdated()]
    while left[-1]:
        rest = await house.keeper.tidy()
        left.append(await house.outdated())
        house.clock.advance(timedelta(seconds=rest))

    assert left == [11, 7, 3, 0]
    assert house.told == [(4, 7), (7, 0)]


async def test_once_all_is_regrouped_it_is_seldom_looked_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    regroup = house.store.regroup

    async def counted(grouped: Grouping, *, before: str, limit: int = 200) -> int:
        nonlocal looks
        looks += 1
        return await regroup(grouped, before=before, limit=limit)

    monkeypatch.setattr(house.store, "regroup", counted)

    for _ in range(4 * 60):  # an hour, four looks at the house each minute
        await house.keeper.tidy()
        house.clock.advance("15s")

    assert looks == 6
    assert house.told == [(11, 0)]
