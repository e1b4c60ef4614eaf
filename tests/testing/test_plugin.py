"""The plugin gives every test the kit it asks for, and costs the others nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

SHOP = """
from redrive import Redrive

app = Redrive("sqlite:///never-made.db")

@app.handler("order.*")
async def bill(event):
    await app.publish("invoice.sent", event.payload)
"""
TESTS = """
import pytest
from shop import app

pytestmark = {mark}

async def test_an_order_is_billed(redrive_kit):
    kit = await redrive_kit(app)
    await app.publish("order.paid", {{"order": 42}})
    tally = await kit.drain()
    assert tally.delivered == 1
    kit.assert_published("invoice.sent", payload={{"order": 42}}, times=1)

async def test_the_next_test_begins_anew(redrive_kit):
    kit = await redrive_kit(app)
    kit.assert_nothing_published()

async def test_on_sqlite_too(redrive_kit, tmp_path):
    kit = await redrive_kit(app, store=f"sqlite:///{{tmp_path}}/kit.db")
    async with app.transaction() as transaction:
        await app.publish("order.paid", within=transaction)
    kit.assert_published("order.paid")

async def test_afterwards_the_app_is_where_it_was():
    assert app.settings.store == "sqlite:///never-made.db"
    with pytest.raises(Exception, match="has no attribute 'advance'"):
        app._ports.clock.advance("1s")
"""


def run_tests(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, *, mode: str, mark: str
) -> pytest.RunResult:
    pytester.makepyfile(shop=SHOP, test_shop=TESTS.format(mark=mark))
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\n"
        "asyncio_default_fixture_loop_scope = function\npythonpath = .\n"
    )
    is_installed = request.config.pluginmanager.has_plugin("redrive")
    by_name = [] if is_installed else ["-p", "redrive.testing.plugin"]
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-Werror", *by_name)


def test_it_works_with_pytest_asyncio_in_auto_mode(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    result = run_tests(pytester, request, mode="auto", mark="[]")

    result.assert_outcomes(passed=4)
    assert not (pytester.path / "never-made.db").exists()


def test_it_works_with_pytest_asyncio_in_strict_mode(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    result = run_tests(pytester, request, mode="strict", mark="[pytest.mark.asyncio]")

    result.assert_outcomes(passed=4)


DJANGO = """
import django
import pytest
from django.conf import settings
from django.db import connection, transaction

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    REDRIVE_APP="shop:app",
)
django.setup()

from redrive.integrations.django import publish
from shop import app

@pytest.fixture
def db():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)

def test_what_the_transaction_of_a_test_publishes_is_seen(db, redrive_django):
    with transaction.atomic():
        publish("order.paid", {"order": 42})
    with pytest.raises(LookupError), transaction.atomic():
        publish("order.lost")
        raise LookupError
    redrive_django.assert_published("order.*", payload={"order": 42}, times=1)

def test_what_commits_is_delivered(redrive_django):
    with transaction.atomic():
        publish("order.paid", {"order": 42})
    assert redrive_django.drain().delivered == 1
    redrive_django.assert_published("invoice.sent", times=1)

def test_without_django(redrive_sync_kit):
    kit = redrive_sync_kit(app)
    app.sync.publish("order.paid")
    assert kit.drain().delivered == 1
"""


def test_fixtures_without_an_event_loop(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=DJANGO)
    is_installed = request.config.pluginmanager.has_plugin("redrive")
    by_name = [] if is_installed else ["-p", "redrive.testing.plugin"]

    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:asyncio", "-Werror", *by_name
    )

    result.assert_outcomes(passed=3)


@pytest.mark.parametrize("door", ["redrive.testing", "redrive.testing.plugin"])
def test_loading_it_loads_no_store_and_no_kit(door: str) -> None:
    """It is imported into every test run of everybody who has Redrive installed."""
    look = (
        f"import sys, {door}; "
        "print([name for name in ('apsw', 'redrive.stores', 'redrive.testing.kit', 'rich', "
        "'structlog', 'typer') if name in sys.modules])"
    )

    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == "[]"


def test_the_kit_does_not_need_pytest() -> None:
    look = "import sys, redrive.testing as t; t.Kit, t.FakeClock; print('pytest' in sys.modules)"

    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == "False"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    import redrive.testing  # noqa: PLC0415 - the attribute of the package is what is tested

    with pytest.raises(AttributeError, match="no attribute 'Kitt'"):
        redrive.testing.Kitt  # noqa: B018
