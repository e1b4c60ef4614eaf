"""`redrive worker --store`: what is said on the command line wins over the app's own setting."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import Shop


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
        code = worker.wait(20)

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
        code = worker.wait(20)

    assert (line, code) == (f"{worker.pid} 0\n".encode(), 0)
    assert not (folder / "elsewhere.db").exists()
