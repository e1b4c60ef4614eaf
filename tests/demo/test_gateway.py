"""The demo of the gateway: no Python says anything, and every order arrives in its shape."""

from __future__ import annotations

import contextlib
import io
import tempfile
from typing import NamedTuple

import pytest

from redrive.clock import SystemClock
from redrive.demo import run_demo
from redrive.demo.count import Count
from redrive.demo.gateway.companies import Crm, Recorded
from redrive.demo.tempo import Tempo
from redrive.errors import ConfigurationError
from tests.demo.commands import read_commands

FAST = 10.0


class Told(NamedTuple):
    code: int
    text: str
    left_behind: list[str]

    @property
    def flowing(self) -> str:
        """The text without its line breaks."""
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The whole story, told once for all who ask about it."""
    folder, out = tmp_path_factory.mktemp("demo"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("REDRIVE_STORE", "sqlite:////nowhere/of-the-reader.db")
        code = run_demo(plain=True, speed=FAST, gateway=True)
    return Told(code, out.getvalue(), [path.name for path in folder.iterdir()])


def test_every_order_arrives_in_its_shape_and_nothing_is_lost(told: Told) -> None:
    assert told.code == 0, told.text
    assert "lost: 0" in told.text
    assert [act for act in range(1, 7) if f"Act {act} of 6" not in told.text] == []
    assert told.left_behind == []


def test_it_tells_of_the_file_the_outage_the_refusal_and_the_rule(told: Told) -> None:
    assert "+ service crm; + service ledger; + rule contacts; + rule entries" in told.flowing
    assert "the CRM got PUT /orders/1" in told.flowing
    assert "crm: breaker open for" in told.flowing
    assert "to what the rule contacts@1 had made of the order" in told.flowing
    assert "no dead letters left" in told.flowing


def test_every_command_it_shows_is_one_the_cli_knows(told: Told) -> None:
    assert read_commands(told.text) >= 8


def test_what_arrived_in_the_wrong_shape_does_not_add_up() -> None:
    crm = Crm(Tempo(SystemClock(), FAST))
    orders = {
        "right": {"number": 1, "customer": {"name": "Ann"}},
        "wrong": {"number": 2, "customer": {"name": "Bob"}},
    }
    crm.recorded = {
        "right": Recorded(2, "PUT", "/orders/1", {"order": 1, "client": "ANN"}),
        "wrong": Recorded(2, "PUT", "/orders/2", {"order": 2, "customer": "BOB"}),
    }

    misshapen = crm.misshapen(orders)

    assert misshapen == ["wrong"]
    count = Count(
        published=2,
        stored=2,
        expected=2,
        effects=2,
        repeated=0,
        delivered=2,
        failed=0,
        pending=0,
        misshapen=tuple((one, "crm") for one in misshapen),
    )
    assert count.problems == ["1 deliveries arrived in the wrong shape: wrong to crm."]


def test_without_jinja2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jinja2" else name)

    with pytest.raises(ConfigurationError, match=r"pip install 'redrive\[gateway\]'"):
        run_demo(plain=True, gateway=True)
