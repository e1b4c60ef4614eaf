"""Health: a worker's own port, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive import (
    ConfigurationError,
    Event,
    Query,
    ReadModel,
    Redrive,
    Retry,
    StoreUnavailableError,
)
from redrive.app.declaration import Ports
from redrive.clock import SystemClock
from redrive.model.delivery import Status
from redrive.observer import StoreBack, StoreLost, WorkerStarted, WorkerStopped
from redrive.store import Claim, ClaimRequest, Figures
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.worker.health import HealthEndpoint
from tests.app.recorder import Recorder
from tests.waiting import PATIENCE_SECONDS, eventually


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        return json.loads(self.body)


class Moody(MemoryStore):
    """A store that can be out of reach."""

    is_away = False

    async def claim(self, request: ClaimRequest) -> Claim:
        self._answer()
        return await super().claim(request)

    async def figures(self) -> Figures:
        self._answer()
        return await super().figures()

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailableError("out of reach")


class Watched:
    """An app with a worker, its endpoint, and a recorder of its facts."""

    def __init__(self, app: Redrive, recorder: Recorder, health: HealthEndpoint) -> None:
        self.app = app
        self.recorder = recorder
        self.health = health

    async def get(self, path: str) -> Answer:
        return await asyncio.to_thread(get, self.health.url, path)


def get(url: str, path: str) -> Answer:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, response.headers["Content-Type"], response.read())
    finally:
        connection.close()


def shop(store: str = "memory://", *, order: Literal["none", "park"] = "none") -> Redrive:
    app = Redrive(store, poll="100ms")

    @app.handler("order.*", name="billing", order=order)
    async def bill(event: Event[Any]) -> None:
        pass

    return app


@asynccontextmanager
async def watched(app: Redrive) -> AsyncIterator[Watched]:
    """Run a worker with an endpoint beside the block."""
    recorder = Recorder()
    app.observe(recorder)
    async with app:
        worker = await app.make_worker()
        async with app.make_health(worker, port=0) as health:
            running = asyncio.create_task(worker.run())
            try:
                await recorder.wait_for(WorkerStarted)
                yield Watched(app, recorder, health)
            finally:
                worker.stop()
                await running


async def test_a_running_worker_is_alive_and_ready(store: str) -> None:
    async with watched(shop(store)) as one:
        live, ready = await one.get("/healthz"), await one.get("/readyz?verbose=1")

    assert (live.status, live.json["alive"]) == (200, True)
    assert (ready.status, ready.json) == (
        200,
        {"ready": True, "reasons": [], "notes": [], "projections": {}},
    )
    assert ready.kind == "application/json"


async def test_a_worker_is_ready_whatever_its_projections_do_and_says_how_they_are() -> None:
    app = Redrive("memory://")

    @app.projection("order.*", name="orders", on_failure="halt", retry=Retry(max_attempts=1))
    async def apply(event: Event[Any], _: ReadModel) -> None:
        raise ValueError(event.id)

    async def stands(one: Watched, expected: str) -> bool:
        ready = await one.get("/readyz")
        return bool((ready.status, ready.json["projections"]) == (200, {"orders": expected}))

    async with watched(app) as one:
        await eventually(lambda: stands(one, "at the end of the log"), what="it has read all")
        await app.publish("order.paid", key="a")
        await eventually(lambda: _has_failed(app), what="its event is a dead letter")
        await app.publish("order.paid", key="b")
        await eventually(
            lambda: stands(one, "held by a person, or by a dead letter"), what="it is halted"
        )


async def _has_failed(app: Redrive) -> bool:
    return bool((await app.operations.deliveries(Query(status=Status.FAILED))).deliveries)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_declares_another_is_ready_and_says_so(store: str) -> None:
    notes = ["another declaration than this worker's is in force of billing"]

    async def has_notes(one: Watched, expected: list[str]) -> bool:
        ready = await one.get("/readyz")
        assert (ready.status, ready.json["reasons"]) == (200, [])
        return bool(ready.json["notes"] == expected)

    async with watched(shop(store)) as one:
        async with shop(store, order="park") as new, new.worker():
            await eventually(lambda: has_notes(one, notes), what="another is in force")
        await eventually(lambda: has_notes(one, []), what="its own is in force again")


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_declares_what_was_removed_is_ready_and_says_so(store: str) -> None:
    async def has_notes(one: Watched) -> bool:
        ready = await one.get("/readyz")
        notes = ["this worker declares what was removed: billing"]
        return bool((ready.status, ready.json["notes"]) == (200, notes))

    async with watched(shop(store)) as one:
        await one.app.operations.remove_destination("billing", by="ada", why="moved")

        await eventually(lambda: has_notes(one), what="it says that it was removed")


async def test_a_worker_is_not_ready_before_it_runs_and_after(store: str) -> None:
    app, recorder = shop(store), Recorder()
    app.observe(recorder)
    async with app:
        worker = await app.make_worker()
        async with app.make_health(worker, port=0) as health:
            before = await asyncio.to_thread(get, health.url, "/readyz")
            await worker.run(until_idle=True)
            await recorder.wait_for(WorkerStopped)
            after = await asyncio.to_thread(get, health.url, "/readyz")

    assert (before.status, after.status) == (503, 503)
    assert before.json["ready"] is False
    assert before.json["reasons"] == ["the worker has not started yet"]
    assert after.json["reasons"] == ["the worker has stopped"]


async def test_a_worker_without_its_store_is_alive_but_not_ready() -> None:
    app, moody = shop(), Moody(SystemClock())
    with app.rewired(Ports(), lambda: moody):
        async with watched(app) as one:
            moody.is_away = True
            await one.recorder.wait_for(StoreLost)
            live, ready, metrics = [
                await one.get(path) for path in ("/healthz", "/readyz", "/metrics")
            ]
            moody.is_away = False
            await one.recorder.wait_for(StoreBack)
            again = await one.get("/readyz")

    assert (live.status, ready.status, again.status) == (200, 503, 200)
    assert ready.json["reasons"] == ["the store does not answer; the log says why"]
    assert b"\nredrive_store_up 0.0\n" in metrics.body
    assert b"\nredrive_store_lost_total 1.0\n" in metrics.body


async def test_metrics_tell_of_the_worker_and_of_the_store(store: str) -> None:
    async with watched(shop(store)) as one:
        await one.app.publish("order.paid")
        await one.app.publish("nobody.cares")
        first, second = await asyncio.gather(one.get("/metrics"), one.get("/metrics"))

    names = {family.name for family in text_string_to_metric_families(first.body.decode())}
    assert (first.status, second.status) == (200, 200)
    assert first.kind.startswith("text/plain; version=")
    assert {"redrive_attempts", "redrive_deliveries", "redrive_workers"} <= names
    assert b"\nredrive_events_published_total 2.0\n" in first.body
    assert b"\nredrive_store_up 1.0\n" in first.body


async def test_without_the_extra_metrics_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.app.serving.find_spec", lambda name: None)

    async with watched(shop()) as one:
        answer = await one.get("/metrics")

    assert answer.status == 404
    assert "pip install 'redrive[metrics]'" in answer.json["error"]


async def test_another_path_is_answered_with_those_there_are() -> None:
    async with watched(shop()) as one:
        answer = await one.get("/admin")

    assert answer.status == 404
    assert "/readyz" in answer.json["error"]


async def test_a_loop_that_stood_still_for_too_long_is_not_alive() -> None:
    app, clock = shop(), FakeClock()
    with app.rewired(Ports(clock=clock), lambda: MemoryStore(clock)):
        async with app:
            worker = await app.make_worker()
            async with app.make_health(worker, port=0, longest_silence="20s") as health:
                await clock.sleep(0)
                clock.advance("21s")
                # This loop stands still here, and yet somebody answers.
                answer = get(health.url, "/healthz")

    assert answer.status == 503
    assert answer.json == {"alive": False, "loop_silent_seconds": 21.0}


async def test_a_port_that_is_taken_is_refused_with_advice() -> None:
    app = shop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with app:
            worker = await app.make_worker()
            with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}.*another port"):
                await app.make_health(worker, port=port).__aenter__()


async def test_a_request_without_end_is_cut_off() -> None:
    async with watched(shop()) as one:
        netloc = urlsplit(one.health.url)

        def pour() -> int:
            address = (str(netloc.hostname), netloc.port or 0)
            with socket.create_connection(address, timeout=PATIENCE_SECONDS) as caller:
                caller.sendall(b"GET /healthz HTTP/1.0\r\n")
                sent = 0
                try:
                    while True:
                        sent += caller.send(b"X-Filler: " + b"x" * 1000 + b"\r\n")
                except OSError:
                    return sent

        sent = await asyncio.to_thread(pour)
        answer = await one.get("/healthz")

    assert sent < 10_000_000
    assert answer.status == 200


async def test_callers_who_say_nothing_give_way_to_who_asks() -> None:
    """Threads are bounded: whoever has been silent for longest is hung up on."""
    async with watched(shop()) as one:
        netloc = urlsplit(one.health.url)
        address = (str(netloc.hostname), netloc.port or 0)

        def crowd() -> tuple[bytes, list[bytes]]:
            silent = [socket.create_connection(address, timeout=20) for _ in range(20)]
            for caller in silent:
                caller.sendall(b"G")
            with socket.create_connection(address, timeout=20) as late:
                late.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                answer = late.recv(12)
            ends = [caller.recv(1) for caller in silent[:4]]
            for caller in silent:
                caller.close()
            return answer, ends

        answer, ends = await asyncio.to_thread(crowd)

    assert answer == b"HTTP/1.0 200"
    assert ends == [b""] * 4


@pytest.mark.parametrize(
    ("request_line", "begins", "has_body"),
    [
        (b"HEAD /healthz", b"HTTP/1.0 200", False),
        (b"HEAD /nowhere", b"HTTP/1.0 404", False),
        (b"GET http://[", b"HTTP/1.0 400", True),
    ],
)
async def test_odd_requests_are_answered(
    request_line: bytes, begins: bytes, caplog: pytest.LogCaptureFixture, *, has_body: bool
) -> None:
    async with watched(shop()) as one:
        netloc = urlsplit(one.health.url)

        def ask() -> bytes:
            address = (str(netloc.hostname), netloc.port or 0)
            with socket.create_connection(address, timeout=20) as caller:
                caller.sendall(request_line + b" HTTP/1.0\r\n\r\n")
                return caller.makefile("rb").read()

        answer = await asyncio.to_thread(ask)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(begins)
    assert b"Content-Length: " in head
    assert bool(body) == has_body
    assert "failed" not in caplog.text
