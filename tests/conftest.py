"""Real servers, started when the first test needs one; each test process has its own.

Transaction numbers are shared by a whole PostgreSQL server, and its log is read only up to the
first transaction that is still open: tests beside each other on one server would wait.
"""

from __future__ import annotations

import gc
import signal
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

from tests.proof.grounds import GROUNDS, Ground
from tests.scale import IS_LONG
from tests.servers.postgres import DURABLE, Cluster, Database, the_database

pytest.register_assert_rewrite("tests.conformance")

_SERVERS = {"browser", "database", "nats_server", "postgres_cluster", "rabbit", "valkey"}
_TOGETHER = {
    "tests/app/test_typing.py": "types",
    "tests/demo/test_demo.py": "the story",
    "tests/web/browser/": "browser",
    "tests/transports/test_brokers.py": "brokers",
    "tests/transports/test_services.py": "brokers",
    "tests/transports/test_conformance.py::TestAmqp": "brokers",
    "tests/stores/postgres/test_checkup.py": "postgres cluster",
    "tests/stores/postgres/test_moved.py": "postgres cluster",
    "tests/faults/test_server_crash.py": "postgres cluster",
    "tests/cli/test_postgres.py::TestAServerOfItsOwn": "postgres cluster",
}
"""What shares something that takes long to make, so that one process makes it for all."""

_WAITING = ("tests/faults/", "tests/jobs/", "tests/transports/")
"""Tests that mostly wait for other processes: beside others they take hardly any time."""

_DATABASES = {"sqlite": "postgres", "postgres": "sqlite"}
_ABOUT_DATABASES = {
    *("test_declaring.py", "test_keeping.py", "test_planted_secrets.py", "test_sync_door.py"),
    *("test_transactions.py", "test_unreadable.py"),
}
"""Tests of the app and of its commands in which the one database is not like the other."""

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Hear a Ctrl-C: what a shell runs in the background, and what that starts, would not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a server: the fast tests do without."""
    if not IS_LONG and "not server" not in config.getoption("markexpr"):
        items[:] = _on_one_database(items)
    items[:] = _spread(items)
    for item in items:
        if isinstance(item, pytest.Function) and _needs_a_server(item):
            item.add_marker(pytest.mark.server)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in an order in which those that wait are spread among those that compute.

    Side by side they would leave the processors idle for minutes.
    """
    waiting = [item for item in items if item.nodeid.startswith(_WAITING)]
    others = [item for item in items if not item.nodeid.startswith(_WAITING)]
    apart = len(others) // (len(waiting) + 1)
    spread: list[pytest.Item] = []
    for item in waiting:
        spread += [item, *others[:apart]]
        others = others[apart:]
    return spread + others


def _on_one_database(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of the app and of its commands on one of both databases each.

    Half of them are on either, by their names; the conformance suite holds both to the same. With
    `REDRIVE_TEST_LONG=1` each is on both, and whoever asks for one of a test gets it.
    """
    asked = {item.nodeid for item in items}
    kept = []
    for item in items:
        store = _database_of(item)
        other = _DATABASES.get(store, "")
        twin = item.nodeid.replace(store, other) if other else ""
        first = list(_DATABASES)[zlib.crc32(item.nodeid.partition("[")[0].encode()) % 2]
        if twin not in asked or store == first:
            kept.append(item)
    return kept


def _database_of(item: pytest.Item) -> str:
    """Return the database that a test of the app or of a command runs on, if either would do."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return ""
    is_about_one = item.path.name in _ABOUT_DATABASES
    is_above = item.nodeid.startswith(("tests/app/", "tests/cli/"))
    return str(item.callspec.params.get("store", "")) if is_above and not is_about_one else ""


def _needs_a_server(item: pytest.Function) -> bool:
    """By a fixture of the test, or by the name of the store that it runs on."""
    stores = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return bool(_SERVERS.intersection(item.fixturenames)) or "postgres" in stores


class Together(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """Gives tests that share something to one process, and all others to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return next((one for start, one in _TOGETHER.items() if nodeid.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:  # noqa: ANN401 - not exported
    """Not by marks: with pytest 9.2, pytest-xdist 3.8 overlooks them."""
    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Whatever is collected stays: who looks for garbage need not look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def _sqlite_ground() -> Iterator[Ground]:
    with GROUNDS["sqlite"]() as ground:
        yield ground


@pytest.fixture
def sqlite_url(_sqlite_ground: Ground) -> Iterator[str]:
    """The URL of an empty store in SQLite: to make its tables takes longer than most tests."""
    with _sqlite_ground.fresh() as site:
        yield site.url


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    """A PostgreSQL database that is quick, and that tests leave running."""
    with the_database() as database:
        yield database


@pytest.fixture
def postgres_url(database: Database) -> Iterator[str]:
    """The URL of an empty store in PostgreSQL."""
    with database.empty_store() as url:
        yield url


@pytest.fixture
def new_postgres_url(database: Database) -> Iterator[str]:
    """The URL of a store in PostgreSQL that is still to be created."""
    with database.schema() as url:
        yield url


@pytest.fixture(scope="session")
def _durable_cluster() -> Iterator[Cluster]:
    cluster = Cluster(DURABLE)
    yield cluster
    cluster.remove()


@pytest.fixture
def postgres_cluster(_durable_cluster: Cluster) -> Cluster:
    """A PostgreSQL server that keeps what it has acknowledged; a test may stop and start it."""
    _durable_cluster.start()
    return _durable_cluster
