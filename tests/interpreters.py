"""`make pythons`: run the fast tests on each Python that is supported and found here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["found", "main", "supported"]

ROOT = Path(__file__).parents[1]
_CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_ASKED = "import sys; print('%d.%d' % sys.version_info[:2])"


def supported() -> list[str]:
    """Return the versions that the project says it supports, the oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [one[1] for text in project["classifiers"] if (one := _CLASSIFIER.fullmatch(text))]


def found(versions: list[str], *, home: Path, path: str | None = None) -> dict[str, Path]:
    """Return the interpreters of these versions: on the path, then among those of pyenv.

    A name on the path may be a shim with nothing behind it, so each one is asked what it is.
    """
    return {
        version: interpreter
        for version in versions
        for interpreter in _first_that_is(version, _candidates(version, home, path))
    }


def _candidates(version: str, home: Path, path: str | None) -> Iterator[Path]:
    if named := shutil.which(f"python{version}", path=path):
        yield Path(named)
    installed = (home / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")
    yield from sorted(installed, reverse=True)


def _first_that_is(version: str, candidates: Iterator[Path]) -> list[Path]:
    return next(([one] for one in candidates if _answers(one) == version), [])


def _answers(interpreter: Path) -> str:
    command = [str(interpreter), "-c", _ASKED]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main(
    make: str,
    *,
    interpreters: Mapping[str, Path],
    run: Callable[[list[str]], int],
    tell: Callable[[str], None] = print,
) -> int:
    """Run the fast tests on each interpreter; 1 if they failed on one, or none was found."""
    versions = supported()
    for version in versions:
        where = interpreters.get(version)
        tell(f"pythons: {version} " + (f"is {where}" if where else "was not found here"))
    failed = []
    for version, where in interpreters.items():
        tell(f"pythons: the fast tests on {version} …")
        settings = [f"PYTHON={where}", f"VENV=.venv-{version}", "EXTRAS=test"]
        if run([make, "--no-print-directory", *settings, "test-fast"]) != 0:
            failed.append(version)
    missing = [version for version in versions if version not in interpreters]
    passed = [version for version in interpreters if version not in failed]
    for said, those in (("passed on", passed), ("FAILED on", failed), ("not tried:", missing)):
        if those:
            tell(f"pythons: {said} {', '.join(those)}")
    return int(bool(failed) or not passed)


if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[1],
            interpreters=found(supported(), home=Path.home()),
            run=lambda command: subprocess.run(command, cwd=ROOT, check=False).returncode,
            tell=lambda text: print(text, flush=True),  # noqa: T201 - it is a command
        )
    )
