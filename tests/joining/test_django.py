"""The Django integration, in a real project, by its real commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from redrive.integrations.django.project import store_url
from redrive.stores.postgres.connection import read_address
from tests.faults.machine import until
from tests.joining.project import Project

PLACE = """
from redrive.integrations.django import publish
with transaction.atomic():
    Order.objects.create(number={number})
    publish("order.placed", {{"order": {number}}}, key="order-{number}")
"""


@pytest.fixture
def project(postgres_url: str, tmp_path: Path) -> Iterator[Project]:
    """A project with a database of its own."""
    server, name = postgres_url.partition("?")[0], f"{read_address(postgres_url).schema}_django"
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield Project(tmp_path, f"{server.rpartition('/')[0]}/{name}")
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@pytest.fixture
def shop(project: Project) -> Project:
    """The project, with its tables and the store's."""
    project.manage("makemigrations", "shop")
    project.manage("migrate")
    assert "The store is ready, with schema version" in project.manage("redrive_migrate")
    return project


def billed(project: Project) -> Callable[[], bool]:
    return lambda: project.ask("SELECT bool_and(is_billed) FROM shop_order") == [(True,)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "command",
    [("redrive", "worker"), ("redrive_worker", "--processes", "1")],
    ids=["here", "supervised"],
)
def test_an_order_and_its_event_commit_together_and_a_worker_bills_it(
    shop: Project, command: tuple[str, ...]
) -> None:
    shop.run(PLACE.format(number=1))
    shop.run(
        """
from redrive import NewEvent
from redrive.integrations.django import publish_many
try:
    with transaction.atomic():
        Order.objects.create(number=2)
        publish_many([NewEvent(type="order.placed", payload={"order": 2})], using="default")
        raise LookupError
except LookupError:
    pass
"""
    )

    with shop.working(*command):
        until(billed(shop), what="billed")

    assert shop.ask("SELECT number FROM shop_order") == [(1,)]
    assert shop.ask("SELECT count(*) FROM redrive.events") == [(1,)]


@pytest.mark.timeout(120)
def test_manage_has_the_commands_of_redrive_on_the_store_of_the_project(project: Project) -> None:
    made = project.manage("redrive", "init")
    status = project.manage("redrive", "status", "--json", "--settings", "settings")
    missing = project.manage("redrive", "dlq", "show", "9", code=2)

    assert "ready, with schema version" in made
    assert json.loads(status)["events"] == 0
    assert "There is no delivery 9" in missing
    assert project.ask("SELECT count(*) FROM redrive.events") == [(0,)]


@pytest.mark.timeout(120)
def test_a_handler_gets_a_new_connection_when_the_old_one_is_lost(shop: Project) -> None:
    """Django leaves that to the end of a request, and a worker has none."""
    shop.run(
        """
from redrive.integrations.django import publish
with transaction.atomic():
    for number in range(3):
        Order.objects.create(number=number)
        publish("order.placed", {"order": number, "loses_connection": True})
"""
    )

    with shop.working():
        until(billed(shop), what="billed")

    assert shop.ask("SELECT count(*) FROM redrive.deliveries WHERE status = 3") == [(0,)]


def test_outside_a_transaction_publishing_is_refused(shop: Project) -> None:
    printed = shop.run(
        """
from redrive import TransactionError
from redrive.integrations.django import publish
try:
    publish("order.placed", {"order": 1})
except TransactionError as error:
    print(error)
try:
    with transaction.atomic(using="reports"):
        publish("order.placed", {"order": 1}, using="reports")
except TransactionError as error:
    print(error)
"""
    )

    assert "publish inside `with transaction.atomic():`" in printed
    assert "Django's database 'reports', which is SQLite" in printed
    assert shop.ask("SELECT count(*) FROM redrive.events") == [(0,)]


@pytest.mark.timeout(120)
def test_tests_of_the_project_publish_into_their_own_database(shop: Project) -> None:
    printed = shop.manage("test", "shop")

    assert "Ran 5 tests" in printed
    assert shop.ask("SELECT count(*) FROM redrive.events") == [(0,)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('REDRIVE_APP = "shop.events:app"', "", "The Django setting REDRIVE_APP is None; write"),
        ('"shop.events:app"', '"shop.events:application"', "did you mean shop.events:app?"),
        ("USE_TZ = True", 'REDRIVE_DATABASE = "shop"', "There is no database 'shop' in Django's"),
    ],
    ids=["missing", "wrong", "database"],
)
def test_a_wrong_setting_is_told_in_one_sentence(
    project: Project, old: str, new: str, message: str
) -> None:
    project.write("settings.py", old, new)

    for command in ("redrive_migrate", "redrive_worker"):
        printed = project.manage(command, code=1)
        assert message in printed
        assert "Traceback" not in printed


def test_another_database_than_the_default_one_may_be_named(project: Project) -> None:
    project.write("settings.py", '"default": {', '"orders": {')
    project.write("settings.py", '"reports": {', '"default": {')
    project.write("settings.py", "USE_TZ = True", 'REDRIVE_DATABASE = "orders"')

    project.manage("redrive_migrate")
    project.run(
        """
from redrive.integrations.django import publish
with transaction.atomic(using="orders"):
    publish("order.placed", {"order": 1})
"""
    )

    assert project.ask("SELECT count(*) FROM redrive.events") == [(1,)]


def test_a_store_of_its_own_is_kept(project: Project) -> None:
    project.write("shop/events.py", "Redrive()", 'Redrive("sqlite:///events.db")')

    project.manage("redrive_migrate")

    assert (project.folder / "events.db").exists()


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "a b", "USER": "ann", "PASSWORD": "p@ss:w/rd?", "HOST": "db", "PORT": "5433"},
            "postgresql://ann:p%40ss%3Aw%2Frd%3F@db:5433/a%20b",
        ),
        (
            {"NAME": "shop", "USER": "ann", "HOST": "/var/run/postgresql", "PORT": 5433},
            "postgresql://ann@/shop?host=%2Fvar%2Frun%2Fpostgresql&port=5433",
        ),
        (
            {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://db/shop?sslmode=require",
        ),
        ({"NAME": "shop", "HOST": "::1", "PORT": "5433"}, "postgresql://[::1]:5433/shop"),
    ],
    ids=["name", "password", "socket", "options", "IPv6"],
)
def test_the_store_is_at_the_address_of_djangos_database(
    database: dict[str, object], url: str
) -> None:
    assert store_url(database) == url
    assert read_address(url).schema == "redrive"


@pytest.mark.parametrize(
    "wrong",
    [
        {"PORT": "543x"},
        {"HOST": "db/main"},
        {"HOST": "[::1", "PORT": "5433"},
        {"HOST": "db?main"},
        {"OPTIONS": {"sslmode": "sometimes"}},
        {"OPTIONS": {"servicefile": "/etc/services"}},
    ],
    ids=str,
)
def test_a_mistake_in_djangos_settings_is_told_without_the_password(
    project: Project, wrong: dict[str, object]
) -> None:
    for name, value in {**wrong, "PASSWORD": "WqXzKv@/?"}.items():
        entry = f"DATABASES['default'][{name!r}] = {value!r}"
        project.write("settings.py", "DEFAULT_AUTO", f"{entry}\nDEFAULT_AUTO")

    said = project.manage("redrive_migrate", code=1)

    assert "CommandError: " in said
    assert "WqXzKv" not in said


def test_redrive_itself_does_not_import_django() -> None:
    program = "import sys, redrive.app.redrive, redrive.cli.main; print('django' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "False\n"
