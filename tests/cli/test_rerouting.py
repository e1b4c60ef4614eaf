"""Destinations that go and come late, from the command line."""

from typing import Any

import pytest

from redrive import Event, Redrive
from redrive.cli import asking
from tests.cli.shell import Shell, Shop, ids


def declare(shop: Shop, name: str, pattern: str = "order.*") -> None:
    """Add a destination to the store."""

    async def work(app: Redrive) -> None:
        @app.handler(pattern, name=name)
        async def receive(event: Event[Any]) -> None:
            pass

        await app.close()
        await app.open()

    shop.do(work)


def forget(shop: Shop, shell: Shell, name: str) -> None:
    """Remove a destination that nothing in the code declares any more."""
    assert shell("destination", "remove", name, "--why", "retired").code == 0


def test_a_removed_destination_is_held_and_shown_as_orphaned(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, {"order": 2})

    answer = shell("destination", "remove", "billing", "--why", "retired", "--by", "ann")
    again = shell("destination", "remove", "billing", "--why", "retired", "--json")

    assert answer.code == 0
    assert answer.out.startswith("Removed billing.\n2 deliveries for it are held;")
    assert again.code == 1
    assert again.json == {"changed": [], "unchanged": ["billing"], "held": 2}
    assert "orphaned" in shell("status").out
    assert "billing is orphaned: 2 deliveries held" in " ".join(shell("doctor").out.split())
    listed = " ".join(shell("destination", "list").out.split())
    assert "removed" in listed
    assert "orphaned" in listed
    assert "remove billing" in " ".join(shell("audit").out.split())
    assert shell("publish", "order.paid").err.startswith("redrive: no destination wants")


def test_what_waits_is_moved_to_another_destination(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})
    shop.publish({"order": 1}, {"order": 2})
    declare(shop, "invoicing")
    forget(shop, shell, "billing")

    answer = shell("destination", "move", "billing", "invoicing", "--why", "renamed", "--yes")

    assert (answer.code, answer.out) == (0, "Moved 3 deliveries from billing to invoicing.\n")
    assert ids(shell("dlq", "list", "--destination", "invoicing", "--json")) == [1]
    assert sorted(ids(shell("delivery", "list", "--json"))) == [2, 3]


def test_what_was_given_there_before_is_left_and_counted(shell: Shell, shop: Shop) -> None:
    declare(shop, "invoicing")
    shop.publish({"order": 1})

    answer = shell("destination", "move", "billing", "invoicing", "--why", "merged", "--yes")
    as_json = shell(
        "destination", "move", "billing", "invoicing", "--why", "merged", "--yes", "--json"
    )

    assert answer.code == 0
    assert "1 delivery was left at billing" in answer.out
    assert as_json.json == {"moved": 0, "skipped": 1, "busy": 0}


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (
            ("destination", "move", "billing", "mail"),
            "Move 2 deliveries and 0 dead letters of billing to mail?",
        ),
        (
            ("destination", "fail", "billing"),
            "Make dead letters of 2 deliveries that wait for billing?",
        ),
        (
            ("destination", "delete", "billing"),
            "Delete 2 deliveries that wait for billing, for good?",
        ),
    ],
)
def test_what_cannot_be_undone_is_asked_about(
    arguments: tuple[str, ...],
    question: str,
    shell: Shell,
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop.publish({"order": 1}, {"order": 2})
    alone = shell(*arguments, "--why", "retired")
    monkeypatch.setattr(asking, "is_attended", lambda: True)

    asked = shell(*arguments, "--why", "retired", stdin=b"n\n")

    assert alone.code == 2
    assert f"{question} There is nobody to ask here; say --yes." in " ".join(alone.err.split())
    assert asked.code == 1
    assert question in asked.err
    assert len(ids(shell("delivery", "list", "--json"))) == 2


def test_what_waits_is_failed(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, {"order": 2})

    answer = shell("destination", "fail", "billing", "--why", "retired", "--yes")
    none = shell("destination", "fail", "billing", "--why", "retired", "--yes", "--json")

    assert answer.out == "Made 2 dead letters of what waited for billing.\n"
    assert none.json == {"failed": 0}
    assert len(ids(shell("dlq", "list", "--reason", "cancelled", "--json"))) == 2


def test_what_waits_is_deleted(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})

    answer = shell("destination", "delete", "billing", "--why", "retired", "--yes")
    none = shell("destination", "delete", "billing", "--why", "retired", "--yes", "--json")

    assert answer.out == "Deleted 1 delivery that waited for billing.\n"
    assert none.json == {"deleted": 0}
    assert ids(shell("delivery", "list", "--json")) == []
    assert shell("status", "--json").json["deleted"] == 1


def test_a_new_destination_is_backfilled(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"order": 2})
    shop.publish(1, event_type="nobody.cares")
    declare(shop, "late", "*")

    plan = shell("destination", "backfill", "late", "--dry-run")
    counted = shell("destination", "backfill", "late", "--dry-run", "--type", "order.*", "--json")
    done = shell("destination", "backfill", "late", "--yes", "--why", "new")
    again = shell("destination", "backfill", "late", "--yes", "--json")

    assert plan.out == "late would get 3 events of the log.\n"
    assert counted.json == {"would_add": 2, "overtaken": 0}
    assert done.out == "late gets 3 events of the log.\n"
    assert again.json == {"added": 0, "overtaken": 0}
    assert len(ids(shell("delivery", "list", "--destination", "late", "--json"))) == 3
    assert shell("status", "--json").json["unrouted"] == 0
    assert "wanted by nobody" not in shell("doctor").out
    assert "backfill late of 3 deliveries" in " ".join(shell("audit").out.split())


def test_a_backfill_is_narrowed_by_time(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})
    declare(shop, "late")

    recent = shell("destination", "backfill", "late", "--since", "1h", "--dry-run")
    old = shell("destination", "backfill", "late", "--until", "1h ago", "--dry-run")
    wrong = shell("destination", "backfill", "late", "--since", "yesterday")

    assert recent.out == "late would get 1 event of the log.\n"
    assert old.out == "late would get 0 events of the log.\n"
    assert (wrong.code, "since is 'yesterday'" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("remove", "biling", "--why", "typo"),
        ("move", "biling", "mail", "--why", "typo"),
        ("fail", "biling", "--why", "typo"),
        ("delete", "biling", "--why", "typo"),
        ("backfill", "biling"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(
    arguments: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    answer = shell("destination", *arguments)

    assert answer.code == 2
    assert answer.err == "redrive: There is no destination 'biling'; did you mean 'billing'?\n"


@pytest.mark.parametrize("act", ["move billing mail", "fail billing", "delete billing"])
def test_a_blank_reason_is_no_reason(act: str, shell: Shell, shop: Shop) -> None:
    answer = shell("destination", *act.split(), "--why", " ", "--yes")

    assert (answer.code, "A reason is needed" in answer.err) == (2, True)


def test_the_status_tells_of_dead_letters_for_those_who_alert(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"terminal": "no"}, {"terminal": "no"}, tenant="acme")

    said = " ".join(shell("status").out.split())
    letters = shell("status", "--json").json["letters"]

    assert "3 dead letters · the oldest" in said
    assert "0.6 per minute · terminal 2 · exhausted 1 · tenants acme 3" in said
    assert (letters["count"], letters["lately"]) == (3, 3)
    assert letters["by_reason"] == [["terminal", 2], ["exhausted", 1]]
