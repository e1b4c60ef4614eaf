"""The acts of sabotage fit the source as it is, and one of each store is caught here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proof.sabotage.act import Sabotage
from tests.proof.sabotage.acts import SABOTAGES
from tests.proof.sabotage.running import ROOT, is_caught, spoil


def _name(act: Sabotage) -> str:
    return f"{act.where}: {act.name}"


@pytest.mark.parametrize("act", SABOTAGES, ids=_name)
def test_an_act_of_sabotage_fits_the_source(act: Sabotage, tmp_path: Path) -> None:
    """A list that no longer fits would show nothing."""
    where = act.path
    (tmp_path / where).parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "src" / where, tmp_path / where)

    spoil(tmp_path, act)

    assert (tmp_path / where).read_text("utf-8") != (ROOT / "src" / where).read_text("utf-8")


@pytest.mark.timeout(150)
@pytest.mark.parametrize("act", SABOTAGES[:1], ids=_name)
def test_a_store_without_fencing_is_caught(act: Sabotage) -> None:
    """`make prove` carries out the others."""
    assert is_caught(act)
