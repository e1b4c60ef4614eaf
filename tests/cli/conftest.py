"""Every command runs in a folder of its own, against a store of its own."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell, Shop


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


@pytest.fixture
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(folder)
    monkeypatch.setenv("REDRIVE_STORE", shop.url)
    shop.publish()
    return shop
