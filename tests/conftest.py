"""Real servers, started when the first test needs one; each test process has its own.

Transaction numbers are shared by a whole PostgreSQL server, and its log is read only up to the
first transaction that is still open: tests beside each other on one server would wait.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.postgres import DURABLE, Cluster, Database, the_database

pytest.register_assert_rewrite("tests.conformance")

_SERVERS = {"database", "postgres_cluster"}

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server: the fast tests do without."""
    for item in items:
        if isinstance(item, pytest.Function) and _needs_a_server(item):
            item.add_marker(pytest.mark.server)


def _needs_a_server(item: pytest.Function) -> bool:
    """By a fixture of the test, or by the name of the store that it runs on."""
    stores = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return bool(_SERVERS.intersection(item.fixturenames)) or "postgres" in stores


def pytest_collection_finish() -> None:
    """Whatever has been collected stays: who looks for garbage need not look at all of it again."""
    gc.collect()
    gc.freeze()


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
