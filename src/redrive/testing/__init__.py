"""What applications need to test with Redrive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.testing.clock import FakeClock
    from redrive.testing.kit import ConnectKit, Kit
    from redrive.testing.scripted import ScriptedDestination

__all__ = ["ConnectKit", "FakeClock", "Kit", "ScriptedDestination"]

_HOMES = {
    "ConnectKit": "kit",
    "FakeClock": "clock",
    "Kit": "kit",
    "ScriptedDestination": "scripted",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: the plugin loads this package into every run of pytest."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
