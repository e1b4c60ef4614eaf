"""Projections: what people see of them, and what they may do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from redrive import Event, ReadModel, Redrive, Retry
from tests.app.test_projecting import run
from tests.cli.shell import Shell, Shop
from tests.waiting import eventually


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

    assert re.search(r"^letters +behind +1 +\S+ +1 +2 +nobody *$", said, re.MULTILINE)
    [one] = shell("projection", "list", "--json").json["projections"]
    assert (one["name"], one["events_behind"], one["parked_keys"]) == ("letters", 1, 1)
    assert (one["is_caught_up"], one["applied"], one["handed_over"]) == (False, 2, 2)
    assert (one["is_read"], one["lag"]) == (False, {"letter.sent": 1})


def test_one_is_shown_with_all_of_it(shell: Shell, projecting: Shop) -> None:
    said = shell("projection", "show", "letters").out

    for word in ("letter.*", "2 events", "letter.sent 1", "2 events of 1 key", "begun behind 0-0"):
        assert word in said
    assert shell("projection", "show", "letters", "--json").json["lag"] == {"letter.sent": 1}
    missing = shell("projection", "show", "letter")
    assert (missing.code, "letters" in missing.err) == (2, True)


def test_one_with_partitions_is_shown_with_each_of_them(shell: Shell, shop: Shop) -> None:
    async def session() -> None:
        app = Redrive(shop.url)

        @app.projection("letter.*", name="letters", partitions=2, retry=Retry(max_attempts=1))
        async def apply(event: Event[Any], _: ReadModel) -> None:
            if event.payload == "bad":
                raise ValueError("bad")

        async with app:
            await app.publish("letter.sent", "fine", key="order-1")
            await app.publish("letter.sent", "bad", key="order-2")
            await app.drain()
            await app.publish("letter.sent", "fine", key="order-1")

    asyncio.run(session())

    listed = shell("projection", "list").out
    said = shell("projection", "show", "letters").out
    shown = shell("projection", "show", "letters", "--json").json
    advice = shell("doctor").out
    assert re.search(r"^letters +behind +1 +\S+ +1 +1 +nobody *$", listed, re.MULTILINE)
    assert re.search(r"^0 +0 +- +1 +0 +nobody *$", said, re.MULTILINE)
    assert re.search(r"^1 +1 +\S+ +0 +1 +nobody *$", said, re.MULTILINE)
    assert (shown["events_behind"], shown["applied"], shown["is_caught_up"]) == (1, 1, False)
    parts = [(one["partition"], one["is_caught_up"]) for one in shown["partitions"]]
    assert parts == [(0, True), (1, False)]
    assert "letters is 1 event behind, and no live worker reads for it" in " ".join(advice.split())
    reset = shell("projection", "reset", "letters", "--yes")
    assert reset.out == "letters begins anew; 1 delivery was removed.\n"
    parts = shell("projection", "show", "letters", "--json").json["partitions"]
    assert [(one["events_behind"], one["position"]) for one in parts] == [(1, "0-0"), (2, "0-0")]


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


@pytest.fixture
def versions(shop: Shop) -> Shop:
    """A shop with two versions of a projection, of which readers have the first."""

    async def session() -> None:
        app = Redrive(shop.url)
        schema = shop.url.partition("schema=")[2]
        table = f"{schema}.paid" if schema else "paid"

        async def apply(_: Event[Any], model: ReadModel) -> None:
            assert model.table(table)

        async def create(model: ReadModel) -> None:
            await run(model.connection, f"CREATE TABLE {model.table(table)} (n INTEGER)")

        for version in (1, 2):
            declare = app.projection(
                "order.*", name="paid", version=version, tables=[table], create=create
            )
            declare(apply)
        async with app:
            await app.publish("order.paid", 1)

            async def has_read() -> bool:
                await app.drain()
                return all(one.checkpoint.count == 1 for one in await app.projections.list())

            # An event can be read once all who began before it have ended, in the whole server.
            await eventually(has_read, what="both versions have read it")

    asyncio.run(session())
    return shop


def test_versions_are_shown_swapped_and_dropped(shell: Shell, versions: Shop) -> None:
    listed = shell("projection", "list").out
    beside = shell("projection", "show", "paid", "--version", "2").out
    swapped = shell("projection", "swap", "paid", "--why", "it is better")
    again = shell("projection", "swap", "paid", "--version", "2", "--json")
    back = shell("projection", "swap", "paid", "--version", "1", "--parked", "--json")
    paused = shell("projection", "pause", "paid", "--version", "2", "--why", "moving")
    dropped = shell("projection", "drop", "paid", "--version", "2", "--yes")

    assert re.search(r"^paid +1 +caught up", listed, re.MULTILINE)
    assert re.search(r"^paid\.v2 +2, beside +caught up", listed, re.MULTILINE)
    assert "paid_v2" in beside
    assert swapped.out == "Readers of paid have version 2.\n"
    assert (again.code, "the one that readers have" in again.err) == (2, True)
    assert back.json == {"changed": ["paid"], "version": 1}
    assert "paid.v2" in paused.out
    assert dropped.out == "Version 2 of paid is forgotten; 0 deliveries were removed.\n"
    shown = shell("projection", "show", "paid", "--json").json
    assert (shown["version"], shown["is_serving"]) == (1, True)
    assert shown["tables"][0].endswith("paid_v1")
    assert shell("projection", "show", "paid", "--version", "7").code == 2


def test_a_version_is_rebuilt_and_that_is_cancelled(shell: Shell, versions: Shop) -> None:
    asked = shell("projection", "rebuild", "paid", "--version", "2")
    begun = shell(
        *("projection", "rebuild", "paid", "--version", "2", "--rate", "500/s", "--strict"),
        *("--from", "0-0", "--yes", "--json"),
    )
    shown = shell("projection", "show", "paid", "--version", "2").out
    told = shell("projection", "show", "paid", "--version", "2", "--json").json
    ended = shell("projection", "rebuild", "paid", "--version", "2", "--cancel")
    after = shell("projection", "show", "paid", "--version", "2").out

    assert (asked.code, "say --yes" in asked.err) == (2, True)
    assert begun.json == {"changed": ["paid"], "removed": 0}
    assert "0% of 1 event" in shown
    assert "at most 500 per second" in shown
    assert (told["progress"], told["rebuild"]["is_strict"]) == (0.0, True)
    assert ended.out == "The rebuild of paid has ended where it was.\n"
    assert "cancelled" in after
    again = shell("projection", "rebuild", "paid", "--version", "2", "--cancel", "--json")
    assert (again.code, "is not being rebuilt" in again.err) == (2, True)


def test_a_version_that_is_behind_waits_no_longer_than_it_is_told(
    shell: Shell, versions: Shop
) -> None:
    versions.do(lambda app: app.publish("order.paid", 2))

    late = shell("projection", "swap", "paid", "--timeout", "0s")

    assert (late.code, "1 events behind" in late.err) == (2, True)


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

    assert re.search(r"^letters +behind +1 +\S+ +1 +2 +nobody *$", said, re.MULTILINE)
    assert "The projection letters is 1 event behind" in " ".join(said.split())
    [one] = shell("status", "--json").json["projections"]
    assert (one["name"], one["events_behind"], one["parked_keys"]) == ("letters", 1, 1)
