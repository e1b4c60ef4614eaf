"""Looking for events, and ids of either kind wherever a delivery is named."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from redrive import Redrive
from redrive.store import EventQuery
from tests.cli.shell import Shell, Shop

pytestmark = pytest.mark.parametrize("store", ["sqlite"], indirect=True)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def event_ids(shell: Shell, *options: str) -> list[str]:
    return [one["id"] for one in shell("event", "list", "--json", *options).json["events"]]


def test_events_are_listed_with_what_became_of_them(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, tenant="acme", key="order-7", source="web")
    shop.publish({}, event_type="note.made")

    said = lines(shell("event", "list").out)

    assert said[0] == "ID Published Event"
    assert said[1].endswith("note.made")
    assert said[2] == "unrouted"
    assert said[3].endswith("order.paid tenant acme · key order-7 · source web")
    assert said[4] == "billing dead letter (1)"


def test_events_are_found_by_each_filter(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, tenant="acme", key="order-7", source="web")
    shop.publish({}, event_type="note.made")
    note, order = event_ids(shell)

    for options in (
        ["--key", "order-7"],
        ["--tenant", "acme"],
        ["--source", "web"],
        ["--type", "order.*"],
        ["--status", "failed"],
    ):
        assert event_ids(shell, *options) == [order], options
    assert event_ids(shell, "--unrouted") == [note]
    assert event_ids(shell, "--since", "1h", "--status", "any") == [note, order]
    assert event_ids(shell, "--until", "1h") == []
    assert shell("event", "list", "--key", "k").out == "No event fits.\n"


def test_a_list_of_events_goes_on_at_the_cursor(shell: Shell, shop: Shop) -> None:
    shop.publish({}, {}, {})

    first = shell("event", "list", "--limit", "2")
    cursor = first.out.rsplit("--cursor ", 1)[1].strip()

    assert event_ids(shell, "--cursor", cursor) == event_ids(shell)[2:]


def test_a_wrong_status_is_told_with_the_right_ones(shell: Shell, shop: Shop) -> None:
    answer = shell("event", "list", "--status", "lost")

    assert answer.code == 2
    assert "it is one of pending, in_flight, delivered, failed, any." in answer.err
    assert "leave the status" in shell("event", "list", "--unrouted", "--status", "failed").err


def test_old_events_are_not_looked_through_for_new_ones(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list since a time ends soon behind that time, however long the log."""
    monkeypatch.setattr("redrive.stores.sql.events._STRETCH", 3)
    shop.publish(*({} for _ in range(10)), key="old")
    later = datetime.now(UTC) + timedelta(seconds=1)

    async def look(app: Redrive) -> bool:
        store = await app._store()  # noqa: SLF001 - what a single call has looked at
        page = await store.find_events(EventQuery(since=later), limit=2)
        return page.is_older and page.next_cursor is not None

    assert shop.do(look)
    assert event_ids(shell, "--since", later.isoformat()) == []
    assert len(event_ids(shell, "--key", "old")) == 10


def test_an_event_is_shown_with_the_story_of_each_delivery(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused", "password": "hidden"}, key="order-7")
    [event] = event_ids(shell)

    answer = shell("event", "show", event)

    said = lines(answer.out)
    assert said[0] == f"Event {event}: order.paid"
    assert said[1] == "1 delivery: 1 dead letter."
    assert "Delivery 1 to billing" in said
    assert any(line.startswith("Failed after 1 try") for line in said)
    assert any(line.endswith("failed: ConnectionError: refused") for line in said)
    assert "redrive delivery show 1" in said
    assert "hidden" not in answer.out
    told = shell("event", "show", event.upper(), "--json").json
    assert told["destinations"] == ["billing"]
    assert [one["delivery"]["id"] for one in told["stories"]] == [1]


def test_what_is_blanked_of_an_event_is_revealed_on_record(shell: Shell, shop: Shop) -> None:
    shop.deliver({"password": "hidden"})
    [event] = event_ids(shell)

    assert "hidden" in shell("event", "show", event, "--reveal", "--why", "asked").out
    assert f"event {event}" in shell("audit").out


def test_an_event_is_shown_by_the_number_of_a_delivery(shell: Shell, shop: Shop) -> None:
    shop.publish({})
    [event] = event_ids(shell)

    answer = shell("event", "show", "1")

    assert answer.out.startswith(f"Event {event}")
    assert answer.err == f"redrive: delivery 1 is of event {event}.\n"


def test_an_event_that_nobody_has_is_told(shell: Shell, shop: Shop) -> None:
    nobody = "01890000-0000-7000-8000-000000000001"

    for command in (["event", "show"], ["delivery", "show"], ["dlq", "replay"]):
        answer = shell(*command, nobody)
        assert answer.code == 2
        assert f"There is no event {nobody}" in answer.err
    assert "is neither the number of a delivery" in shell("event", "show", "x").err


def test_each_command_about_a_delivery_takes_the_id_of_its_event(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})
    [event] = event_ids(shell)
    note = f"redrive: event {event} is delivery 1 to billing.\n"

    for command in (
        ["delivery", "show", event],
        ["dlq", "show", event],
        ["replay", "plan", event],
        ["dlq", "edit", event, "--payload", "{}", "--no-replay", "--why", "typo", "--yes"],
        ["dlq", "replay", event],
        ["delivery", "prioritise", event, "--priority", "1"],
        ["delivery", "reschedule", event, "--due", "5m"],
        ["delivery", "cancel", event],
        ["replay", "start", event, "--yes", "--detach"],
        ["dlq", "resolve", event, "--why", "phoned"],
        ["dlq", "delete", event, "--why", "old"],
    ):
        answer = shell(*command)
        if command[:2] == ["dlq", "resolve"]:
            shop.do(lambda app: app.drain())
        assert answer.err == note, command
        assert answer.code == 0, command


def test_an_event_with_several_deliveries_names_them(shell: Shell, shop: Shop) -> None:
    app = shop.app()

    @app.handler("order.*")
    async def mailing(event: object) -> None:
        """Do nothing."""

    async def publish() -> str:
        async with app:
            return (await app.publish("order.paid", {})).event_id

    event = asyncio.run(publish())

    answer = shell("delivery", "cancel", event)

    assert answer.code == 2
    assert f"Event {event} has 2 deliveries that fit: 1 to billing, pending; 2 to " in answer.err
    shell("delivery", "cancel", "1")
    assert shell("delivery", "cancel", event).err.endswith("is delivery 2 to mailing.\n")
    assert "No delivery of event" in shell("delivery", "cancel", event).err


def test_an_unrouted_event_has_no_delivery_to_act_on(shell: Shell, shop: Shop) -> None:
    shop.publish({}, event_type="note.made")
    [event] = event_ids(shell)

    assert "has no delivery: no destination was given it" in shell("dlq", "show", event).err
    assert "Unrouted: no destination wanted it" in shell("event", "show", event).out


def test_deliveries_of_any_status_are_listed(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {})
    shop.publish({}, due="1h")

    said = lines(shell("delivery", "list", "--status", "any").out)

    assert said[0] == "ID Changed Tries Delivery"
    assert [line.split(" → billing ")[1] for line in said if "→" in line] == [
        "pending",
        "delivered",
        "failed · exhausted",
    ]
