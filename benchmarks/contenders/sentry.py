"""sentry_sdk: a message that is captured, for a transport that drops it at once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.calls import describe_library
from benchmarks.measures.tracking import FIELDS, Way, track_workload

__all__ = ["CONTENDER"]


@contextmanager
def _handing(place: Place) -> Iterator[Way]:
    del place
    library: Any = importlib.import_module("sentry_sdk")
    transport: Any = importlib.import_module("sentry_sdk.transport").Transport

    class Nowhere(transport):  # type: ignore[misc]  # it is only here where it is installed
        def capture_envelope(self, envelope: object) -> None: ...

    library.init(dsn="http://key@127.0.0.1:9/1", transport=Nowhere, default_integrations=False)
    yield lambda: library.capture_message("page seen", extras=FIELDS), library.flush


CONTENDER = Contender(
    name="sentry_sdk, capture_message",
    role=Role.PEER,
    arena=Arena.TRACKING,
    describe=describe_library("sentry-sdk"),
    workloads=track_workload(_handing),
    requirements=["sentry-sdk"],
    is_quick=False,
)
