"""Filters: a slip must not read as all clear, and what is offered has an effect."""

import pytest

from tests.cli.shell import Shell, Shop

FILTERED = (
    ("dlq", "list"),
    ("dlq", "groups"),
    ("dlq", "export"),
    ("dlq", "replay", "--all-matching", "--yes"),
    ("dlq", "resolve", "--all-matching", "--yes", "--why", "by hand"),
    ("dlq", "delete", "--all-matching", "--yes", "--why", "by hand"),
    ("replay", "plan"),
    ("replay", "start", "--all-matching"),
    ("replay", "start", "--all-matching", "--yes", "--detach"),
    ("delivery", "list"),
    ("tenant", "list"),
)


@pytest.mark.parametrize("command", FILTERED, ids=" ".join)
def test_a_destination_that_nobody_knows_is_refused_with_the_nearest(
    command: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    answer = shell(*command, "--destination", "biling")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "redrive: There is no destination 'biling'; did you mean 'billing'?\n"


def test_a_destination_that_was_removed_is_known_as_long_as_it_has_dead_letters(
    shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "refused"})
    shell("destination", "remove", "billing", "--why", "closed", "--yes")

    answer = shell("dlq", "list", "--destination", "billing")

    assert answer.code == 0
    assert "order.paid → billing" in answer.out


def test_a_class_of_ours_is_shown_and_found_without_its_module(shell: Shell, shop: Shop) -> None:
    shop.deliver({"terminal": "no such street"}, {"error": "refused"})

    listed = shell("dlq", "list", "--error", "Terminal").out
    whole = shell("dlq", "list", "--error", "redrive.errors.Terminal").out
    groups = shell("dlq", "groups").out
    plan = shell("replay", "plan").out

    assert listed.splitlines()[2].strip() == "Terminal: no such street"
    assert whole == listed
    assert "ConnectionError" not in listed
    assert " Terminal: no such street" in groups
    assert " Terminal: no such street" in plan


GROUPED = [one for one in FILTERED if one[0] != "tenant"]


def no_group(group: str) -> str:
    return f"redrive: No dead letter is in group '{group}'; see them with: redrive dlq groups\n"


@pytest.mark.parametrize("command", GROUPED, ids=" ".join)
def test_a_group_that_nobody_knows_is_refused(
    command: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    answer = shell(*command, "--group", "gzzz")

    assert (answer.code, answer.out, answer.err) == (2, "", no_group("gzzz"))


@pytest.mark.parametrize(
    "act",
    [("replay",), ("resolve", "--why", "by hand"), ("delete", "--why", "by hand")],
    ids=" ".join,
)
def test_a_group_is_known_as_long_as_a_dead_letter_is_in_it(
    act: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "refused"})
    group = shell("dlq", "groups", "--json").json["groups"][0]["id"]
    others = shell("dlq", "list", "--group", group, "--tenant", "nobody")
    shell("dlq", *act, "--group", group, "--yes")

    again = shell("dlq", *act, "--group", group, "--yes")
    listed = shell("dlq", "list", "--group", group)
    resolved = shell("dlq", "list", "--group", group, "--resolved")

    assert (others.code, others.out) == (0, "No dead letter fits.\n")
    assert (again.code, again.err) == (listed.code, listed.err) == (2, no_group(group))
    assert resolved.code == (0 if act[0] == "resolve" else 2)


def test_a_reason_that_there_is_not_is_refused(shell: Shell, shop: Shop) -> None:
    answer = shell("dlq", "list", "--reason", "exhaustd")

    assert answer.code == 2
    assert "it is one of exhausted" in answer.err


@pytest.mark.parametrize(
    "command",
    [one for one in FILTERED if one[1] in {"replay", "resolve", "plan", "start"}],
    ids=" ".join,
)
def test_resolved_letters_are_not_offered_to_acts_that_leave_them_alone(
    command: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    answer = shell(*command, "--resolved")

    assert answer.code == 2
    assert "No such option" in answer.err
    assert "--resolved" not in shell(*command[:2], "--help").out
