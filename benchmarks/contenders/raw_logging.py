"""logging with a QueueHandler: a record that a thread hands to a handler that drops it."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.tracking import FIELDS, Way, track_workload

__all__ = ["CONTENDER"]


@contextmanager
def _handing(place: Place) -> Iterator[Way]:
    del place
    queue: SimpleQueue[Any] = SimpleQueue()
    log = logging.getLogger("benchmarks.tracking")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = QueueHandler(queue)
    log.addHandler(handler)
    listener = QueueListener(queue, logging.NullHandler())
    listener.start()

    def wait() -> None:
        while not queue.empty():
            pass

    yield lambda: log.info("page seen", extra=FIELDS), wait
    listener.stop()
    log.removeHandler(handler)


def _describe(place: Place) -> Mapping[str, str]:
    del place
    return {"library": f"python {platform.python_version()}", "handler": "QueueHandler"}


CONTENDER = Contender(
    name="logging, QueueHandler",
    role=Role.LIMIT,
    arena=Arena.TRACKING,
    describe=_describe,
    workloads=track_workload(_handing),
)
