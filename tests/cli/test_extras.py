"""The plain install: what it lacks is named, with the extra that brings it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_HIDING = """
import sys
from importlib.machinery import PathFinder

EXTRAS = {
    *("aiohttp", "asyncpg", "jinja2", "markupsafe", "prometheus_client", "starlette", "uvicorn"),
    *("mcp", "mcp_types", "uvloop"),
}

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""
"""As if the extras had not been installed."""

_APP = """
from redrive import Redrive

app = Redrive("sqlite:///shop.db")

@app.handler("order.*")
def bill(event):
    raise SystemExit
"""


def on_plain_install(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{_HIDING}\n{program}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def command(*arguments: str) -> str:
    return f"from redrive.cli.main import main; sys.exit(main({list(arguments)!r}))"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo"], "redrive[http]"),
        (["demo", "--plain"], "redrive[http]"),
        (["status", "--store", "postgresql://localhost/shop"], "redrive[postgres]"),
        (["init", "--store", "postgresql://localhost/shop"], "redrive[postgres]"),
        (["worker", "shop:app", "--store", "postgresql://localhost/s"], "redrive[postgres]"),
        (["serve", "shop:app"], "redrive[web]"),
        (["mcp", "shop:app"], "redrive[mcp]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_command_names_the_extra_that_it_needs(
    arguments: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(_APP)

    answer = on_plain_install(tmp_path, command(*arguments))

    assert answer.returncode == 2, answer.stderr
    assert f"pip install '{extra}'" in answer.stderr
    assert "should not happen" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_the_metrics_observer_names_its_extra(tmp_path: Path) -> None:
    answer = on_plain_install(tmp_path, "from redrive.observers.prometheus import *")

    assert "ConfigurationError: Metrics need prometheus-client" in answer.stderr
    assert "pip install 'redrive[metrics]'" in answer.stderr


def test_a_store_in_a_file_needs_no_extra(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_APP)

    made = on_plain_install(tmp_path, command("init", "--store", "sqlite:///shop.db"))
    seen = on_plain_install(tmp_path, command("status", "--store", "sqlite:///shop.db"))
    loaded = on_plain_install(
        tmp_path, "from redrive.cli.target import load_app; load_app('shop:app')"
    )

    assert (made.returncode, seen.returncode, loaded.returncode) == (0, 0, 0), made.stderr


def test_a_client_that_blocks_needs_no_extra_and_the_other_names_it(tmp_path: Path) -> None:
    program = """
from redrive.client import AsyncClient, Client
print(Client("http://localhost"))
AsyncClient("http://localhost")
"""

    answer = on_plain_install(tmp_path, program)

    assert answer.stdout == "Client('http://localhost')\n"
    assert "pip install 'redrive[http]'" in answer.stderr
