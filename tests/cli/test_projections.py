"""Projections: what people see of them, and what they may do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from redrive import Event, ReadModel, Redrive, Retry
from tests.cli.shell import Shell, Shop


@pytest.fixture
def projecting(shop: Shop) -> Shop:
    """A shop with a projection that has applied two events, parked one, and has one to read."""

    async def session() -> None:
        app = Redrive(shop.url)

        @app.projection("letter.*", name="letters", retry=Retry(max_attempts=1))
        async def apply(event: Event[Any], _: ReadModel) -> None:
            if event.payload == "bad":
                raise ValueError("bad")

        async with app:
            for payload, key in (("fine", "a"), ("bad", "b"), ("fine", "b"), ("fine", "c")):
                await app.publish("letter.sent", payload, key=key)
            await app.drain()
            await app.publish("letter.sent", "fine", key="a")
            await app.publish("order.paid", "fine")

    asyncio.run(session())
    return shop


def test_projections_are_listed_with_how_far_they_are(shell: Shell, projecting: Shop) -> None:
    said = shell("projection", "list").out

    assert re.search(r"^letters +not read +1 +\S+ +1 +2 *$", said, re.MULTILINE)
    [one] = shell("projection", "list", "--json").json["projections"]
    assert (one["name"], one["events_behind"], one["parked_keys"]) == ("letters", 1, 1)
    assert (one["is_caught_up"], one["applied"], one["handed_over"]) == (False, 2, 2)


def test_one_is_shown_with_all_of_it(shell: Shell, projecting: Shop) -> None:
    said = shell("projection", "show", "letters").out

    for word in ("letter.*", "2 events", "letter.sent 1", "2 events of 1 key", "begun behind 0-0"):
        assert word in said
    assert shell("projection", "show", "letters", "--json").json["lag"] == {"letter.sent": 1}
    missing = shell("projection", "show", "letter")
    assert (missing.code, "letters" in missing.err) == (2, True)


def test_a_store_without_projections_says_so(shell: Shell, shop: Shop) -> None:
    shop.do(lambda app: app.operations.status())

    assert "No projection yet" in shell("projection", "list").out
    assert shell("projection", "list", "--json").json == {"projections": []}


def test_one_is_paused_and_resumed(shell: Shell, projecting: Shop) -> None:
    paused = shell("projection", "pause", "letters", "--why", "moving")
    state = shell("projection", "show", "letters", "--json").json["state"]
    resumed = shell("projection", "resume", "letters")

    assert (paused.code, resumed.code, state) == (0, 0, "paused")
    assert shell("projection", "pause", "billing").code == 2


def test_one_begins_anew_when_somebody_agrees(shell: Shell, projecting: Shop) -> None:
    asked = shell("projection", "reset", "letters")
    done = shell("projection", "reset", "letters", "--yes", "--why", "a new column")

    assert (asked.code, "say --yes" in asked.err) == (2, True)
    assert done.out == "letters begins anew; 2 deliveries were removed.\n"
    one = shell("projection", "show", "letters", "--json").json
    assert (one["position"], one["events_behind"], one["handed_over"]) == ("0-0", 5, 0)
    assert shell("dlq", "list", "--json").json["deliveries"] == []
    removed = shell("projection", "reset", "letters", "--after", "0-3", "--yes", "--json").json
    assert removed == {"changed": ["letters"], "removed": 0}
    assert shell("projection", "reset", "letters", "--after", "x", "--yes").code == 2


def test_the_doctor_tells_who_keeps_the_log(shell: Shell, projecting: Shop) -> None:
    said = " ".join(shell("doctor").out.split())

    assert "The projection letters is 1 event behind, and no live worker reads for it" in said
    assert "redrive projection drop letters" in said


def test_one_that_nobody_reads_is_dropped(shell: Shell, projecting: Shop) -> None:
    asked = shell("projection", "drop", "letters")
    done = shell("projection", "drop", "letters", "--yes")

    assert asked.code == 2
    assert done.out == "letters is forgotten; 2 deliveries were removed.\n"
    assert shell("projection", "list", "--json").json == {"projections": []}
    assert shell("projection", "drop", "letters", "--yes", "--json").code == 2


def test_among_destinations_one_is_called_what_it_is(shell: Shell, projecting: Shop) -> None:
    assert "projection of the log" in shell("destination", "list").out
    listed = shell("destination", "list", "--json").json["destinations"]
    known = {one["name"]: one for one in listed}
    assert (known["letters"]["patterns"], known["letters"]["is_projection"]) == ([], True)
    assert not any(one["is_projection"] for one in listed if one["name"] != "letters")


def test_what_was_resolved_comes_back_only_out_of_order(
    shell: Shell, projecting: Shop, tmp_path: Path
) -> None:
    [letter] = shell("dlq", "list", "--json").json["deliveries"]
    file = str(tmp_path / "letters.jsonl")
    shell("dlq", "export", "--file", file)
    shell("dlq", "resolve", str(letter["id"]), "--why", "by hand", "--yes")

    refused = shell("dlq", "reopen", str(letter["id"]), "--why", "not so", "--yes")
    reopened = shell(
        "dlq", "reopen", str(letter["id"]), "--why", "not so", "--yes", "--out-of-order"
    )
    shell("dlq", "delete", str(letter["id"]), "--why", "moved", "--yes")
    unwanted = shell("dlq", "import", file)
    imported = shell("dlq", "import", file, "--out-of-order", "--json")

    assert (refused.code, "letters is a projection" in refused.err) == (2, True)
    assert "--out-of-order" in refused.err
    assert (reopened.code, "Reopened 1 delivery" in reopened.out) == (0, True)
    assert (unwanted.code, "letters is a projection" in unwanted.err) == (1, True)
    assert (imported.code, len(imported.json["imported"])) == (0, 1)


def test_the_status_tells_how_far_they_are(shell: Shell, projecting: Shop) -> None:
    said = shell("status").out

    assert re.search(r"^letters +not read +1 +\S+ +1 +2 *$", said, re.MULTILINE)
    assert "The projection letters is 1 event behind" in " ".join(said.split())
    [one] = shell("status", "--json").json["projections"]
    assert (one["name"], one["events_behind"], one["parked_keys"]) == ("letters", 1, 1)
