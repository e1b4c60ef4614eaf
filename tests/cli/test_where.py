"""Where a command finds its store: by the app that knows it, and in the files of a folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import ConfigurationError, Redrive
from redrive.cli.session import knowing
from tests.cli.shell import Shell, Shop

SHOP = """
from redrive import Redrive

app = Redrive("{store}", redact=["iban"])

@app.handler("order.*", name="unknown-to-the-store")
async def unknown(event):
    pass
"""


@pytest.fixture
def store(sqlite: str) -> str:
    return sqlite


@pytest.fixture
def target(shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An app in a module that knows the store, which nothing else names."""
    monkeypatch.delenv("REDRIVE_STORE")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "where_shop.py").write_text(SHOP.format(store=shop.url), "utf-8")
    yield "where_shop:app"
    sys.modules.pop("where_shop", None)


@pytest.mark.parametrize("command", ["status", "doctor", "init"])
def test_a_command_is_told_the_app_alone(shell: Shell, target: str, command: str) -> None:
    assert shell(command, target, "--json").code == 0
    assert shell(command, "--app", target, "--json").code == 0


def test_every_other_command_takes_the_app_as_an_option(
    shell: Shell, shop: Shop, target: str
) -> None:
    shop.deliver({"error": "refused", "iban": "DE00"})

    answer = shell("dlq", "show", "1", "--app", target)

    assert answer.code == 0
    assert "DE00" not in answer.out, "what the app hides is hidden"
    assert shell("top", target, "--once").code == 0


def test_whoever_looks_through_an_app_declares_nothing(shell: Shell, target: str) -> None:
    names = [one["name"] for one in shell("status", target, "--json").json["destinations"]]

    assert names == ["billing", "mail"]


def test_a_store_that_is_named_twice_is_refused(shell: Shell, shop: Shop, target: str) -> None:
    answer = shell("status", target, "--store", shop.url)

    assert answer.code == 2
    assert "The store is named twice" in answer.err


def test_an_app_that_is_not_there_is_told(shell: Shell, target: str) -> None:
    assert "There is no module 'nowhere'" in shell("status", "nowhere:app").err
    assert "did you mean where_shop:app?" in shell("dlq", "list", "--app", "where_shop:ap").err


def test_what_is_known_holds_for_commands_that_name_no_store(
    shell: Shell, shop: Shop, target: str
) -> None:
    with knowing(lambda: Redrive(shop.url, redact=["iban"]).settings):
        known = shell("status", "--json")
    unknown = shell("status", "--json")

    assert (known.code, unknown.code) == (0, 3)


def test_the_table_of_a_project_has_settings(shell: Shell, shop: Shop, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "shop"\n[tool.redrive]\nstore = "{shop.url}"\nlease = "30s"\n', "utf-8"
    )

    assert Redrive().settings.lease.total_seconds() == 30
    assert shell("status").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[tool.redrive]\nleese = "30s"',
            "There is no setting in [tool.redrive] of pyproject.toml",
        ),
        ("[tool]\nredrive = 7", "write a table: [tool.redrive]"),
        ("[tool.redrive", "cannot be read as TOML"),
    ],
)
def test_a_mistake_in_the_table_of_a_project_is_told(folder: Path, text: str, said: str) -> None:
    (folder / "pyproject.toml").write_text(text, "utf-8")

    with pytest.raises(ConfigurationError) as error:
        Redrive()
    assert said in str(error.value)


def test_settings_in_two_files_are_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.redrive]\nlease = "30s"', "utf-8")
    (folder / "redrive.toml").write_text('lease = "20s"', "utf-8")

    with pytest.raises(ConfigurationError, match="keep the settings in one of them"):
        Redrive()


def test_a_project_that_does_not_speak_of_redrive_is_left_alone(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[broken", "utf-8")
    assert Redrive().settings.lease.total_seconds() == 15

    (folder / "pyproject.toml").write_text('[project]\ndependencies = ["redrive"]', "utf-8")
    (folder / "redrive.toml").write_text('lease = "20s"', "utf-8")
    assert Redrive().settings.lease.total_seconds() == 20
