"""Lanes on SQLite: what a lease writes, and files in which delivered work is still in its lane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from redrive.model.delivery import DeliveryId
from redrive.model.settlement import Delivered
from redrive.stores.sqlite import SqliteStore, claiming, schema
from tests.conformance import World, an_event
from tests.stores.test_migration import BACK_TO_VERSION_14

BACK_TO_VERSION_8 = (
    BACK_TO_VERSION_14
    + """
UPDATE redrive_deliveries SET lane = 'a' WHERE status = 2;
DROP INDEX redrive_lanes;
CREATE INDEX redrive_lanes ON redrive_deliveries (destination, lane, id)
    WHERE lane IS NOT NULL AND status <> 2 AND resolution IS NULL;
DROP TABLE redrive_group_aliases;
DROP INDEX redrive_grouped;
DROP INDEX redrive_next_due;
DROP TABLE redrive_publishing_schedules;
DROP TABLE redrive_standings;
DROP TABLE redrive_uniques;
DROP TABLE redrive_checkpoints;
DROP TABLE redrive_releases;
ALTER TABLE redrive_workers DROP COLUMN release;
UPDATE redrive_schema SET version = 8;
"""
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    path = tmp_path / "redrive.db"
    async with World.opened(lambda clock: SqliteStore(path, clock=clock), history=20) as world:
        yield world


@pytest.fixture
def file(tmp_path: Path, world: World) -> apsw.Connection:
    """What another program sees of the store."""
    assert world.store is not None
    return apsw.Connection(str(tmp_path / "redrive.db"))


async def a_lane(world: World, count: int) -> list[DeliveryId]:
    events = [an_event(key="a") for _ in range(count)]
    return list(await world.publish(*events, to="ledger"))


async def deliver_one(world: World) -> DeliveryId:
    leased = await world.claim_one("ledger")
    assert await world.settle(leased, Delivered()) == []
    return leased.lease.delivery_id


def in_lanes(file: apsw.Connection) -> int:
    return int(file.execute("SELECT count(lane) FROM redrive_deliveries").get)


async def test_a_lease_does_not_write_to_the_index_of_lanes(file: apsw.Connection) -> None:
    """Each delivery would pay for it twice: once out of the index and once into it again."""
    root = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'redrive_lanes'").get

    lease = claiming._LEASE  # noqa: SLF001 - what it writes
    steps = file.execute(f"EXPLAIN {lease}", ("w", 1, 0, 0, "[]")).fetchall()

    written = [step[3] for step in steps if step[1] == "OpenWrite"]
    assert written
    assert root not in written


async def test_what_is_delivered_has_left_its_lane(world: World, file: apsw.Connection) -> None:
    """Otherwise a lane would be searched along all that has ever gone through it."""
    ids = await a_lane(world, 3)

    delivered = [await deliver_one(world), await deliver_one(world)]

    assert delivered == ids[:2]
    assert in_lanes(file) == 1


async def test_what_an_older_worker_left_in_a_lane_stops_nobody(
    world: World, file: apsw.Connection
) -> None:
    ids = await a_lane(world, 3)
    await deliver_one(world)
    file.execute("UPDATE redrive_deliveries SET lane = 'a' WHERE status = 2")

    delivered = [await deliver_one(world), await deliver_one(world)]

    assert delivered == ids[1:]


async def test_a_file_in_which_delivered_work_is_in_lanes_goes_on(
    world: World, file: apsw.Connection
) -> None:
    ids = await a_lane(world, 3)
    await deliver_one(world)
    await world.store.close()
    file.execute(BACK_TO_VERSION_8)

    await world.store.open()

    assert schema.schema_version(file) == schema.LATEST
    assert in_lanes(file) == 2
    assert [await deliver_one(world), await deliver_one(world)] == ids[1:]
