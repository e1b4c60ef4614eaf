"""Groups: dead letters by cause, in a table, and as what an act is about."""

from collections.abc import Sequence

import pytest

from redrive.cli import asking
from tests.cli.shell import Shell, Shop, ids


@pytest.fixture
def group(shell: Shell, shop: Shop) -> str:
    """Make two groups, and return the id of the larger: letters 1 and 2; 3 is in the other."""
    shop.deliver({"error": "order 17 refused"}, {"error": "order 18 refused"}, tenant="acme")
    shop.deliver({"terminal": "no such street"})
    return str(shell("dlq", "groups", "--json").json["groups"][0]["id"])


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_groups_are_shown_with_what_their_letters_share(shell: Shell, group: str) -> None:
    said = lines(shell("dlq", "groups").out)

    assert said[0] == "Group Count Last seen What"
    assert said[1].startswith(f"{group} 2 ")
    assert "ConnectionError: order # refused" in said[1]
    assert said[2].startswith("billing · first seen ")
    assert said[2].endswith(" · tenants acme 2")
    assert said[3].startswith("such as 2: order 18 refused")
    assert len(said) == 6


def test_groups_are_json_for_programs(shell: Shell, group: str) -> None:
    found = shell("dlq", "groups", "--json").json["groups"]

    assert [one["count"] for one in found] == [2, 1]
    assert found[0]["title"] == "ConnectionError: order # refused (shell.py, fail)"
    assert found[0]["message"] == "order 18 refused"
    assert found[0]["top_tenants"] == [["acme", 2]]


def test_groups_can_be_filtered_and_cut(shell: Shell, group: str) -> None:
    assert len(shell("dlq", "groups", "--reason", "terminal", "--json").json["groups"]) == 1
    assert shell("dlq", "groups", "--tenant", "nobody").out == "No dead letter fits.\n"
    assert "a higher --limit shows more" in shell("dlq", "groups", "--limit", "1").out


def test_without_dead_letters_there_is_no_group(shell: Shell, shop: Shop) -> None:
    assert shell("dlq", "groups").out == "No dead letter.\n"
    assert shell("dlq", "groups", "--json").json == {"groups": [], "outdated": 0}


def test_a_table_of_groups_fits_eighty_columns_and_commands_no_terminal(
    shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "\x1b[31mrefused " * 40}, tenant="t" * 100)
    shell.narrow(80)

    said = shell("dlq", "groups").out

    assert "\x1b" not in said
    assert [line for line in said.splitlines() if len(line) > 80] == []


def test_the_letters_of_a_group_are_listed(shell: Shell, group: str) -> None:
    assert ids(shell("dlq", "list", "--group", group, "--json")) == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (["replay"], "Replayed"),
        (["resolve", "--why", "refunded"], "Resolved"),
        (["delete", "--why", "test orders"], "Deleted"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_whole_group_is_acted_on(
    arguments: Sequence[str], done: str, shell: Shell, group: str
) -> None:
    answer = shell("dlq", *arguments, "--group", group, "--yes")

    assert answer.code == 0
    assert answer.out in {f"{done} 2 deliveries ({order}).\n" for order in ("1, 2", "2, 1")}
    assert ids(shell("dlq", "list", "--json")) == [3]


def test_filters_narrow_a_group(shell: Shell, shop: Shop, group: str) -> None:
    shop.deliver({"error": "order 19 refused"}, tenant="umbrella")

    answer = shell("dlq", "replay", "--group", group, "--tenant", "umbrella", "--yes", "--json")

    assert answer.json == {"changed": [4], "unchanged": [], "left_alone": {}}


def test_acting_on_a_group_asks_first(
    shell: Shell, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"Delete 2 dead letters?": False}
    monkeypatch.setattr(asking, "is_attended", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: answers.pop(question))

    answer = shell("dlq", "delete", "--group", group, "--why", "old")

    assert answers == {}
    assert (answer.code, answer.err) == (1, "redrive: nothing was done.\n")
    assert len(ids(shell("dlq", "list", "--json"))) == 3


def test_delete_takes_resolved_letters_when_asked_and_the_others_never(
    shell: Shell, group: str
) -> None:
    shell("dlq", "resolve", "1", "--why", "phoned")

    replayed = shell("dlq", "replay", "--group", group, "--yes", "--json")
    deleted = shell("dlq", "delete", "--group", group, "--resolved", "--why", "old", "-y", "--json")

    assert (replayed.code, replayed.json["changed"]) == (0, [2])
    assert (deleted.code, deleted.json["changed"]) == (0, [1])


def test_the_story_of_a_letter_names_its_group_and_how_many_share_it(
    shell: Shell, group: str
) -> None:
    shared, alone = shell("dlq", "show", "1").out, shell("dlq", "show", "3").out

    assert f"Group         {group}, 2 dead letters in all" in shared
    assert f"redrive replay start --group {group}" in shared
    assert ", 1 dead letter in all" in alone
    assert "--group" not in alone
