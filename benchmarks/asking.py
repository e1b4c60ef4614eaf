"""Asking a child process for a measurement."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from benchmarks.contender import Place
from benchmarks.environment import ROOT

__all__ = ["RunFailedError", "ask", "ask_for_all"]


class RunFailedError(Exception):
    """A run ended with an error, or not at all; the others go on."""


def ask(python: str, place: Place, *, patience: float, **task: object) -> Any:  # noqa: ANN401 - JSON
    """Return the one answer of a child."""
    (answer,) = ask_for_all(python, place, patience=patience, **task)
    return answer


def ask_for_all(python: str, place: Place, *, patience: float, **task: object) -> Iterator[Any]:
    """Yield the answers of a child as they come; it is ended when patience runs out."""
    given = {**task, "folder": str(place.folder), "url": place.url}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [python, "-m", "benchmarks.child", json.dumps(given)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        end = threading.Timer(patience, child.kill)
        end.start()
        try:
            for line in child.stdout:
                yield json.loads(line)
            code = child.wait()
        finally:
            is_late = end.finished.is_set()
            end.cancel()
            child.kill()
        if is_late:
            raise RunFailedError(f"it took longer than {patience:.0f} s")
        if code:
            errors.seek(0)
            raise RunFailedError(errors.read() or f"it ended with {code}")
