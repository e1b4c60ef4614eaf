"""Data that has moved to another PostgreSQL server, whose transactions are counted anew."""

from __future__ import annotations

import subprocess

from redrive import NewEvent, Redrive
from tests.servers.postgres import Cluster, Database
from tests.waiting import PATIENCE_SECONDS

_COUNTER = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


async def test_a_restored_log_goes_on_where_it_ended(
    new_postgres_url: str, database: Database, postgres_cluster: Cluster
) -> None:
    schema = new_postgres_url.rpartition("=")[2]
    restored_url = f"{postgres_cluster.url}?schema={schema}"
    _get_ahead(database, of=postgres_cluster.database)
    app = Redrive(new_postgres_url)
    app.handler("order.*", name="ledger", order="park")(lambda _: None)
    async with app:
        before = await app.publish_many(
            [NewEvent(type="order.paid", payload=n, key=f"key {n % 2}") for n in range(4)]
        )

    _restore(database, postgres_cluster, schema)
    restored = Redrive(restored_url)
    restored.handler("order.*", name="ledger", order="park")(lambda _: None)
    try:
        async with restored:
            [_, _, _, position] = [one.position for one in await restored.operations.events()]
            keyed = await restored.publish("order.paid", 4, key="key 0")
            free = await restored.publish("order.paid", 5)
            events = await restored.operations.events()
            later = await restored.operations.events(after=position)
        async with restored:  # once is enough
            again = await restored.publish("order.paid", 6)
            last = (await restored.operations.events())[-1]
    finally:
        postgres_cluster.database.execute(f"DROP SCHEMA {schema} CASCADE")

    new = [keyed.event_id, free.event_id]
    assert [one.event.id for one in events] == [*(one.event_id for one in before), *new]
    assert [one.event.id for one in later] == new
    assert last.event.id == again.event_id


def _get_ahead(database: Database, *, of: Database) -> None:
    """Count more transactions than the other server has."""
    behind = max(0, of.value(_COUNTER) - database.value(_COUNTER))
    database.execute(
        "DO $$ BEGIN FOR i IN 1.." + str(behind + 1000) + " LOOP "
        "PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
    )


def _restore(database: Database, cluster: Cluster, schema: str) -> None:
    dump = subprocess.run(
        [cluster.program("pg_dump"), "--schema", schema, database.url],
        check=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    subprocess.run(
        [cluster.program("psql"), "-qX", "-v", "ON_ERROR_STOP=1", cluster.url],
        input=dump.stdout,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )
