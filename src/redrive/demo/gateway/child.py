"""`redrive worker` in a process of its own that ends when its standard input does.

The first line of that is the address of the store, which nobody is to read on a command line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import msgspec

from redrive.cli.worker import worker

__all__ = ["Confided", "work"]


class Confided(msgspec.Struct, frozen=True):
    """What the worker has to know that the file does not say."""

    store: str


def work(confided: Confided) -> int:
    """Serve all services of the store until nobody holds the other end of standard input."""

    def await_the_end() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=await_the_end, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return worker(None, store=confided.store, processes=None, concurrency=None, log_level="warning")


if __name__ == "__main__":
    sys.exit(work(msgspec.json.decode(sys.stdin.buffer.readline(), type=Confided)))
