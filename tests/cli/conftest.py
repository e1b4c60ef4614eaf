"""Every command runs in a folder of its own, against a store of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, Shop


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    # The next test may write a module of the same name.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


@pytest.fixture
def sqlite(folder: Path) -> str:
    """The URL of a SQLite file that is still to be created."""
    return f"sqlite:///{folder / 'shop.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store, one of each kind; a module may have one kind only."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def shop(store: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("REDRIVE_STORE", store)
    shop = Shop(store)
    shop.publish()
    return shop
