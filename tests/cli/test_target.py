"""The app a worker is told to run: found, or one sentence about why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import ConfigurationError, NotFoundError, RedriveError
from redrive.cli.target import load_app

SHOP = """
from redrive import Redrive

app = Redrive("memory://")
number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = list(sys.modules)
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    yield tmp_path
    for name in [name for name in sys.modules if name not in before]:
        if name.partition(".")[0] in {"shop", "broken"}:
            del sys.modules[name]


def test_an_app_is_found_in_the_current_folder() -> None:
    assert load_app("shop:app").settings.store == "memory://"


@pytest.mark.parametrize(
    ("target", "kind", "sentence"),
    [
        ("shop", ConfigurationError, "'shop' does not name an app; write the module and the"),
        ("shop:", ConfigurationError, "'shop:' does not name an app"),
        ("shop.py:app", NotFoundError, "'shop.py:app' names a file; write the module, shop:app."),
        ("shopp:app", NotFoundError, "There is no module 'shopp' in "),
        ("shop.till:app", NotFoundError, "There is no module 'shop.till' in "),
        ("shop:ap", NotFoundError, "shop has no 'ap'; did you mean shop:app?"),
        ("shop:engine", NotFoundError, "shop has no 'engine'; did you mean shop:app?"),
        ("shop:number", ConfigurationError, "shop:number is not a Redrive app but a int; did you"),
        ("shop:Redrive", ConfigurationError, "shop:Redrive is not a Redrive app but the class"),
        ("json:app", NotFoundError, "json has no 'app'; there is no app in it; make one with"),
    ],
)
def test_a_target_that_names_no_app_is_refused_with_advice(
    target: str, kind: type[RedriveError], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        load_app(target)

    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nowhere_at_all", "it needs 'nowhere_at_all', which is not there ("),
        ("from redrive import Redriven", "ImportError: cannot import name 'Redriven' from 'red"),
        ("1 / 0", "ZeroDivisionError: division by zero ("),
        ("def (", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3 ("),
    ],
)
def test_a_module_that_breaks_while_it_is_imported_says_what_and_where(
    folder: Path, source: str, sentence: str
) -> None:
    (folder / "broken.py").write_text(source, "utf-8")

    with pytest.raises(NotFoundError) as refused:
        load_app("broken:app")

    assert str(refused.value).startswith(f"The module 'broken' cannot be imported: {sentence}")
    assert "broken.py" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_mistake_in_the_declarations_is_told_as_it_is(folder: Path) -> None:
    (folder / "broken.py").write_text('from redrive import Redrive\nRedrive("tape://")', "utf-8")

    with pytest.raises(ConfigurationError, match=r"^The store URL 'tape://'"):
        load_app("broken:app")
