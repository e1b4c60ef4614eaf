"""A user that may not do all of the work is told what to have granted, and then may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from redrive import Redrive, Retry, SchemaError, StoreUnavailableError, Terminal
from redrive.clock import SystemClock
from redrive.errors import StoreError
from redrive.store import Finding, Level
from redrive.stores.postgres import PostgresStore, read_address, schema
from tests.servers.postgres import Database


class Lowly:
    """A user of the server that may log in, and no more until it is granted."""

    def __init__(self, url: str, database: Database) -> None:
        self.schema = read_address(url).schema
        self.name = f"{self.schema}_lowly"
        parts = urlsplit(url)
        where = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit(parts._replace(netloc=f"{self.name}@{where}"))
        self._database = database

    def grant(self, *rights: str) -> None:
        for one in rights:
            self._database.execute(f'GRANT {one} {self.schema} TO "{self.name}"')

    def be_granted(self, said: str) -> None:
        """Do what was advised, word for word."""
        statements = re.findall(r"GRANT [^;]+;", said)
        assert statements
        self._database.execute(" ".join(statements))

    def app(self) -> Redrive:
        app = Redrive(self.url)

        @app.handler("order.*", name="billing", retry=Retry(max_attempts=1))
        async def bill(event: object) -> None:
            raise Terminal("no")

        @app.handler("order.*", name="ledger", order="park")
        async def book(event: object) -> None: ...

        return app

    async def examine(self) -> list[Finding]:
        store = PostgresStore(self.url, clock=SystemClock())
        await store.open()
        try:
            found = await store.check()
            return [one for one in found if one.level is Level.ERROR and "GRANT" in one.advice]
        finally:
            await store.close()


@pytest.fixture
def lowly(new_postgres_url: str, database: Database) -> Iterator[Lowly]:
    one = Lowly(new_postgres_url, database)
    database.execute(f'CREATE ROLE "{one.name}" LOGIN')
    try:
        yield one
    finally:
        database.execute(f'DROP OWNED BY "{one.name}"; DROP ROLE "{one.name}"')


@pytest.fixture
async def made(new_postgres_url: str) -> None:
    """A store that its owner has created."""
    store = PostgresStore(new_postgres_url, clock=SystemClock())
    await store.open()
    await store.close()


async def work(app: Redrive) -> None:
    """Do something of every kind."""
    async with app:
        for number in range(3):
            await app.publish("order.paid", number, key="k", idempotency_key=str(number))
        await app.drain()
        operations = app.operations
        ids = await operations.select()
        assert len(ids) == 3
        await operations.replay(ids[:1], by="ann")
        await operations.pause("billing", by="ann", why="to try")
        await operations.resume("billing", by="ann", why="tried")
        await operations.start_replay(ids[1:], by="ann")
        await app.drain()
        await operations.resolve(ids[:1], by="ann", why="by hand")
        await operations.delete(ids[1:2], by="ann", why="by hand")
        await operations.prune()


@pytest.mark.usefixtures("made")
async def test_the_doctor_names_what_a_user_that_only_reads_lacks_and_that_is_enough(
    lowly: Lowly,
) -> None:
    lowly.grant("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA")

    (finding,) = await lowly.examine()
    lowly.be_granted(finding.advice)

    assert f"The user {lowly.name} may not read and change all of the schema" in finding.what
    assert "the tables access_tokens, addressees, audit, checkpoints, count_changes" in finding.what
    assert "the sequences " in finding.what
    assert await lowly.examine() == []
    await work(lowly.app())


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("rights", "lacks"),
    [
        (
            ("SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA",),
            "the tables access_tokens, addressees, audit",
        ),
        (("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA",), "the sequences "),
    ],
    ids=["deletes", "sequences"],
)
async def test_the_doctor_names_single_rights(
    rights: tuple[str, ...], lacks: str, lowly: Lowly
) -> None:
    lowly.grant("USAGE ON SCHEMA", *rights)

    (finding,) = await lowly.examine()

    assert lacks in finding.what


@pytest.mark.usefixtures("made")
async def test_the_doctor_names_functions_that_a_user_may_not_call(
    lowly: Lowly, database: Database
) -> None:
    lowly.be_granted(read_address(lowly.url).grants())
    database.execute(
        f'REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {lowly.schema} FROM PUBLIC, "{lowly.name}"'
    )

    (finding,) = await lowly.examine()

    assert "the functions count_changed, count_detail" in finding.what


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "rights", [(), ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA")], ids=["none", "reading"]
)
async def test_who_publishes_or_delivers_is_told_in_a_sentence_what_to_have_granted(
    rights: tuple[str, ...], lowly: Lowly
) -> None:
    lowly.grant(*rights)

    app = lowly.app()
    try:
        with pytest.raises(StoreUnavailableError, match="This user may not do that") as published:
            await app.publish("order.paid")
        with pytest.raises(StoreUnavailableError, match="This user may not do that"):
            await app.drain()
    finally:
        await app.close()
    lowly.be_granted(str(published.value))

    assert f'ON ALL TABLES IN SCHEMA {lowly.schema} TO "{lowly.name}"' in str(published.value)
    await work(lowly.app())


@pytest.mark.usefixtures("made")
async def test_a_user_that_may_not_bring_an_older_schema_up_to_date_is_told_who_may(
    lowly: Lowly, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowly.be_granted(read_address(lowly.url).grants())
    found = schema.LATEST
    monkeypatch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, ("more.sql", 1)))  # noqa: SLF001
    monkeypatch.setattr(schema, "LATEST", found + 1)
    monkeypatch.setattr(schema, "_script", lambda name: "ALTER TABLE redrive.audit ADD x integer")

    with pytest.raises(SchemaError) as refusal:
        await lowly.examine()

    assert f"has schema version {found}, this Redrive needs {found + 1}" in str(refusal.value)
    assert "Run `redrive init` of this version once as the owner" in str(refusal.value)


@pytest.mark.usefixtures("made")
async def test_a_schema_of_a_newer_release_is_refused_with_the_command_that_helps(
    new_postgres_url: str, database: Database
) -> None:
    name = read_address(new_postgres_url).schema
    database.execute(f"UPDATE {name}.schema SET version = 1000, oldest_code = 1000")

    with pytest.raises(StoreError, match="made by a newer Redrive") as refusal:
        await PostgresStore(new_postgres_url, clock=SystemClock()).open()

    assert isinstance(refusal.value, SchemaError)
    assert str(refusal.value).endswith("Upgrade with: pip install --upgrade redrive")
