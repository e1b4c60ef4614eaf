"""OpenTelemetry: a log record, by a batch processor, for an exporter that drops it."""

from __future__ import annotations

import importlib
import time
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
    api: Any = importlib.import_module("opentelemetry._logs")
    sdk: Any = importlib.import_module("opentelemetry.sdk._logs")
    export: Any = importlib.import_module("opentelemetry.sdk._logs.export")

    class Nowhere(export.LogRecordExporter):  # type: ignore[misc]  # as its interface is there
        def export(self, batch: object) -> object:
            del batch
            return export.LogRecordExportResult.SUCCESS

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 0) -> bool:
            return timeout_millis >= 0

    provider = sdk.LoggerProvider()
    provider.add_log_record_processor(export.BatchLogRecordProcessor(Nowhere()))
    log, info = provider.get_logger("benchmarks"), api.SeverityNumber.INFO

    def hand_over() -> None:
        log.emit(
            api.LogRecord(
                timestamp=time.time_ns(), severity_number=info, body="page seen", attributes=FIELDS
            )
        )

    yield hand_over, provider.force_flush
    provider.shutdown()


CONTENDER = Contender(
    name="OpenTelemetry, log record in a batch",
    role=Role.PEER,
    arena=Arena.TRACKING,
    describe=describe_library("opentelemetry-sdk"),
    workloads=track_workload(_handing),
    requirements=["opentelemetry-sdk"],
    is_quick=False,
)
