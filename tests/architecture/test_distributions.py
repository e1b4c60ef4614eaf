"""What is built to be installed, and what authors of other stores find."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"]
    subprocess.run([*command, "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_source_distribution_brings_the_conformance_suite(built: Path) -> None:
    """Authors of other stores have no other way to get it."""
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}

    suite = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/conformance").glob("*.py")}
    assert suite <= names


def test_the_wheel_brings_the_kit_and_no_tests(built: Path) -> None:
    """Who only uses Redrive installs what it needs to run, to be tested with and to be shown."""
    [archive] = built.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()

    assert {"redrive/testing/kit.py", "redrive/demo/story.py", "redrive/py.typed"} <= set(names)
    assert [name for name in names if "conformance" in name or name.startswith("tests")] == []
