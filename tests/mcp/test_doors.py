"""The doors of the tools: HTTP with tokens, guarded as the API is, and a pipe to a process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from redrive import Redrive
from redrive.clock import SystemClock
from redrive.mcp.server import make_http
from redrive.model.audit import AuditQuery
from redrive.policies.redact import Redaction
from redrive.web.guard import LOOPBACK
from redrive.web.server import HttpServer, listen
from tests.cli.shell import Shell
from tests.mcp.assistant import Assistant, Office
from tests.waiting import eventually
from tests.web.conftest import Served

_MAIN = "import sys; from redrive.cli.main import main; sys.exit(main())"
_PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


@asynccontextmanager
async def over_http(served: Served, *allowed: str) -> AsyncIterator[str]:
    asgi = make_http(
        served.app,
        Office(served, *allowed).desk,
        hosts=LOOPBACK,
        door=None,
        clock=SystemClock(),
        redaction=Redaction(),
    )
    server = HttpServer(asgi, proxies=(), root_path="", grace=5)
    with listen("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(server.serve([listening]))
        await eventually(lambda: server.started, what="that the server listens")
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.stop()
            await serving


async def test_over_http_a_token_says_who_asks_and_what_they_may(served: Served) -> None:
    made = await served.app.operations.create_token("ann", role="operate", by="test", why="x")
    letter = (await served.letters())["acme"]
    headers = {"authorization": f"Bearer {made.secret}"}
    async with (
        over_http(served, "operate") as url,
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        assistant = Assistant(client)
        plan = await assistant.plan("replay", ids=[letter])
        done = await assistant.call("replay", plan=plan)
        again = await assistant.call("replay", plan=plan)

    assert done.data["changed"] == [letter]
    assert "There is no such plan" in again.problem
    [entry] = await served.app.operations.audit(AuditQuery(action="replay"))
    assert entry.by == f"mcp:{made.token.by}"


async def test_over_http_strangers_and_their_pages_are_turned_away(served: Served) -> None:
    made = await served.app.operations.create_token("ann", role="view", by="test", why="x")
    known = {"authorization": f"Bearer {made.secret}"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with over_http(served) as url, httpx2.AsyncClient() as http:
        statuses = {
            name: (await http.post(url, json=call, headers=headers)).status_code
            for name, headers in {
                "without a token": {},
                "with a wrong one": {"authorization": "Bearer rdt_x"},
                "from another site": {**known, "origin": "https://evil.example"},
                "by a rebound name": {**known, "host": "evil.example"},
                "fetched across sites": {**known, "sec-fetch-site": "cross-site"},
            }.items()
        }
        looked = (await http.get(url, headers=known)).status_code
        huge = (await http.post(url, content=b" " * (9 * 2**20), headers=known)).status_code

    assert statuses == {
        "without a token": 401,
        "with a wrong one": 401,
        "from another site": 403,
        "by a rebound name": 421,
        "fetched across sites": 403,
    }
    assert (looked, huge) == (405, 413)


async def test_over_a_pipe_the_user_of_the_process_asks(served: Served) -> None:
    letter = (await served.letters())["acme"]
    command = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-c", _MAIN, "mcp"),
            *("--store", served.app.settings.store, "--allow", "operate"),
            *("--most", "1"),
        ],
    )
    async with Client(stdio_client(command)) as client:
        assistant = Assistant(client)
        groups = await assistant.call("groups")
        plan = await assistant.plan("replay", ids=[letter])
        done = await assistant.call("replay", plan=plan)
        many = await assistant.call("suggest_delete", ids=[1, 2], why="all of them")

    assert groups.data["groups"]
    assert "more than 1 deliveries" in many.problem
    assert done.data["changed"] == [letter]
    [entry] = await served.app.operations.audit(AuditQuery(action="replay"))
    assert entry.by.startswith("mcp:")


def test_a_signal_ends_who_waits_at_a_pipe(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'shop.db'}"
    asyncio.run(_create(Redrive(store)))
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, "mcp", "--store", store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_PING)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 130


async def _create(app: Redrive) -> None:
    async with app:
        await app.operations.status()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--allow", "operat"], "did you mean 'operate'"),
        (["--store", "sqlite:///nowhere.db"], "There is no store at"),
        (["--server", "https://redrive.example.com"], "This needs the store itself"),
        (["--port", "0", "--host", "0.0.0.0"], "would be open to whoever reaches it"),  # noqa: S104 - it is refused
    ],
)
def test_what_cannot_be_served_is_said(
    arguments: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redrive.observers.logging.configure_logging", lambda *_, **__: None)
    shell = Shell(capsys, monkeypatch)
    shell("init", "--store", "sqlite:///shop.db")
    store = [] if {"--store", "--server"} & set(arguments) else ["--store", "sqlite:///shop.db"]

    answer = shell("mcp", *arguments, *store)

    assert answer.code in (2, 3)
    assert why in answer.err
