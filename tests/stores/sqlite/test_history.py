"""The index of keys on SQLite, which only those who read histories pay for."""

from pathlib import Path

import apsw

from redrive import Redrive


def uses_the_index(file: Path) -> bool:
    connection = apsw.Connection(str(file))
    rows = connection.execute(
        "EXPLAIN QUERY PLAN SELECT document FROM redrive_events "
        "WHERE key = 'a' AND version > 0 ORDER BY version"
    ).fetchall()
    connection.close()
    return any("redrive_events_of_key" in str(row[3]) for row in rows)


async def test_who_first_reads_a_history_makes_the_index(tmp_path: Path) -> None:
    file = tmp_path / "redrive.db"
    async with Redrive(f"sqlite:///{file}") as app:
        await app.publish("order.paid", key="a")
        await app.log.read()
        before = uses_the_index(file)

        history = await app.log.history("a")

        assert [one.version for one in history] == [1]
        assert (before, uses_the_index(file)) == (False, True)


async def test_a_file_that_has_the_index_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "redrive.db"
    for count in (1, 2):
        async with Redrive(f"sqlite:///{file}") as app:
            await app.publish("order.paid", key="a")

            assert len(await app.log.history("a")) == count
