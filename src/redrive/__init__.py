"""Redrive delivers events and never loses one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from redrive.app.projecting import Projection, on
    from redrive.app.redrive import Redrive
    from redrive.context import Current, current, log_fields
    from redrive.errors import (
        ConfigurationError,
        DeliveryFailedError,
        DeniedError,
        EditConflictError,
        IdempotencyConflictError,
        LoginThrottledError,
        NotFoundError,
        PayloadError,
        RedriveError,
        ResultTimeoutError,
        SchemaError,
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
    from redrive.model.retention import Keep
    from redrive.observer import BreakerChanged, DeadLettered, DestinationPaused, ReplayStopped
    from redrive.operations import Operations
    from redrive.policies.retry import Proportional, Retry
    from redrive.store import LoggedEvent, Query, Replay
    from redrive.transports.http import http
    from redrive.transports.projection import ReadModel

__all__ = [
    "AutoReplay",
    "Breaker",
    "BreakerChanged",
    "Cancel",
    "ConfigurationError",
    "Current",
    "DeadLettered",
    "DeliveryFailedError",
    "DeniedError",
    "DestinationPaused",
    "EditConflictError",
    "Event",
    "Fairness",
    "HealthCheck",
    "IdempotencyConflictError",
    "Keep",
    "LogPosition",
    "LoggedEvent",
    "LoginThrottledError",
    "NewEvent",
    "NotFoundError",
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
    "Replay",
    "ReplayStopped",
    "ResultTimeoutError",
    "Retry",
    "SchemaError",
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
    "TransactionError",
    "Transient",
    "UsageError",
    "VersionConflictError",
    "current",
    "http",
    "log_fields",
    "on",
]

# A name is imported when it is first asked for, so that `redrive --help` answers at once.
_HOMES = (
    "redrive.context",
    "redrive.errors",
    "redrive.model.event",
    "redrive.model.fairness",
    "redrive.model.health",
    "redrive.model.limits",
    "redrive.model.outcome",
    "redrive.model.position",
    "redrive.model.replay",
    "redrive.model.retention",
    "redrive.policies.retry",
    "redrive.store",
    "redrive.observer",
    "redrive.operations",
    "redrive.app.redrive",
    "redrive.app.projecting",
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
