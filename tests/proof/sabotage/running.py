"""Carries out an act of sabotage on a copy of the source, and looks whether the tests notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.proof.sabotage.act import Sabotage

__all__ = ["is_caught", "spoil"]

ROOT = Path(__file__).parents[3]
_SECONDS = 120
_TESTS_FAILED = 1


def spoil(source: Path, act: Sabotage) -> None:
    """Replace the line; it must be there, and once."""
    path = source / act.path
    text = path.read_text("utf-8")
    if text.count(act.line) != 1:
        raise AssertionError(
            f"{act.path} has the line of {act.name!r} {text.count(act.line)} times; "
            "bring the list of sabotages up to date."
        )
    path.write_text(text.replace(act.line, act.becomes), "utf-8")


def is_caught(act: Sabotage) -> bool:
    """Tell whether one of the tests that must notice it fails."""
    with tempfile.TemporaryDirectory(prefix="redrive-sabotage-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        spoil(source, act)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *act.arguments),
                *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode not in {0, _TESTS_FAILED}:
            raise AssertionError(done.stdout.decode(errors="replace")[-2000:])
        return done.returncode == _TESTS_FAILED
