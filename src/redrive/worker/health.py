"""Health: a worker's own port, where machines ask whether it lives, works, and how much."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, StoreError
from redrive.executor import Executor, RunningDuty
from redrive.model.gate import GateFigures
from redrive.observer import (
    DeclarationsAgree,
    DeclarationsDiffer,
    Fact,
    StoreBack,
    StoreLost,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from redrive.store import Figures, ProjectionFigures, Store

__all__ = ["HealthEndpoint", "Metrics", "Vitals"]

_TICK_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_SCRAPE_SECONDS = 5.0
_LONGEST_REQUEST = 16 * 1024
_MOST_CONNECTIONS = 16
_MOST_NAMED = 5
_JSON = "application/json"

_log = logging.getLogger("redrive")


_Read = tuple[Figures, Sequence[GateFigures], Sequence[ProjectionFigures]]
_Asked = tuple[Figures | None, Sequence[GateFigures], Sequence[ProjectionFigures]]


class Metrics(Protocol):
    """Who can tell a worker's metrics, such as a `PrometheusObserver`."""

    content_type: str

    def render(
        self,
        figures: Figures | None = None,
        gates: Sequence[GateFigures] = (),
        projections: Sequence[ProjectionFigures] = (),
    ) -> bytes:
        """Return all series as text. May be called from any thread."""


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


class Vitals:
    """What is known of one worker's health, from its facts and from its event loop's ticks.

    Everything may be called from any thread; `leave` even from a signal handler.
    """

    def __init__(self, *, worker: str, clock: Clock, longest_silence: timedelta) -> None:
        self.projections: Callable[[], dict[str, str]] = dict
        """Says how the worker's reading for each projection is; it keeps it from nothing."""
        self._worker = worker
        self._clock = clock
        self._longest_silence = longest_silence.total_seconds()
        self._last_tick = clock.monotonic()
        self._has_started = False
        self._is_leaving = False
        self._has_stopped = False
        self._trouble = ""
        self._others: tuple[str, ...] = ()
        self._removed: tuple[str, ...] = ()

    def notice(self, fact: Fact) -> None:
        """Take note of what this worker does; others are none of its business."""
        match fact:
            case WorkerStarted(worker=self._worker):
                self._has_started = True
            case WorkerStopping(worker=self._worker):
                self._is_leaving = True
            case WorkerStopped(worker=self._worker):
                self._has_stopped = True
            case StoreLost(worker=self._worker, trouble=trouble):
                self._trouble = trouble
            case StoreBack(worker=self._worker):
                self._trouble = ""
            case DeclarationsDiffer(worker=self._worker, destinations=others, removed=removed):
                self._others, self._removed = others, removed
            case DeclarationsAgree(worker=self._worker):
                self._others = self._removed = ()

    def tick(self) -> None:
        """Note that the handlers' event loop runs."""
        self._last_tick = self._clock.monotonic()

    def leave(self) -> None:
        """Say from now on that it is not ready: it has been told to stop."""
        self._is_leaving = True

    @property
    def silence(self) -> float:
        """For how many seconds the handlers' event loop was not heard of."""
        return max(0.0, self._clock.monotonic() - self._last_tick)

    @property
    def is_alive(self) -> bool:
        """Whether the handlers' event loop was heard of lately enough."""
        return self.silence <= self._longest_silence

    def notes(self) -> list[str]:
        """Return what is worth knowing of it, and keeps it from nothing."""
        found = []
        if self._others:
            names = _named(self._others)
            found.append(f"another declaration than this worker's is in force of {names}")
        if self._removed:
            found.append(f"this worker declares what was removed: {_named(self._removed)}")
        return found

    def hindrances(self) -> list[str]:
        """Return why it is not ready for work; nothing if it is."""
        found = []
        if self._has_stopped:
            found.append("the worker has stopped")
        elif self._is_leaving:
            found.append("the worker is stopping")
        elif not self._has_started:
            found.append("the worker has not started yet")
        if self._trouble:
            found.append(f"{self._trouble}; the log says why")
        if not self.is_alive:
            found.append(f"the event loop has been blocked for {self.silence:.0f} s")
        return found


class HealthEndpoint:
    """Answers `/healthz`, `/readyz` and `/metrics` while its block lasts.

    Enter it on the handlers' event loop. It listens and answers elsewhere, so that a handler that
    blocks this loop keeps nobody waiting. Port 0 takes any free one; `url` tells which.
    """

    def __init__(
        self,
        *,
        vitals: Vitals,
        metrics: Metrics | None,
        open_store: Callable[[], Awaitable[Store]],
        clock: Clock,
        executor: Executor,
        host: str,
        port: int,
    ) -> None:
        self.vitals = vitals
        self._metrics = metrics
        self._open_store = open_store
        self._clock = clock
        self._executor = executor
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._duty: RunningDuty | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading = asyncio.Lock()
        self._store: Store | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        port = self._port if self._server is None else self._server.server_address[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = self._listen()
        self._ticking = asyncio.create_task(self._tick())
        self._duty = self._executor.start(self._serve, name="redrive-health")
        _log.info("Health and metrics at %s.", self.url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.vitals.leave()
        if self._duty is not None:
            await self._duty.stop()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        if self._server is not None:
            self._server.server_close()

    def answer(self, path: str) -> Answer:
        """Answer a GET of a path; may wait for the store, so never call it on an event loop."""
        match path:
            case "/healthz":
                return self._live()
            case "/readyz":
                return self._ready()
            case "/metrics":
                return self._measure()
        hint = "there are /healthz, /readyz and /metrics"
        return _say(HTTPStatus.NOT_FOUND, {"error": hint})

    def _live(self) -> Answer:
        vitals = self.vitals
        return _say(
            HTTPStatus.OK if vitals.is_alive else HTTPStatus.SERVICE_UNAVAILABLE,
            {"alive": vitals.is_alive, "loop_silent_seconds": round(vitals.silence, 3)},
        )

    def _ready(self) -> Answer:
        reasons = self.vitals.hindrances()
        return _say(
            HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK,
            {
                "ready": not reasons,
                "reasons": reasons,
                "notes": self.vitals.notes(),
                "projections": self.vitals.projections(),
            },
        )

    def _measure(self) -> Answer:
        if self._metrics is None:
            hint = "metrics need prometheus-client: pip install 'redrive[metrics]'"
            return _say(HTTPStatus.NOT_FOUND, {"error": hint})
        text = self._metrics.render(*self._ask_figures())
        return Answer(HTTPStatus.OK, self._metrics.content_type, text)

    def _ask_figures(self) -> _Asked:
        """Return what the store tells, or nothing if it does not tell it in time."""
        if self._loop is None:
            return None, (), ()
        reading = self._read_figures()
        try:
            asked = asyncio.run_coroutine_threadsafe(reading, self._loop)
        except RuntimeError:  # the loop is closed: the worker has ended meanwhile
            reading.close()
            return None, (), ()
        try:
            return asked.result(_SCRAPE_SECONDS)
        except (StoreError, TimeoutError, concurrent.futures.CancelledError):
            asked.cancel()
            return None, (), ()

    async def _read_figures(self) -> _Read:
        async with self._reading:
            if self._store is None:
                self._store = await self._open_store()
            return (
                await self._store.figures(),
                await self._store.gates(),
                await self._store.projections(),
            )

    async def _tick(self) -> None:
        while True:
            self.vitals.tick()
            await self._clock.sleep(_TICK_SECONDS)

    def _listen(self) -> _Server:
        try:
            return _Server(self._host, self._port, self.answer, self._clock)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"The health endpoint cannot listen at {self.url}: {error}. "
                "Choose another port or host."
            ) from error

    async def _serve(self, stopped: asyncio.Event) -> None:
        """Accept connections until stopped, each answered on a thread of its own."""
        server = self._server
        if server is None:
            return
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(server.fileno(), server.handle_request)
        try:
            await stopped.wait()
        finally:
            self._loop.remove_reader(server.fileno())
            if self._store is not None:
                await self._store.close()


class Answer(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: HTTPStatus
    content_type: str
    body: bytes


def _say(status: HTTPStatus, what: object) -> Answer:
    return Answer(status, _JSON, msgspec.json.encode(what) + b"\n")


class _Server(ThreadingTCPServer):
    """The standard library's server, with an upper bound for everything."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS
    timeout = 0  # it is only asked when there is something to accept

    def __init__(self, host: str, port: int, answer: Callable[[str], Answer], clock: Clock) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer = answer
        self.clock = clock
        self._lock = threading.Lock()
        self._callers: dict[socket.socket, bool] = {}
        super().__init__((host, port), _Conversation)
        self.socket.setblocking(False)  # noqa: FBT003 - a caller that has gone must not be waited for

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the library has it
        if not self._make_room(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._leave(request)
            raise

    def _make_room(self, newcomer: socket.socket) -> bool:
        """Give the newcomer a place, if need be that of the caller that was silent for longest."""
        with self._lock:
            if len(self._callers) >= _MOST_CONNECTIONS:
                silent = next((one for one, asks in self._callers.items() if not asks), None)
                if silent is None:
                    return False
                del self._callers[silent]
                with suppress(OSError):  # it has hung up itself
                    silent.shutdown(socket.SHUT_RDWR)
            self._callers[newcomer] = False
            return True

    def heed(self, caller: socket.socket) -> bool:
        """Let a caller who has asked stay for the answer; tells whether it still has its place."""
        with self._lock:
            if caller not in self._callers:
                return False
            self._callers[caller] = True
            return True

    def _leave(self, caller: socket.socket) -> None:
        with self._lock:
            self._callers.pop(caller, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the library has it
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as the library has it
        error = sys.exception()
        if not isinstance(error, OSError):  # whoever hung up, or sent too much, is no news
            _log.error("The health endpoint failed; it goes on.", exc_info=error)


class _Conversation(BaseHTTPRequestHandler):
    """One request and its answer; nothing is logged, and no connection is kept."""

    server: _Server
    server_version = "Redrive"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Patience(self.connection, self.server.clock))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if not self.server.heed(self.connection):
            return
        try:
            path = urlsplit(self.path).path
        except ValueError as error:
            answer = _say(HTTPStatus.BAD_REQUEST, {"error": f"no address: {error}"})
        else:
            answer = self.server.answer(path)
        self.connection.settimeout(_REQUEST_SECONDS)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        pass


class _Patience(io.RawIOBase):
    """Reads a connection, for so many bytes and seconds in all and no more."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._until = clock.monotonic() + _REQUEST_SECONDS
        self._left = _LONGEST_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        seconds = self._until - self._clock.monotonic()
        if seconds <= 0 or self._left <= 0:
            raise TimeoutError("the request is too long, or takes too long")
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count
