"""Where peers live: a virtual environment of their own, made when it is first needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.contender import Contender

__all__ = ["PeerUnavailableError", "interpreter_for"]

ROOT = Path(__file__).parents[1]
_FOLDER = ROOT / ".venv-bench"


class PeerUnavailableError(Exception):
    """A peer cannot be installed, such as without a network; it is left out."""


def interpreter_for(contender: Contender) -> str:
    """Return the Python that can import the contender, installing it if need be."""
    if contender.requirement is None:
        return sys.executable
    python = str(_FOLDER / "bin" / "python")
    if not Path(python).exists():
        _run(sys.executable, "-m", "venv", str(_FOLDER))
        (_FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    name = contender.requirement.partition("[")[0]
    look = f"from importlib.metadata import version; version({name!r})"
    if subprocess.run([python, "-c", look], capture_output=True, check=False).returncode:
        _run(python, "-m", "pip", "install", "--quiet", "--no-input", contender.requirement)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailableError(said[-1] if said else f"{command[0]} failed")
