"""Redrive delivers events and never loses one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from redrive.app.once import Once
    from redrive.app.projecting import Projection, on
    from redrive.app.redrive import Redrive
    from redrive.calling.response import Response
    from redrive.context import Current, current, log_fields
    from redrive.errors import (
        BufferFullError,
        ConditionError,
        ConfigurationError,
        DeliveryFailedError,
        DeniedError,
        EditConflictError,
        IdempotencyConflictError,
        JournalError,
        LoginThrottledError,
        MissingFieldError,
        NotFoundError,
        PayloadError,
        RedriveError,
        RenderError,
        RequestError,
        RequestRefusedError,
        ResultTimeoutError,
        SchemaError,
        SecretError,
        ServerError,
        StoreCorruptError,
        StoreError,
        StoreFullError,
        StoreReadOnlyError,
        StoreUnavailableError,
        Terminal,
        Throttled,
        TransactionError,
        Transient,
        UsageError,
        VersionConflictError,
    )
    from redrive.model.event import Event, NewEvent, Receipt, Severity
    from redrive.model.fairness import Fairness
    from redrive.model.health import HealthCheck
    from redrive.model.limits import Breaker, Rate, SharedRate
    from redrive.model.outcome import Cancel, Snooze
    from redrive.model.position import LogPosition
    from redrive.model.replay import AutoReplay
    from redrive.model.request_log import RequestLog
    from redrive.model.retention import Keep
    from redrive.observer import BreakerChanged, DeadLettered, DestinationPaused, ReplayStopped
    from redrive.operations import Operations
    from redrive.policies.filter import Filter
    from redrive.policies.retry import Proportional, Retry
    from redrive.store import LoggedEvent, Query, Replay
    from redrive.tracking.quiet import quiet, strict
    from redrive.tracking.terms import Bypass, Tracking
    from redrive.transports.http import http
    from redrive.transports.projection import ReadModel

__all__ = [
    "AutoReplay",
    "Breaker",
    "BreakerChanged",
    "BufferFullError",
    "Bypass",
    "Cancel",
    "ConditionError",
    "ConfigurationError",
    "Current",
    "DeadLettered",
    "DeliveryFailedError",
    "DeniedError",
    "DestinationPaused",
    "EditConflictError",
    "Event",
    "Fairness",
    "Filter",
    "HealthCheck",
    "IdempotencyConflictError",
    "JournalError",
    "Keep",
    "LogPosition",
    "LoggedEvent",
    "LoginThrottledError",
    "MissingFieldError",
    "NewEvent",
    "NotFoundError",
    "Once",
    "Operations",
    "PayloadError",
    "Projection",
    "Proportional",
    "Query",
    "Rate",
    "ReadModel",
    "Receipt",
    "Redrive",
    "RedriveError",
    "RenderError",
    "Replay",
    "ReplayStopped",
    "RequestError",
    "RequestLog",
    "RequestRefusedError",
    "Response",
    "ResultTimeoutError",
    "Retry",
    "SchemaError",
    "SecretError",
    "ServerError",
    "Severity",
    "SharedRate",
    "Snooze",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "Terminal",
    "Throttled",
    "Tracking",
    "TransactionError",
    "Transient",
    "UsageError",
    "VersionConflictError",
    "current",
    "http",
    "log_fields",
    "on",
    "quiet",
    "strict",
]

# A name is imported when it is first asked for, so that `redrive --help` answers at once.
_HOMES = (
    "redrive.calling.response",
    "redrive.context",
    "redrive.errors",
    "redrive.model.event",
    "redrive.model.fairness",
    "redrive.model.health",
    "redrive.model.limits",
    "redrive.model.outcome",
    "redrive.model.position",
    "redrive.model.replay",
    "redrive.model.request_log",
    "redrive.model.retention",
    "redrive.policies.filter",
    "redrive.policies.retry",
    "redrive.store",
    "redrive.observer",
    "redrive.operations",
    "redrive.app.redrive",
    "redrive.app.projecting",
    "redrive.app.once",
    "redrive.tracking.quiet",
    "redrive.tracking.terms",
    "redrive.transports.http",
    "redrive.transports.projection",
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        for home in _HOMES if name in __all__ else ():
            module = import_module(home)
            if name in module.__all__:
                value = globals()[name] = getattr(module, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
