"""Where room is short, words give way and figures never; into a pipe goes everything."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import verdict
from redrive.model.outcome import Fault
from tests.cli.shell import Shell, Shop

WIDTHS = (60, 80, 100, 200)
CAUSE = "deadlock detected while updating the positions of an invoice in the ledger " * 3
LONG = "a-name-that-goes-on-for-as-long-as-names-of-tenants-may-and-longer-than-a-line"


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: this is about how its figures are shown."""
    return sqlite


@pytest.fixture
def ailing(shop: Shop) -> Shop:
    """A shop with 12 dead letters in two groups, of which one is parked, and long names."""
    shop.deliver(*({"error": CAUSE} for _ in range(11)), tenant=LONG)
    shop.deliver({"terminal": CAUSE}, {}, {}, event_type="letter.sent", key=LONG)
    return shop


TABLES = {
    ("replay", "plan"): [r"^destination +11  billing", r"^group +11  ", r"^tenant +11  a-name"],
    ("dlq", "groups"): [r"^g[0-9a-f]{12} +11  "],
    ("dlq", "list"): [r"^ *12  \S.* (ago|now) +1  ", r"^ *1  \S.* (ago|now) +1  "],
    ("delivery", "list"): [r"^ *14  \S.* (ago|now) +0  ", r"^ *13  \S.* (ago|now) +0  "],
    ("status",): [r"^billing +- +- +- +- +11 +-$", r"^mail +2 +2 +- +- +1 +-$"],
    ("tenant", "list"): [r"^a-name-\S+ +- +- +13  served"],
    ("destination", "lanes"): [r" 12 \(terminal\) +2 +\S.*(ago|now)$"],
    ("audit",): [r"^ *1  \S.* (ago|now)"],
    ("replay", "list"): [r"^ *1  stopped +0/10 +1  \S.* (ago|now)"],
}
"""What must be read whole in each table, however narrow it is."""


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_figure_of_a_table_gives_way(columns: int, shell: Shell, ailing: Shop) -> None:
    shell("dlq", "replay", "1", "--by", LONG)
    shell("replay", "start", "--destination", "billing", "--all-matching", "--yes", "--detach")
    ailing.do(lambda app: app.drain())
    shell.narrow(columns)

    for command, figures in TABLES.items():
        said = shell(*command).out.splitlines()
        assert [line for line in said if len(line) > columns] == []
        for one in figures:
            assert any(re.search(one, line) for line in said), (command, one, said)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_title_is_cut_where_a_line_ends(columns: int, shell: Shell, ailing: Shop) -> None:
    shell.narrow(columns)

    said = shell("replay", "plan").out.splitlines()

    (group,) = (line for line in said if "ConnectionError" in line)
    assert len(group) == columns
    assert group.endswith("…")


@pytest.mark.parametrize("command", [("dlq", "list"), ("dlq", "groups"), ("replay", "plan")])
def test_a_pipe_gets_all_of_it(command: tuple[str, ...], shell: Shell, ailing: Shop) -> None:
    said = shell(*command).out

    assert "invoice in the ledger deadlock" in said
    assert "…" not in said
    assert [line for line in said.splitlines() if line != line.rstrip()] == []


def test_what_was_filtered_for_is_found_in_every_line_that_has_it(
    shell: Shell, ailing: Shop
) -> None:
    said = shell("dlq", "list").out.splitlines()

    assert sum("deadlock" in line for line in said) == 12
    assert sum(LONG in line for line in said) == 12


@given(
    figures=st.lists(
        st.lists(st.integers(0, 10**9), min_size=2, max_size=2), min_size=1, max_size=5
    ),
    words=st.lists(st.text("ab c", max_size=90), min_size=1, max_size=5),
    columns=st.integers(45, 200),
)
def test_figures_are_whole_and_lines_fit(
    figures: list[list[int]], words: list[str], columns: int
) -> None:
    table = Listing()
    table.add_words("Name")
    table.add_figures("Considerable", "Formidable")
    table.add_words("What")
    for number, (one, other) in enumerate(figures):
        word = words[number % len(words)]
        table.add_row(word, f"{one}", f"{other}", word)
    console = Console(file=StringIO(), width=columns, force_terminal=False)

    with console.capture() as captured:
        console.print(table, crop=False)

    lines = captured.get().splitlines()[1:]
    for line, (one, other) in zip(lines, figures, strict=True):
        assert re.search(rf"(^| ){one} +{other}( |$)", line)
        assert len(line.rstrip()) <= columns


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'crm.example answered 422 Unprocessable: {"error": "no: 7"}',
            'HTTP 422 {"error": "no: 7"}',
        ),
        ("127.0.0.1:80 answered 422 Unprocessable", "HTTP 422 Unprocessable"),
        ("no such customer", "HTTP 422: no such customer"),
    ],
)
def test_an_http_answer_is_told_by_its_status_once_and_by_its_body(message: str, said: str) -> None:
    fault = Fault(error_class="HTTP 422", message=message, rule="status 422", code="422")

    assert verdict(fault) == said


def test_another_code_stands_beside_the_class_of_the_error() -> None:
    fault = Fault(error_class="OSError", message="no route", rule="network", code="113")

    assert verdict(fault) == "OSError 113: no route"
