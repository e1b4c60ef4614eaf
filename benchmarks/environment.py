"""Where peers live: a virtual environment of their own, made when it is first needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contender import Contender

__all__ = ["ROOT", "PeerUnavailableError", "interpreter_for", "python_with"]

ROOT = Path(__file__).parents[1]
_FOLDER = ROOT / ".venv-bench"
_CONSTRAINTS = Path(__file__).with_name("constraints.txt")


class PeerUnavailableError(Exception):
    """A peer cannot be installed, such as without a network; it is left out."""


def interpreter_for(contender: Contender) -> str:
    """Return the Python that can import the contender, installing it if need be."""
    return python_with(contender.requirements) if contender.requirements else sys.executable


def python_with(requirements: Sequence[str]) -> str:
    """Return the Python of the peers, with these installed in it."""
    python = str(_FOLDER / "bin" / "python")
    if not Path(python).exists():
        _run(sys.executable, "-m", "venv", str(_FOLDER))
        (_FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    names = [one.partition("[")[0] for one in requirements]
    look = f"from importlib.metadata import version; [version(n) for n in {names!r}]"
    if subprocess.run([python, "-c", look], capture_output=True, check=False).returncode:
        install = ("install", "--quiet", "--no-input", "-c", str(_CONSTRAINTS))
        _run(python, "-m", "pip", *install, *requirements)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailableError(said[-1] if said else f"{command[0]} failed")
