"""The command line on PostgreSQL: it works, and what is wrong is told in one sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.cli.shell import Answer, Shell, Shop, ids
from tests.servers.daemon import free_port
from tests.servers.postgres import Cluster, Database
from tests.waiting import PATIENCE_SECONDS

_FILL_DISK = """
CREATE FUNCTION {schema}.no_space() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.events EXECUTE FUNCTION {schema}.no_space();
"""


class PostgresShop(Shop):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.schema = url.rpartition("=")[2]


@pytest.fixture
def shop(new_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> PostgresShop:
    shop = PostgresShop(new_postgres_url)
    monkeypatch.setenv("REDRIVE_STORE", shop.url)
    return shop


def with_(url: str, **parts: str) -> str:
    return urlunsplit(urlsplit(url)._replace(**parts))


def sentence(answer: Answer) -> str:
    """Return the one line that a command ended with."""
    assert (answer.code, answer.out) == (3, "")
    assert "Traceback" not in answer.err
    return " ".join(answer.err.split())


def test_a_dead_letter_is_made_seen_replayed_and_resolved(shell: Shell, shop: PostgresShop) -> None:
    created = shell("init")
    shop.deliver({"error": "refused"}, {"error": "refused"}, {"order": 3})

    [first, second] = sorted(ids(shell("dlq", "list", "--json")))
    shown = shell("dlq", "show", str(first))
    replayed = shell("dlq", "replay", str(first), "--by", "ann")
    resolved = shell("dlq", "resolve", str(second), "--by", "ann", "--why", "by hand")
    status = shell("status", "--json")

    assert created.code == 0
    assert f"(schema {shop.schema}) is ready, with schema version" in " ".join(created.out.split())
    assert "ConnectionError" in shown.out
    assert (replayed.code, resolved.code) == (0, 0)
    [billing, _] = status.json["destinations"]
    assert (billing["delivered"], billing["pending"], billing["resolved"]) == (1, 1, 1)
    assert [one["action"] for one in shell("audit", "--json").json["entries"]][:1] == ["resolve"]


def test_a_destination_is_paused_and_resumed(shell: Shell, shop: PostgresShop) -> None:
    shop.publish({"order": 1})

    paused = shell("destination", "pause", "billing", "--why", "they asked")
    listed = shell("destination", "list")
    resumed = shell("destination", "resume", "billing")

    assert (paused.code, resumed.code) == (0, 0)
    assert "paused" in listed.out


def test_one_frame_of_the_live_picture_is_printed(shell: Shell, shop: PostgresShop) -> None:
    shop.publish({"order": 1})

    answer = shell("top", "--once", "--every", "100ms")

    assert answer.code == 0
    assert "1 event · 1 pending" in answer.out


def test_a_worker_delivers_and_stops(shop: PostgresShop, folder: Path) -> None:
    (folder / "shop_app.py").write_text(
        "from redrive import Redrive\n"
        "app = Redrive()\n"
        "@app.handler('order.*')\n"
        "async def billing(event): print('billed', event.payload['order'], flush=True)\n"
    )
    shop.publish({"order": 42})

    worker = subprocess.Popen(
        [sys.executable, "-m", "redrive", "worker", "shop_app:app"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    with worker.stdout:
        line = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(PATIENCE_SECONDS)

    assert (line, code) == (b"billed 42\n", 0)


def test_a_store_that_nobody_has_created_is_refused(shell: Shell, shop: PostgresShop) -> None:
    said = sentence(shell("status"))

    assert f"There is no store at postgresql://127.0.0.1:{urlsplit(shop.url).port}" in said
    assert "create it with `redrive init" in said


def test_a_server_that_is_down_is_told(shell: Shell) -> None:
    url = f"postgresql://shop:very-secret@127.0.0.1:{free_port()}/shop"

    said = sentence(shell("status", "--store", url))

    assert "cannot be reached" in said
    assert "Check that the server runs" in said
    assert "very-secret" not in said


def test_the_first_server_that_answers_is_taken(shell: Shell, shop: PostgresShop) -> None:
    """As after a failover: the address names the old primary and the new one."""
    shop.publish({"order": 1})
    netloc = f"redrive@127.0.0.1:{free_port()},127.0.0.1:{urlsplit(shop.url).port}"

    query = f"{urlsplit(shop.url).query}&target_session_attrs=primary"
    answer = shell("status", "--json", "--store", with_(shop.url, netloc=netloc, query=query))

    assert answer.json["events"] == 1


def test_a_database_that_is_missing_is_told(shell: Shell, shop: PostgresShop) -> None:
    said = sentence(shell("status", "--store", with_(shop.url, path="/missing")))

    assert "has no such database. Create it with createdb" in said


def test_a_disk_that_is_full_is_told(shell: Shell, shop: PostgresShop, database: Database) -> None:
    shop.publish({"order": 1})
    database.execute(_FILL_DISK.format(schema=shop.schema))

    said = sentence(shell("publish", "order.paid", "{}"))

    assert "is full; nothing of this call was stored. Free some space" in said
    assert shell("status", "--json").json["events"] == 1


def test_a_role_that_may_not_create_a_schema_is_told(
    shell: Shell, shop: PostgresShop, database: Database
) -> None:
    database.execute("CREATE ROLE lowly LOGIN")
    try:
        port = urlsplit(shop.url).port
        said = sentence(shell("init", "--store", with_(shop.url, netloc=f"lowly@127.0.0.1:{port}")))
    finally:
        database.execute("DROP ROLE lowly")

    assert "This user may not do that" in said
    assert "run `redrive init` once as a user who may" in said


def test_a_role_that_owns_an_empty_schema_may_fill_it(
    shell: Shell, shop: PostgresShop, database: Database
) -> None:
    """It need not be allowed to create others."""
    database.execute(f"CREATE ROLE tenant LOGIN; CREATE SCHEMA {shop.schema} AUTHORIZATION tenant")
    try:
        port = urlsplit(shop.url).port
        url = with_(shop.url, netloc=f"tenant@127.0.0.1:{port}")
        created, again = shell("init", "--store", url), shell("init", "--store", url)
        status = shell("status", "--store", url)
    finally:
        database.execute(f"DROP SCHEMA {shop.schema} CASCADE; DROP ROLE tenant")

    assert (created.code, again.code, status.code) == (0, 0, 0), created.err


def test_a_driver_that_is_missing_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("redrive.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("redrive.stores.postgres", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    answer = shell("status", "--store", "postgresql://localhost/shop")

    assert answer.code == 2
    assert "pip install 'redrive[postgres]'" in answer.err


class TestAServerOfItsOwn:
    @pytest.fixture
    def shop(self, postgres_cluster: Cluster) -> Iterator[PostgresShop]:
        with postgres_cluster.database.schema() as url:
            shop = PostgresShop(url)
            shop.publish({"order": 1})
            yield shop
            postgres_cluster.stop()
            postgres_cluster.start()

    def test_a_wrong_password_is_told(
        self, shell: Shell, shop: PostgresShop, postgres_cluster: Cluster
    ) -> None:
        rules = postgres_cluster.folder / "passwords.conf"
        rules.write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        postgres_cluster.database.execute("ALTER ROLE redrive PASSWORD 'right'")
        netloc = f"redrive:{{}}@127.0.0.1:{postgres_cluster.port}"

        postgres_cluster.stop()
        postgres_cluster.start(hba_file=str(rules))
        right = shell("status", "--store", with_(shop.url, netloc=netloc.format("right")))
        wrong = shell("status", "--store", with_(shop.url, netloc=netloc.format("wrong-secret")))

        assert right.code == 0
        assert "refuses this user or password" in sentence(wrong)
        assert "wrong-secret" not in wrong.err

    def test_a_server_that_is_read_only_can_be_looked_at_and_not_changed(
        self, shell: Shell, shop: PostgresShop, postgres_cluster: Cluster
    ) -> None:
        postgres_cluster.stop()
        postgres_cluster.start(default_transaction_read_only="on")

        looked = shell("status", "--json", "--store", shop.url)
        published = shell("publish", "order.paid", "--store", shop.url)
        examined = shell("doctor", "--store", shop.url)
        created = shell("init", "--store", f"{postgres_cluster.url}?schema=another")
        called_ready = shell("init", "--store", shop.url)

        assert (looked.code, looked.json["events"]) == (0, 1)
        assert "is read only, as a standby is" in sentence(published)
        assert "is read only, as a standby is" in sentence(created)
        assert "is read only, as a standby is" in sentence(called_ready)
        assert examined.code == 1
        assert "The server is set to read only" in examined.out
