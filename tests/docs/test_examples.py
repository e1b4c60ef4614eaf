"""Every example in the documentation does what the page says, and is typed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import Walk, programs_of
from tests.docs.pages import ROOT, TYPES, blocks_of, name_of, needs_postgres, pages

WITH_EXAMPLES = [
    page
    for page in pages()
    if any(block.language in {"python", "console"} for block in blocks_of(page))
]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_a_reader_who_follows_the_page_gets_what_it_promises(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """An example that no longer works costs every reader the same hour."""
    is_installed = request.config.pluginmanager.has_plugin("redrive")
    by_name = [] if is_installed else ["-p", "redrive.testing.plugin"]
    database = request.getfixturevalue("database_name") if needs_postgres(page) else "shop"

    Walk(page, tmp_path, monkeypatch, database=database).follow(pytest_options=by_name)


def test_every_example_is_strictly_typed(tmp_path: Path) -> None:
    """A newcomer's first program is often a copy; it should pass their type checker."""
    programs = [program for page in pages() for program in programs_of(page)]
    for name, source in programs:
        assert not (tmp_path / name).exists(), f"two examples are saved as {name}"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")

    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "."),
            "--explicit-package-bases",
            # Django comes without types.
            *("--disable-error-code", "import-untyped", "--allow-subclassing-any"),
            # What it found in our own modules stands until they change.
            *("--cache-dir", str(TYPES / "examples")),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert programs
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("example", "complaint"),
    [
        ("```python\n1 / 0\n```", "division by zero"),
        ("<!-- needs msgspec -->\n```python\n1 / 0\n```", "division by zero"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "page.md:6 promises"),
        ("```python\na = 1\n```\n\n```python\na\n```", "name 'a' is not defined"),
        ("```python\ndef test_it() -> None:\n    assert 0\n```", "1 failed"),
        ("```console\n$ redrive --help\nUsage: …\n$ redrive nonsense\n```", "nonsense"),
        ("```console\n$ redrive --help\nUsage: other\n```", "page.md:2 promises"),
        ("<!-- exit code 1 -->\n```console\n$ redrive --help\n```", "redrive --help"),
    ],
    ids=["raises", "needs", "prints", "apart", "tests", "command", "command-prints", "exit-code"],
)
def test_an_example_that_breaks_its_promise_is_found(
    example: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that cannot fail is a defect."""
    page = tmp_path / "page.md"
    page.write_text(f"{example}\n", encoding="utf-8")

    with pytest.raises((AssertionError, ArithmeticError, NameError), match=re.escape(complaint)):
        Walk(page, tmp_path, monkeypatch).follow(pytest_options=[])


def test_examples_that_keep_their_promises_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that cries wolf is switched off."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# saved.py\na = 1\n```\n\n"
        "```python\nimport saved\nprint(saved.a, 'and more')\n```\n\n"
        "```text\n1   …\n```\n\n"
        "<!-- needs what_nobody_has -->\n```python\n1 / 0\n```\n\n"
        "<!-- exit code 2 -->\n```console\n$ make nothing\n$ A=1 redrive nonsense\n```\n",
        encoding="utf-8",
    )

    Walk(page, tmp_path, monkeypatch).follow(pytest_options=[])

    assert "saved" not in sys.modules
