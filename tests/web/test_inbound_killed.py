"""A server that is killed between publishing a webhook and answering it: it is stored once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redrive import Redrive
from tests.waiting import until

_SECRET = "whsec of the shop"  # noqa: S105 - of nobody
_BODY = b'{"action": "opened", "number": 7}'
_SERVER = """
import asyncio, os
from pathlib import Path

from redrive import Redrive


class Holding(Redrive):
    async def publish(self, *given, **attributes):
        receipt = await super().publish(*given, **attributes)
        if "HOLDS" in os.environ:
            Path("stored").touch()  # committed; the sender has no answer yet, and gets none
            await asyncio.Event().wait()
        return receipt


app = Holding("sqlite:///shop.db")
"""


def test_a_kill_between_publish_and_answer_stores_once_when_the_sender_repeats(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(_SERVER)
    store = f"sqlite:///{tmp_path}/shop.db"
    asyncio.run(_describe(store))
    unanswered: list[object] = []

    with _server(tmp_path, HOLDS="yes") as (process, root):
        sender = threading.Thread(target=lambda: unanswered.append(_answer(root)))
        sender.start()
        until((tmp_path / "stored").exists, what="the event is committed")
        process.send_signal(signal.SIGKILL)
        sender.join()
    with _server(tmp_path) as (process, root):
        first, second = _answer(root), _answer(root)
        process.terminate()
        assert process.wait(60) == 0

    assert unanswered == [None]
    assert isinstance(first, dict)
    assert first["is_duplicate"] is True
    assert second == first
    assert asyncio.run(_stored(store)) == [first["event_id"]]


async def _describe(store: str) -> None:
    async with Redrive(store) as app:
        document = {"kind": "github", "secrets": ["env:SHOP_SECRET"], "event": "shop.changed"}
        await app.operations.save_source("shop", document, by="test")


async def _stored(store: str) -> list[str]:
    async with Redrive(store) as app:
        return [one.id for one in (await app.operations.find_events()).events]


def _answer(root: str) -> dict[str, Any] | None:
    """Send the webhook, as its sender does and repeats it; `None` if there was no answer."""
    signature = hmac.new(_SECRET.encode(), _BODY, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-delivery": "d-1",
        "x-github-event": "issues",
        "x-hub-signature-256": f"sha256={signature}",
    }
    request = urllib.request.Request(f"{root}/in/shop", data=_BODY, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - on loopback
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError:
        raise
    except (urllib.error.URLError, ConnectionError):
        return None


@contextmanager
def _server(folder: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    log = folder / "log.txt"
    command = "import sys; from redrive.cli.main import main; sys.exit(main())"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", command, "serve", "shop:app", "--port", "0"],
            cwd=folder,
            env={**os.environ, "SHOP_SECRET": _SECRET, "PYTHONUNBUFFERED": "1", **environment},
            stdout=said,
            stderr=said,
        )
    try:
        until(lambda: "Serving" in log.read_text(), what="the server has started")
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert found is not None, log.read_text()
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
