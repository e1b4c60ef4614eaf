"""Secrets are planted, a real worker fails to deliver, and nobody who looks finds one."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest

from redrive import Redrive
from redrive.store import Figures
from redrive.stores.postgres.connection import named, read_address
from tests.cli.shell import Shell
from tests.waiting import PATIENCE_SECONDS, until

SECRETS = {
    "store": "planted-store-pw",
    "auth": "planted/http auth+token",
    "key": base64.b64encode(b"planted signing key, 32 bytes!!!").decode(),
    "query": "planted-query-token",
    "header": "Bearer planted-event-header",
    "password": "planted pass/word",
    "why": "planted-in-a-reason",
}
SPELLINGS = [
    spelled.lower()
    for secret in SECRETS.values()
    for spelled in (
        *(secret, secret.removeprefix("Bearer "), quote(secret), quote(secret, safe="")),
        *(secret.replace(" ", "+"), secret.replace("/", "\\/")),
    )
]
WHY = ("--by", "ann", "--why", f"they wrote: password={SECRETS['why']}")
ACTS = (
    *(("destination", "pause", "crm", *WHY), ("tenant", "pause", "acme", *WHY)),
    *(("replay", "start", "1", "--yes", "--detach", *WHY), ("replay", "pause", "1", *WHY)),
    ("dlq", "edit", "2", "--payload", '{"order": 43}', "--no-replay", "--yes", *WHY),
    *(("dlq", "resolve", "3", "--yes", *WHY), ("destination", "remove", "mail", *WHY)),
)
"""What people do, with reasons that hold a secret."""
APP = """
import os
from redrive import Redrive, Retry, Terminal, http
from redrive.transports.http import Bearer

app = Redrive()
app.destination(
    "crm",
    "order.*",
    transport=http(
        os.environ["CRM"] + "/hook?planted-query-token",
        auth=Bearer("planted/http auth+token"),
        signing_keys="whsec_" + os.environ["KEY"],
        forward_headers=("authorization-of-event", "traceparent"),
        allow_private=True,
    ),
    retry=Retry(max_attempts=2, base="0s", cap="0s"),
    breaker=None,
)


@app.handler("order.*", name="billing", retry=Retry(max_attempts=2, base="0s", cap="0s"))
async def bill(event):
    raise ValueError(f"refused: {event.payload} with {event.headers}")


@app.handler("order.*", name="mail")
def mail(event):
    password = event.payload["password"].upper()
    raise Terminal(f"no mailbox for {password}")
"""
COMMANDS = (
    *(("status",), ("dlq", "list"), ("dlq", "groups"), ("audit",), ("doctor",)),
    *(("dlq", "show", "1"), ("delivery", "show", "2"), ("dlq", "show", "3")),
    *(("delivery", "list", "--status", "failed"), ("delivery", "list")),
    *(("destination", "list"), ("destination", "lanes"), ("breaker", "list"), ("tenant", "list")),
    *(("replay", "plan"), ("replay", "list"), ("dlq", "list", "--text", "mailbox")),
    *(("replay", "show", "1"), ("delivery", "show", "4")),
)


class _Echo(BaseHTTPRequestHandler):
    """A destination that refuses everything, and repeats what it was told."""

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"])).decode()
        told = f"{self.path} {self.headers} {sent} {quote(str(self.headers))}".encode()
        self.send_response(503)
        self.send_header("content-length", str(len(told)))
        self.send_header("x-echo", self.headers["authorization"].upper())
        self.send_header("set-cookie", "session=planted-query-token")
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - its name
        del format


@contextmanager
def echoing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def url(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store, with a password where one can be."""
    if store.startswith("postgres"):
        parts = urlsplit(store)
        user, _, host = parts.netloc.rpartition("@")
        user = user.partition(":")[0] or "postgres"
        store = urlunsplit(parts._replace(netloc=f"{user}:{SECRETS['store']}@{host}"))
    monkeypatch.setenv("REDRIVE_STORE", store)
    return store


async def publish(url: str) -> None:
    app = Redrive(url)
    async with app:
        await app.publish(
            "order.paid",
            {"order": 42, "password": SECRETS["password"], "nested": [{"api_key": SECRETS["key"]}]},
            headers={"authorization": SECRETS["header"]},
            tenant="acme",
        )


async def figures(url: str) -> Figures:
    async with Redrive(url) as app:
        return await app.operations.status()


def command_lines() -> str:
    """Return what everybody can see of every process."""
    told = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told.append(one.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it has just ended
            continue
    return "\n".join(told)


async def in_sql(url: str) -> str:
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    statement = "SELECT string_agg(one::text, ' ') FROM redrive.dead_letters AS one"
    try:
        return str(await connection.fetchval(named(statement, address.schema)))
    finally:
        await connection.close()


def found(told: str) -> list[str]:
    low = told.lower()
    return [one for one in SPELLINGS if one in low]


def test_planted_secrets_are_found_nowhere(url: str, shell: Shell, folder: Path) -> None:
    (folder / "planted_app.py").write_text(APP)
    shell("init")
    told: dict[str, str] = {}
    with echoing() as crm, (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "redrive", "worker", "planted_app:app"),
                *("--processes", "1", "--log-level", "debug"),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "CRM": crm, "KEY": SECRETS["key"]},
        )
        try:
            until(lambda: asyncio.run(figures(url)).workers != (), what="a worker")
            asyncio.run(publish(url))
            until(lambda: asyncio.run(figures(url)).letters.count == 3, what="three letters")
            told["process list"] = command_lines()
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_SECONDS)
    told["log"] = (folder / "worker.log").read_text()
    asyncio.run(publish(url))
    for act in ACTS:
        answer = shell(*act)
        assert answer.code == 0, answer.err
        told[" ".join(act[:2])] = answer.out + answer.err
    for command in COMMANDS:
        for options in ((), ("--json",)):
            answer = shell(*command, *options)
            assert answer.code in {0, 1}, answer.err
            told[" ".join((*command, *options))] = answer.out + answer.err
    told["top"] = shell("top", "--once", "--every", "100ms").out
    shell("dlq", "export", "--redacted", "--file", "shared.jsonl")
    told["redacted export"] = (folder / "shared.jsonl").read_text()
    if url.startswith("postgres"):
        told["view"] = asyncio.run(in_sql(url))

    assert {name: found(one) for name, one in told.items() if found(one)} == {}
    assert "dead letter" in told["log"]
    assert "planted_app:app" in told["process list"]
    assert "[redacted]" in told["dlq show 1"]
    whole = shell("dlq", "export").out
    assert SECRETS["password"] in whole
    assert SECRETS["header"] in whole
    for name in ("store", "auth", "query"):
        assert SECRETS[name] not in whole
    revealed = shell("dlq", "show", "1", "--reveal", "--by", "ann", "--why", "a call").out
    assert SECRETS["password"] in revealed
    assert "reveal 1 delivery (1)" in shell("audit").out
