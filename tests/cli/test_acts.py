"""Acting: replay, resolve, delete, cancel, reschedule, prioritise."""

import getpass
from collections.abc import Sequence

import pytest

from redrive import Redrive
from redrive.cli import admin, asking
from redrive.cli.session import current_user
from redrive.model.delivery import Delivery, Status
from tests.cli.shell import Shell, Shop, ids


def delivery(shop: Shop, delivery_id: int) -> Delivery:
    async def show(app: Redrive) -> Delivery:
        return (await app.operations.show(delivery_id)).delivery

    return shop.do(show)


def test_replay_makes_a_dead_letter_pending_again(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "replay", "1")

    assert (answer.code, answer.out) == (0, "Replayed 1 delivery (1).\n")
    assert delivery(shop, 1).status is Status.PENDING


def test_replay_may_set_the_generation(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    shell("dlq", "replay", "1", "--generation", "blue")

    assert delivery(shop, 1).generation == "blue"


def test_what_is_no_dead_letter_is_left_alone_and_said(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"order": 2})

    answer = shell("dlq", "replay", "1", "2", "99")

    assert answer.code == 1
    assert answer.out == (
        "Replayed 1 delivery (1).\n"
        "1 delivery (2) was left alone: delivered, not a dead letter.\n"
        "1 delivery (99) was left alone: not there.\n"
    )


def test_an_id_named_twice_counts_once(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    assert shell("dlq", "replay", "1", "1", "--json").json == {
        "changed": [1],
        "unchanged": [],
        "left_alone": {},
    }


def test_replay_of_all_that_match_leaves_the_others(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"}, {"terminal": "gone"})

    answer = shell("dlq", "replay", "--all-matching", "--reason", "exhausted", "--yes")

    assert answer.code == 0
    assert answer.out == "Replayed 2 deliveries (1, 2).\n"
    assert ids(shell("dlq", "list", "--json")) == [3]


def test_replay_of_all_goes_through_every_page(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver(*({"error": "refused"} for _ in range(5)))
    monkeypatch.setattr(admin, "_PAGE", 2)

    answer = shell("dlq", "replay", "--all-matching", "--yes", "--json")

    assert sorted(answer.json["changed"]) == [1, 2, 3, 4, 5]
    assert shell("dlq", "list").out == "No dead letter.\n"
    assert len(shell("audit", "--json").json["entries"]) == 3


def test_replay_of_all_without_any_is_fine(shell: Shell, shop: Shop) -> None:
    answer = shell("dlq", "replay", "--all-matching", "--yes")

    assert answer.code == 0
    assert answer.out == "No dead letter matches, so nothing was changed.\n"


def test_replay_of_all_asks_first(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver({"error": "refused"})
    answers = {"Replay 1 dead letter?": iter([False, True])}
    monkeypatch.setattr(asking, "is_attended", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: next(answers[question]))

    refused, agreed = (shell("dlq", "replay", "--all-matching") for _ in range(2))

    assert (refused.code, refused.out) == (1, "")
    assert (agreed.code, agreed.out) == (0, "Replayed 1 delivery (1).\n")


def test_delete_removes_for_good_and_keeps_the_reason(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "delete", "1", "--why", "a test order")

    assert (answer.code, answer.out) == (0, "Deleted 1 delivery (1).\n")
    assert shell("dlq", "show", "1").code == 2
    assert shell("audit", "--json").json["entries"][0]["why"] == "a test order"


def test_resolve_keeps_the_dead_letter_out_of_the_way(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    first = shell("dlq", "resolve", "1", "--why", "phoned")
    second = shell("dlq", "resolve", "1", "--why", "phoned again")

    assert (first.code, first.out) == (0, "Resolved 1 delivery (1).\n")
    assert second.code == 1
    assert second.out == "1 delivery (1) was left alone: resolved, not a dead letter.\n"


def test_reopen_makes_a_dead_letter_of_a_resolved_one(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"})
    shell("dlq", "resolve", "1", "--why", "phoned")

    answer = shell("dlq", "reopen", "1", "2", "--why", "wrong customer")

    assert answer.code == 1
    assert answer.out == (
        "Reopened 1 delivery (1).\n1 delivery (2) was left alone: a dead letter, not resolved.\n"
    )
    assert delivery(shop, 1).is_dead_letter
    entry = shell("audit", "--json").json["entries"][0]
    assert (entry["action"], entry["why"]) == ("reopen", "wrong customer")
    assert "A reason is needed to reopen" in shell("dlq", "reopen", "1", "--why", " ").err


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_many_that_were_resolved_are_reopened_by_filters(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"}, {"error": "refused"}, tenant="acme")
    shop.deliver({"error": "refused"}, tenant="other")
    shell("dlq", "resolve", "1", "2", "4", "--why", "phoned")
    group = shell("dlq", "groups", "--json").json["groups"][0]["id"]

    by_tenant = shell("dlq", "reopen", "--tenant", "acme", "--all-matching", "--yes", "--why", "no")
    by_group = shell("dlq", "reopen", "--group", group, "--yes", "--why", "no")

    assert (by_tenant.code, by_tenant.out) == (0, "Reopened 2 deliveries (1, 2).\n")
    assert (by_group.code, by_group.out) == (0, "Reopened 1 delivery (4).\n")


def test_cancel_gives_up_a_pending_delivery(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})

    answer = shell("delivery", "cancel", "1", "--why", "customer left")

    assert (answer.code, answer.out) == (0, "Cancelled 1 delivery (1).\n")
    assert delivery(shop, 1).reason == "cancelled"


def test_reschedule_moves_the_due_time(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})

    answer = shell("delivery", "reschedule", "1", "--due", "2100-01-01T12:00Z")

    assert (answer.code, answer.out) == (0, "Rescheduled 1 delivery (1).\n")
    assert delivery(shop, 1).due.isoformat() == "2100-01-01T12:00:00+00:00"


def test_prioritise_changes_the_priority(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})

    answer = shell("delivery", "prioritise", "1", "--priority", "-7")

    assert (answer.code, answer.out) == (0, "Prioritised 1 delivery (1).\n")
    assert delivery(shop, 1).priority == -7


@pytest.mark.parametrize(
    "arguments",
    [
        ["delivery", "cancel", "1"],
        ["delivery", "reschedule", "1", "--due", "1h"],
        ["delivery", "prioritise", "1", "--priority", "5"],
    ],
    ids=" ".join,
)
def test_what_is_over_can_no_longer_be_changed(
    arguments: Sequence[str], shell: Shell, shop: Shop
) -> None:
    shop.deliver({"order": 1})

    answer = shell(*arguments)

    assert answer.code == 1
    assert answer.out == "1 delivery (1) was left alone: delivered, not pending.\n"


def test_who_acts_is_the_user_unless_said(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})

    shell("delivery", "prioritise", "1", "--priority", "1")
    shell("delivery", "prioritise", "1", "--priority", "2", "--by", "ann")

    entries = shell("audit", "--json").json["entries"]
    assert [entry["by"] for entry in entries] == ["ann", current_user()]


def test_a_user_without_a_name_still_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a number that no file of users knows."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", unknown)

    assert current_user().startswith("uid ")
