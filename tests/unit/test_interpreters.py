"""`make pythons` tries each Python that is supported and really there, and says which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interpreters import found, main, supported


def _an_interpreter(folder: Path, version: str, *, answers: str | None) -> Path:
    """Make a program that says which Python it is, or, as an empty shim does, that it is none."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"python{version}"
    body = f"echo {answers}" if answers else "echo 'command not found' >&2; exit 127"
    file.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    file.chmod(0o755)
    return file


def test_the_supported_versions_are_those_of_the_project() -> None:
    assert supported() == ["3.11", "3.12", "3.13"]


def test_an_interpreter_on_the_path_is_found_if_it_runs(tmp_path: Path) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / ".pyenv" / "versions"
    on_path = _an_interpreter(tmp_path / "bin", "3.11", answers="3.11")
    _an_interpreter(shims, "3.12", answers=None)
    behind = _an_interpreter(pyenv / "3.12.1" / "bin", "3.12", answers="3.12")
    _an_interpreter(shims, "3.13", answers="3.10")

    path = os.pathsep.join([str(tmp_path / "bin"), str(shims)])

    assert found(supported(), home=tmp_path, path=path) == {"3.11": on_path, "3.12": behind}


@pytest.mark.parametrize(
    ("failing", "interpreters", "code"),
    [(None, ["3.11", "3.13"], 0), ("3.13", ["3.11", "3.13"], 1), (None, [], 1)],
    ids=["passed", "failed on one", "none there"],
)
def test_each_has_an_environment_of_its_own_and_one_failure_fails(
    failing: str | None, interpreters: list[str], code: int
) -> None:
    commands: list[list[str]] = []
    told: list[str] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return int(f"VENV=.venv-{failing}" in command)

    given = {version: Path(f"/usr/bin/python{version}") for version in interpreters}
    assert main("make", interpreters=given, run=run, tell=told.append) == code

    assert [command[-3] for command in commands] == [f"VENV=.venv-{one}" for one in interpreters]
    assert "pythons: 3.12 was not found here" in told
    assert ("pythons: FAILED on 3.13" in told) is (failing == "3.13")
