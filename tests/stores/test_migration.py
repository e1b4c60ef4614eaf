"""A file of an earlier schema, with work in it, goes on after it was brought up to date."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from redrive.model.delivery import Status
from redrive.model.settlement import Delivered
from redrive.store import Ending, Entry
from redrive.stores.sqlite import SqliteStore, schema
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR, blame, ids_of

BACK_TO_VERSION_14 = """
DROP TABLE redrive_encryption;
ALTER TABLE redrive_events DROP COLUMN erased_at;
DROP TABLE redrive_request_log;
DROP TRIGGER redrive_delivery_removed_with_addressees;
DROP TABLE redrive_addressees;
DROP TABLE redrive_projection_edits;
DROP TABLE redrive_gateway;
DELETE FROM redrive_counters WHERE name = 'gateway_revision';
ALTER TABLE redrive_deliveries DROP COLUMN rule;
DROP TABLE redrive_trends;
DROP TABLE redrive_shared_rates;
ALTER TABLE redrive_gates DROP COLUMN override;
ALTER TABLE redrive_gates DROP COLUMN override_until;
DROP TABLE redrive_secrets;
DROP TABLE redrive_access_tokens;
DROP TABLE redrive_users;
DROP TABLE redrive_sessions;
DROP TABLE redrive_login_attempts;
DROP VIEW redrive_kept_counts;
DROP VIEW redrive_uncounted;
DROP VIEW redrive_recount;
DROP VIEW redrive_countable;
DROP TRIGGER redrive_count_settled;
DROP TRIGGER redrive_count_changed;
DROP TRIGGER redrive_count_removed;
DROP TRIGGER redrive_count_given;
DROP TRIGGER redrive_count_pruned;
DROP TABLE redrive_counts;
DELETE FROM redrive_counters WHERE name LIKE 'counted_%';
ALTER TABLE redrive_deliveries DROP COLUMN counted;
CREATE TRIGGER redrive_count_delivered AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 2 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET delivered = delivered + 1 WHERE id = new.replay;
END;
CREATE TRIGGER redrive_count_failed AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 3 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET failed = failed + 1 WHERE id = new.replay;
END;
"""
BACK_TO_VERSION_4 = (
    BACK_TO_VERSION_14
    + """
DROP INDEX redrive_ready;
DROP INDEX redrive_waiting_tenants;
DROP INDEX redrive_next_due;
DROP INDEX redrive_letters_in_order;
DROP TABLE redrive_tenants;
DROP TABLE redrive_tenant_pauses;
DROP TABLE redrive_keys;
ALTER TABLE redrive_events DROP COLUMN version;
DROP TABLE redrive_inbox;
DROP TABLE redrive_group_aliases;
DROP INDEX redrive_grouped;
DROP TABLE redrive_publishing_schedules;
DROP TABLE redrive_standings;
DROP TABLE redrive_uniques;
DROP TABLE redrive_checkpoints;
DROP TABLE redrive_releases;
ALTER TABLE redrive_workers DROP COLUMN release;
CREATE INDEX redrive_ready ON redrive_deliveries (destination, generation, kind, priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2;
UPDATE redrive_destinations SET document = json_remove(document, '$.fairness');
UPDATE redrive_gates SET document = json_remove(document, '$.rotation');
UPDATE redrive_schema SET version = 4, oldest_code = 4;
"""
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    path = tmp_path / "redrive.db"
    async with World.opened(lambda clock: SqliteStore(path, clock=clock), history=20) as world:
        yield world


async def grow_old(world: World, tmp_path: Path) -> None:
    """Close the store and make its file one of schema version 4, before tenants took turns."""
    await world.store.close()
    connection = apsw.Connection(str(tmp_path / "redrive.db"))
    connection.execute(BACK_TO_VERSION_4)
    assert schema.schema_version(connection) == 4
    connection.close()


async def test_work_in_every_state_goes_on_after_the_migration(
    world: World, tmp_path: Path
) -> None:
    suspect = await world.suspect(to="mailing")
    [delivered] = await world.publish(an_event(tenant="a"))
    await world.settle(await world.claim_one(), Delivered())
    [in_flight] = await world.publish(an_event(tenant="a"))
    flying = await world.claim_one()
    [retrying] = await world.publish(an_event(tenant="b"))
    await world.retry(await world.claim_one(), "10s")
    replayed = await world.dead_letter(an_event(tenant="b"))
    await world.store.replay([replayed], actor=OPERATOR)
    leased = await world.claim_one()
    await world.retry(leased, "0s")
    resolved = await world.dead_letter(an_event(tenant="c"), to="mailing")
    await world.store.resolve([resolved], actor=OPERATOR)
    dead = await world.dead_letter(an_event(tenant="c"), to="mailing")
    head, behind = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
    fresh = await world.publish(an_event(tenant="a"), an_event(tenant="b", priority=5), an_event())
    [delayed] = await world.publish(an_event(tenant="c", due=world.after("20s")))
    [expiring] = await world.publish(
        an_event(tenant="c", due=world.after("1h"), deadline=world.after("5s"))
    )
    await world.store.pause("mailing", actor=OPERATOR)
    before = await world.store.figures()

    await grow_old(world, tmp_path)
    await world.reopen()

    assert await world.store.figures() == before
    assert world.store.schema_version == schema.LATEST
    assert not await world.settle(flying, Delivered())
    assert (await world.show(delivered)).status is Status.DELIVERED
    assert (await world.show(in_flight)).status is Status.DELIVERED
    without, of_a, of_b = fresh[2], fresh[0], fresh[1]
    assert ids_of(await world.claim()) == [without, of_a, of_b, replayed]
    assert (await world.claim("mailing")).deliveries == ()
    await world.store.resume("mailing", actor=OPERATOR)
    assert ids_of(await world.claim("mailing", alone=True)) == [suspect]
    [first] = (await world.claim("ledger")).deliveries
    assert first.lease.delivery_id == head
    await world.settle(first, Delivered())
    assert ids_of(await world.claim("ledger")) == [behind]
    assert await world.store.replay([dead, resolved], actor=OPERATOR) == [dead]
    world.clock.advance("10s")
    assert [one.id for one in await world.store.expire(blame=blame)] == [expiring]
    assert ids_of(await world.claim()) == [retrying]
    world.clock.advance("10s")
    assert ids_of(await world.claim()) == [delayed]


async def test_stores_that_start_at_once_on_an_old_file_migrate_it_once(
    world: World, tmp_path: Path
) -> None:
    ids = await world.publish(*[an_event(tenant=f"t{number}") for number in range(5)])
    await grow_old(world, tmp_path)
    stores = [SqliteStore(tmp_path / "redrive.db", clock=world.clock) for _ in range(4)]

    await asyncio.gather(*[store.open() for store in stores])

    assert {store.schema_version for store in stores} == {schema.LATEST}
    for store in stores:
        await store.close()
    await world.reopen()
    assert ids_of(await world.claim(lease=timedelta(minutes=1))) == list(ids)


async def test_events_of_an_old_file_are_numbered_within_their_keys(
    world: World, tmp_path: Path
) -> None:
    keys = ("a", "b", "a", None, "a")
    await world.append(entries(*[an_event(key=key, idempotency_key=key) for key in keys[:2]]))
    await world.append(entries(*[an_event(key=key) for key in keys[2:]], to=["ledger"]))

    await grow_old(world, tmp_path)
    await world.reopen()

    logged = await world.logged(5)
    again, new = await world.receipts(
        [
            *entries(an_event(key="a", idempotency_key="a")),
            Entry(an_event(key="a"), ("billing",), 3),
        ]
    )
    assert [one.version for one in logged] == [1, 1, 2, None, 3]
    assert (again.version, again.is_duplicate) == (1, True)
    assert new.version == 4


async def test_rounds_that_an_older_worker_forgot_are_not_counted_backwards(
    world: World, tmp_path: Path
) -> None:
    await world.publish(*[an_event(tenant=name) for name in "ab" for _ in range(20)])
    for _ in range(5):
        await world.claim(total=6)
    connection = apsw.Connection(str(tmp_path / "redrive.db"))
    connection.execute("UPDATE redrive_gates SET document = json_remove(document, '$.rotation')")
    connection.close()

    waited = [one.rounds_waited for one in await world.store.tenants()]

    assert waited == [0, 0]
    assert len((await world.claim(total=6)).deliveries) == 6


async def test_a_worker_of_the_release_before_can_go_on_beside_a_new_one(
    world: World, tmp_path: Path
) -> None:
    """Its way to ask for work still finds all of it, if not in turns."""
    ids = await world.publish(*[an_event(tenant=name) for name in ("b", "a")])
    connection = apsw.Connection(str(tmp_path / "redrive.db"))

    found = connection.execute(
        "SELECT id FROM redrive_deliveries WHERE destination = 1 AND generation = 'default' "
        "AND kind = 0 AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2 "
        "ORDER BY priority DESC, id LIMIT 10"
    ).fetchall()
    connection.close()

    assert [number for (number,) in found] == list(ids)


async def test_work_of_an_old_file_may_be_done_by_an_effect(world: World, tmp_path: Path) -> None:
    async def effect(connection: object) -> bool:
        return True

    await world.publish(an_event())
    leased = await world.claim_one()
    await grow_old(world, tmp_path)
    await world.reopen()

    ending = await world.store.apply(leased, effect, at_most=timedelta(seconds=5))

    assert ending is Ending.APPLIED
