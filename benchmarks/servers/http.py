"""The service that HTTP deliveries go to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["Receiver"]


class Receiver:
    """Its process."""

    def __init__(self, stack: ExitStack) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.receiver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._stop)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend its address."""
        yield f"http://127.0.0.1:{self._port}/hooks"

    def _stop(self) -> None:
        self._process.communicate()  # it ends with its input
