"""The machine the figures come from."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["describe_machine"]


def describe_machine(folder: Path) -> dict[str, str]:
    """Return what matters of this machine: processor, cores, system, Python, file system."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file system": _file_system(folder.resolve()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(folder: Path) -> str:
    """On a file system in memory a commit costs nothing, and no figure means anything."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    fitting = [
        (len(point), kind)
        for _, point, kind, *_ in (line.split() for line in mounts)
        if folder.is_relative_to(point)
    ]
    return max(fitting)[1] if fitting else "unknown"
