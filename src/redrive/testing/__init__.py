"""What applications need to test with Redrive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.testing.clock import FakeClock
    from redrive.testing.kit import ConnectKit, ConnectSyncKit, Kit, SyncKit
    from redrive.testing.scripted import ScriptedDestination
    from redrive.testing.transactions import FakeTransaction

__all__ = [
    "ConnectKit",
    "ConnectSyncKit",
    "FakeClock",
    "FakeTransaction",
    "Kit",
    "ScriptedDestination",
    "SyncKit",
]

_HOMES = {
    "ConnectKit": "kit",
    "ConnectSyncKit": "kit",
    "FakeClock": "clock",
    "FakeTransaction": "transactions",
    "Kit": "kit",
    "ScriptedDestination": "scripted",
    "SyncKit": "kit",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: the plugin loads this package into every run of pytest."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
