"""The serve command: a process that publishes, delivers and stops, and where it will not listen."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.cli.main import main
from redrive.web.server import HttpServer, listen
from tests.waiting import eventually, until
from tests.web.client import Client

_SHOP = """
from pathlib import Path
from redrive import Event, Redrive

app = Redrive("sqlite:///shop.db")

@app.handler("order.*", name="billing")
def bill(event: Event[dict[str, int]]) -> None:
    with Path("billed.txt").open("a") as file:
        file.write(f"{event.payload['order']} of {event.source}\\n")
"""

_GATEWAY = """
store = "sqlite:///shop.db"
service_folders = ["."]

[services.ledger]
kind = "file"
path = "ledger.jsonl"
body = "payload"

[rules.orders]
service = "ledger"
event = "order.*"
template = { number = "{{ payload.order }}" }
"""


def ask(url: str, body: object = None, **headers: str) -> Any:  # noqa: ANN401 - any JSON
    data = None if body is None else msgspec.json.encode(body)
    given = {"content-type": "application/json", **headers}
    request = urllib.request.Request(url, data=data, headers=given)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
        return msgspec.json.decode(answer.read())


def is_refused(url: str) -> bool:
    try:
        ask(url)
    except urllib.error.HTTPError as error:
        with error:
            return error.code == HTTPStatus.UNAUTHORIZED
    return False


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[str]:
    """Run the command beside the block, and tell it to stop at the end; yields where it serves."""
    log = folder / "log.txt"
    command = "import sys; from redrive.cli.main import main; sys.exit(main())"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", command, "serve", "--worker", "--port", "0", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=errors,
            stderr=errors,
        )
    try:
        until(lambda: "Serving" in log.read_text(), what="the server has started")
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert found is not None
        until(lambda: bool(ask(f"{found[0]}/readyz")["ready"]), what="it is ready")
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_one_process_publishes_delivers_and_stops_when_told(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    with serving(tmp_path, "shop:app") as root:
        receipt = ask(f"{root}/api/v1/events", {"type": "order.paid", "payload": {"order": 42}})
        billed = tmp_path / "billed.txt"
        until(lambda: billed.exists() and "42" in billed.read_text(), what="it is delivered")

        assert receipt["destinations"] == ["billing"]
        assert billed.read_text() == "42 of local\n"
        store = f"sqlite:///{tmp_path / 'shop.db'}"
        main(["token", "create", "ann", "--role", "view", "--why", "looks", "--store", store])
        until(lambda: is_refused(f"{root}/api/v1/status"), what="the first token closes it")


def test_without_an_app_it_serves_what_is_stored_and_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(_GATEWAY)
    assert main(["apply"]) == 0
    ledger, other = tmp_path / "ledger.jsonl", tmp_path / "other.jsonl"
    with serving(tmp_path) as root:
        event = {"type": "order.paid", "payload": {"order": 42}}
        receipt = ask(f"{root}/api/v1/events", event)
        until(lambda: ledger.exists() and "42" in ledger.read_text(), what="it is delivered")
        changes = {"changes": {"path": "other.jsonl"}}
        ask(f"{root}/api/v1/services/ledger/alter", changes)

        def follows() -> bool:
            ask(f"{root}/api/v1/events", event)
            return other.exists()

        until(follows, what="the worker follows the change")

    assert receipt["destinations"] == ["ledger/orders@1"]
    assert ledger.read_text().splitlines()[0] == '{"number":42}'


@pytest.mark.parametrize(
    "options",
    [
        ["--host", "0.0.0.0"],  # noqa: S104 - it is refused
        ["--allow-host", "redrive.example.com"],
        ["--trust-proxy", "10.0.0.1"],
    ],
    ids=["public", "named", "behind a proxy"],
)
def test_it_refuses_to_be_open_to_others_than_this_machine(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{tmp_path / 'shop.db'}"
    main(["init", "--store", store])

    code = main(["serve", "--store", store, "--port", "0", *options])

    assert code == 2
    assert "no token and no user is in the store" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trust-user-header", "X-User"], "name its address with --trust-proxy"),
        (["--trust-user-header", "X-User", "--trust-proxy", "*"], "could claim to be anyone"),
        (["--trust-user-header", "X User", "--trust-proxy", "10.0.0.1"], "name of a header"),
    ],
    ids=["no proxy", "any proxy", "no header"],
)
def test_it_takes_only_a_proxys_word_for_who_asks(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", "sqlite:///shop.db", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


async def test_a_server_tells_its_app_whom_the_proxy_has_let_in(tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path / 'shop.db'}")
    proxies = {"proxies": ["127.0.0.1"], "root_path": "", "grace": 1}
    server = HttpServer(app.asgi(), user_header="X-User", **proxies)  # type: ignore[arg-type]
    server.config.load()
    async with app:
        await app.operations.add_user("ann", "correct horse battery", role="view", by="x", why="y")

        answer = await Client(server.config.loaded_app).get("/destinations", x_user="ann")

    assert answer.status == 200


def test_a_process_that_serves_looks_for_cycles_less_often() -> None:
    program = (
        "import gc; from redrive.web.server import collect_less; usual = gc.get_threshold(); "
        "collect_less(); assert gc.get_freeze_count() > 1_000; "
        "assert gc.get_threshold() > usual"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_worker_without_an_app_needs_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--worker", "--store", "sqlite:///shop.db"]) == 3
    assert "There is no store at shop.db" in capsys.readouterr().err


async def test_who_never_says_what_they_want_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.web.server._HEADER_SECONDS", 0.05)
    app = Redrive(f"sqlite:///{tmp_path / 'shop.db'}")
    server = HttpServer(app.asgi(login=False), proxies=[], root_path="", grace=1)
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        serving = asyncio.create_task(server.serve([listening]))
        await eventually(lambda: server.started, what="the server has started")

        for beginning in (b"", b"GET /healthz HTTP/1.1\r\nHost: local"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            assert await reader.read() == b""
            writer.close()
        monkeypatch.undo()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await reader.readuntil(b'{"alive":true}\n')
            assert answer.startswith(b"HTTP/1.1 200")
        writer.close()

        server.stop()
        await serving
