"""A Django project in a folder, with a database of its own, run as people run theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).parents[2]

_FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os

INSTALLED_APPS = ["shop", "redrive.integrations.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["REDRIVE_TEST_NAME"],
        "USER": os.environ["REDRIVE_TEST_USER"],
        "PASSWORD": os.environ["REDRIVE_TEST_PASSWORD"],
        "HOST": os.environ["REDRIVE_TEST_HOST"],
        "PORT": os.environ["REDRIVE_TEST_PORT"],
    },
    "reports": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDRIVE_APP = "shop.events:app"
USE_TZ = True
""",
    "shop/__init__.py": "",
    "shop/migrations/__init__.py": "",
    "shop/models.py": """
from django.db import models

class Order(models.Model):
    number = models.IntegerField(unique=True)
    is_billed = models.BooleanField(default=False)
""",
    "shop/events.py": """
from django.db import connection

from redrive import Redrive, Retry
from redrive.integrations.django import publish

app = Redrive()

@app.handler("order.*", name="billing", concurrency=1, retry=Retry(max_attempts=1))
def bill(event):
    from shop.models import Order
    Order.objects.filter(number=event.payload["order"]).update(is_billed=True)
    if event.payload.get("loses_connection"):
        connection.connection.close()
""",
    "shop/tests.py": """
from django.db import transaction
from django.test import TestCase

from redrive import Operations, TransactionError
from redrive.integrations.django import get_app, publish
from redrive.integrations.django.testing import RedriveTestMixin
from shop.models import Order

def tearDownModule():
    get_app().sync.close()

class OrderTest(TestCase):
    def test_an_order_publishes_in_the_database_of_the_tests(self):
        Order.objects.create(number=1)
        receipt = publish("order.placed", {"order": 1})
        self.assertEqual(receipt.destinations, ("billing",))
        self.assertIn("/test_", get_app().settings.store)

    def test_the_other_test_left_nothing(self):
        self.assertEqual(get_app().sync.operate(Operations.status).events, 0)

class KitTest(RedriveTestMixin, TestCase):
    def place(self, number):
        with transaction.atomic():
            Order.objects.create(number=number)
            publish("order.placed", {"order": number}, key=f"order-{number}")

    def test_what_the_transaction_of_the_test_publishes_is_seen(self):
        self.assert_nothing_published()
        self.place(1)
        self.assert_published("order.*", payload={"order": 1}, key="order-1", times=1)
        self.assertEqual(self.redrive.drain().attempts, 0)

    def test_what_is_rolled_back_is_not_seen(self):
        with self.assertRaises(LookupError), transaction.atomic():
            self.place(1)
            raise LookupError
        self.assert_nothing_published()

    def test_handlers_run_in_the_transaction_of_the_test(self):
        with self.captureOnCommitCallbacks(execute=True):
            self.place(1)
        self.assertEqual(self.redrive.drain().delivered, 1)
        self.assertTrue(Order.objects.get().is_billed)
        self.assert_published("order.placed", times=1)
""",
}


class Project:
    """Runs `manage.py` in its folder."""

    def __init__(self, folder: Path, url: str) -> None:
        parts = urlsplit(url)
        self.folder = folder
        self.url = url
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            "REDRIVE_TEST_NAME": parts.path.removeprefix("/"),
            "REDRIVE_TEST_USER": parts.username or "",
            "REDRIVE_TEST_PASSWORD": parts.password or "",
            "REDRIVE_TEST_HOST": parts.hostname or "",
            "REDRIVE_TEST_PORT": str(parts.port or ""),
        }
        for name, source in _FILES.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source, encoding="utf-8")

    def write(self, name: str, old: str, new: str) -> None:
        """Change one of the files."""
        file = self.folder / name
        source = file.read_text("utf-8")
        assert old in source
        file.write_text(source.replace(old, new), encoding="utf-8")

    def manage(self, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; returns what it printed."""
        ran = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=50,
        )
        assert ran.returncode == code, ran.stdout
        return ran.stdout

    def run(self, source: str) -> str:
        """Run a few lines of Python inside the project."""
        first = "from django.db import transaction\nfrom shop.models import Order\n"
        return self.manage("shell", "-c", first + source)

    @contextmanager
    def working(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker beside the block, and stop it as a person does."""
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", *(command or ("redrive_worker",))],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
            process.terminate()
            assert process.wait(20) == 0, (self.folder / "worker.log").read_text("utf-8")
        finally:
            process.kill()
            process.wait()

    def ask(self, statement: str) -> list[Any]:
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            return connection.execute(statement).fetchall()
