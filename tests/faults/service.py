"""A web service in this process that is down, hangs or answers, and counts who is inside."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Literal

from tests.waiting import spend_at_once

Mood = Literal["down", "hanging", "up"]
_STEP_SECONDS = 0.02
_WORK_SECONDS = 0.05


class Service:
    """What the tests see of it. `counted` successes long it notes the most requests at once."""

    def __init__(self, *, counted: int) -> None:
        self.mood: Mood = "down"
        self.url = ""
        self.hanging: list[int] = []
        """The processes whose requests hang now."""
        self.most_at_once = 0
        self.successes = 0
        self.requests = 0
        self._counted = counted
        self._inside = 0
        self._lock = threading.Lock()

    def begin_to_count(self) -> None:
        """Forget how many were at once so far."""
        with self._lock:
            self.most_at_once = self._inside

    @contextmanager
    def visited(self) -> Iterator[None]:
        """Count one who is inside."""
        with self._lock:
            self.requests += 1
            self._inside += 1
            if self.successes < self._counted:
                self.most_at_once = max(self.most_at_once, self._inside)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1

    def answer(self, client: socket.socket, pid: int) -> int | None:
        """Return the status for a request; nothing if its sender has gone meanwhile."""
        if self.mood == "down":
            return 503
        if self.mood == "hanging":
            self.hanging.append(pid)
            while self.mood == "hanging":
                if _has_gone(client):
                    return None
                spend_at_once(_STEP_SECONDS)
        spend_at_once(_WORK_SECONDS)
        with self._lock:
            self.successes += 1
        return 204


@contextmanager
def serving(*, counted: int) -> Iterator[Service]:
    """Run the service beside the block."""
    given = Service(counted=counted)

    class Handler(BaseHTTPRequestHandler):
        service: ClassVar[Service] = given
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with self.service.visited():
                status = self.service.answer(self.connection, int(self.headers["x-process"]))
                if status is None:
                    self.close_connection = True
                    return
            # Counted out before it is answered: the next one may begin at once.
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    given.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield given
    finally:
        given.mood = "down"
        server.shutdown()
        server.server_close()
        thread.join()


def _has_gone(client: socket.socket) -> bool:
    readable, _, _ = select.select([client], [], [], 0)
    if not readable:
        return False
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
