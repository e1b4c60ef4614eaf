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
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.cli.main import main
from redrive.web.server import HttpServer, listen
from tests.waiting import eventually, until

_SHOP = """
from pathlib import Path
from redrive import Event, Redrive

app = Redrive("sqlite:///shop.db")

@app.handler("order.*", name="billing")
def bill(event: Event[dict[str, int]]) -> None:
    with Path("billed.txt").open("a") as file:
        file.write(f"{event.payload['order']} of {event.source}\\n")
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


def test_one_process_publishes_delivers_and_stops_when_told(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    log = tmp_path / "log.txt"
    command = "import sys; from redrive.cli.main import main; sys.exit(main())"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", command, "serve", "--worker", "shop:app", "--port", "0"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=errors,
            stderr=errors,
        )
    try:
        until(lambda: "Serving" in log.read_text(), what="the server has started")
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert found is not None
        root = found[0]
        until(lambda: bool(ask(f"{root}/readyz")["ready"]), what="it is ready")

        receipt = ask(f"{root}/api/v1/events", {"type": "order.paid", "payload": {"order": 42}})
        billed = tmp_path / "billed.txt"
        until(lambda: billed.exists() and "42" in billed.read_text(), what="it is delivered")

        assert receipt["destinations"] == ["billing"]
        assert billed.read_text() == "42 of local\n"
        store = f"sqlite:///{tmp_path / 'shop.db'}"
        main(["token", "create", "ann", "--role", "view", "--why", "looks", "--store", store])
        until(lambda: is_refused(f"{root}/api/v1/status"), what="the first token closes it")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


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
    assert "no token is in the store" in capsys.readouterr().err


def test_a_worker_needs_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--worker", "--store", "sqlite:///shop.db"]) == 2
    assert "--worker needs the app" in capsys.readouterr().err


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
