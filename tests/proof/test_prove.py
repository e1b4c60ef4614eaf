"""`make prove` says what was lost, and its figures are the ones in the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof import __main__ as prove
from tests.proof.parts import Order, Part
from tests.proof.results import Result, in_docs, read


def _a_part(**fields: object) -> Part:
    def run(order: Order) -> Iterator[Result]:
        order.told("at it")
        given = {"part": "trial", "what": "things tried", "store": "sqlite", "tried": 7, **fields}
        yield Result(**given)  # type: ignore[arg-type]

    return Part("trial", "a trial", 1, run)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({}, 0, "nothing was lost"),
        ({"lost": 1}, 1, "FAILED"),
        ({"failure": "Seed 7.\nit broke"}, 1, "it broke"),
    ],
    ids=["clean", "lost", "failed"],
)
def test_the_exit_code_and_the_json_say_what_came_of_it(  # noqa: PLR0917 - fixtures
    fields: dict[str, object],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(prove, "PARTS", (_a_part(**fields),))

    assert prove.main(["--json", str(tmp_path / "proof.json")]) == code

    assert words in capsys.readouterr().out
    proof = read(tmp_path / "proof.json")
    assert proof.is_clean is (code == 0)
    assert [(one.what, one.tried) for one in proof.results] == [("things tried", 7)]


def test_the_figures_in_the_docs_are_those_of_the_kept_proof() -> None:
    page = prove.PAGE.read_text("utf-8")

    assert in_docs(page, read(prove.FIGURES)) == page
    assert read(prove.FIGURES).is_clean


def test_figures_go_between_their_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "PARTS", (_a_part(tried=12_345),))
    prove.main(["--json", str(tmp_path / "proof.json")])
    page = prove.PAGE.read_text("utf-8")

    told = in_docs(page, read(tmp_path / "proof.json"))

    assert "| things tried | sqlite | 12,345 | 0 |" in told
    assert in_docs(told, read(prove.FIGURES)) == page
