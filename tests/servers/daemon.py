"""A server process that ends with the process that started it, however that one ends."""

from __future__ import annotations

import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS, spend_at_once

__all__ = ["Daemon", "a_folder", "free_port", "run", "unprivileged"]

# The shell outlives us by a moment: it notices that its input has ended, and ends the server.
_KEEPER = """
exec 3<&0
"$@" 3<&- </dev/null >&2 &
server=$!
(read -r _ <&3; kill -$END $server) &
watch=$!
echo $server
wait $server
code=$?
kill $watch
exit $code
"""


class Daemon:
    """A program that was started; what it has to say is in a file of its folder.

    `end` is the signal by which it ends at once.
    """

    def __init__(self, command: Sequence[str], *, folder: Path, end: signal.Signals) -> None:
        self._log = folder / "log"
        self._end = end
        with self._log.open("ab") as said:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "keeper", *command],
                cwd=folder,
                env={**os.environ, "END": end.name.removeprefix("SIG")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                # A Ctrl-C is for the tests; they stop their servers themselves.
                start_new_session=True,
                **unprivileged(),  # type: ignore[call-overload]
            )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline())

    def until(self, condition: Callable[[], bool], *, within: float, what: str) -> None:
        """Wait for something that this server brings about."""
        end = time.monotonic() + within
        while not condition():
            if self._keeper.poll() is not None:
                raise RuntimeError(f"The server ended instead: {what}.\n{self.last_words()}")
            if time.monotonic() > end:
                raise RuntimeError(f"After {within} s still not: {what}.\n{self.last_words()}")
            spend_at_once(0.02)

    def last_words(self) -> str:
        """Return the end of what it has written."""
        return self._log.read_text("utf-8", "replace")[-2000:]

    def stop(self, word: signal.Signals | None = None) -> None:
        """Send it a signal, the one that ends it at once if none is named, and wait for its end."""
        if self._keeper.poll() is None:
            os.kill(self.pid, word or self._end)
            self._keeper.wait(PATIENCE_SECONDS)
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            pipe.close()


def run(command: Sequence[str], *, folder: Path) -> None:
    """Run a program to its end; what it printed is told if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **unprivileged(),  # type: ignore[call-overload]
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")


def unprivileged() -> dict[str, object]:
    """Return how to start a process that may not be root's: PostgreSQL refuses to be."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def a_folder(name: str) -> Path:
    """Make a folder that a server can use, whoever it runs as."""
    folder = Path(tempfile.mkdtemp(prefix=f"redrive-{name}-"))
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return folder


def free_port() -> int:
    """Return a port of loopback that nobody listens at.

    It is below those that the system gives to whoever connects somewhere: one of those may be
    taken before the server that was to have it has started.
    """
    while True:
        port = random.SystemRandom().randrange(16_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
