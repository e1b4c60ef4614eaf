"""`redrive worker --store`: what is said on the command line wins over the app's own setting."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.shell import Shop
from tests.waiting import PATIENCE_SECONDS


def test_a_worker_takes_the_store_that_the_command_names(shop: Shop, folder: Path) -> None:
    (folder / "shop_app.py").write_text(
        "from redrive import Redrive\n"
        "app = Redrive('sqlite:///elsewhere.db')\n"
        "@app.handler('order.*')\n"
        "async def billing(event): print('billed', event.payload['order'], flush=True)\n"
    )
    shop.publish({"order": 42})

    worker = subprocess.Popen(
        [sys.executable, "-m", "redrive", "worker", "shop_app:app", "--store", shop.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    with worker.stdout:
        line = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(PATIENCE_SECONDS)

    assert (line, code) == (b"billed 42\n", 0)
    assert not (folder / "elsewhere.db").exists()


def test_the_processes_of_a_worker_do_not_show_the_store_on_their_command_line(
    folder: Path, sqlite: str
) -> None:
    """Everybody on the machine can read a command line, and the address may hold a password."""
    (folder / "shop_app.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from redrive import Redrive\n"
        "app = Redrive('sqlite:///elsewhere.db')\n"
        "@app.handler('order.*')\n"
        "async def billing(event):\n"
        "    own = Path('/proc/self')\n"
        "    known = (own / 'cmdline').read_bytes() + (own / 'environ').read_bytes()\n"
        "    print(os.getppid(), known.count(b'shop.db'), flush=True)\n"
    )
    shop = Shop(sqlite)
    shop.publish({"order": 42})

    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "redrive", "worker", "shop_app:app"),
            *("--processes", "1", "--store", shop.url),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    with worker.stdout:
        line = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(PATIENCE_SECONDS)

    assert (line, code) == (f"{worker.pid} 0\n".encode(), 0)
    assert not (folder / "elsewhere.db").exists()


@pytest.mark.parametrize("processes", [(), ("--processes", "1")])
@pytest.mark.parametrize("choice", [("--only", "mailing"), ("--except", "billing")])
def test_a_worker_serves_the_destinations_that_the_command_names(
    shop: Shop, folder: Path, processes: Sequence[str], choice: Sequence[str]
) -> None:
    (folder / "shop_app.py").write_text(
        "from redrive import Redrive\n"
        "app = Redrive('sqlite:///elsewhere.db')\n"
        "@app.handler('order.*')\n"
        "async def billing(event): print('billed', flush=True)\n"
        "@app.handler('order.*')\n"
        "async def mailing(event): print('mailed', flush=True)\n"
    )
    command = [sys.executable, "-m", "redrive", "worker", "shop_app:app", "--store", shop.url]
    worker = subprocess.Popen(
        [*command, *processes, *choice], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert worker.stderr is not None
    with worker.stdout, worker.stderr:
        while b"worker started" not in worker.stderr.readline():
            pass
        shop.publish({"order": 1})
        first = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=PATIENCE_SECONDS)

    assert (first, rest, worker.returncode) == (b"mailed\n", b"", 0)


def test_a_worker_for_a_destination_that_is_not_there_does_not_start(
    shop: Shop, folder: Path
) -> None:
    (folder / "shop_app.py").write_text(
        "from redrive import Redrive\n"
        "app = Redrive('sqlite:///elsewhere.db')\n"
        "@app.handler('order.*')\n"
        "async def billing(event): ...\n"
    )
    command = [sys.executable, "-m", "redrive", "worker", "shop_app:app", "--store", shop.url]

    ended = subprocess.run(
        [*command, "--only", "biling"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert ended.returncode not in (0, 70)
    assert "There is no destination 'biling'; did you mean 'billing'?" in ended.stderr
    assert "Traceback" not in ended.stderr
