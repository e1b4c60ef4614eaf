"""Creating a store and publishing into it."""

from pathlib import Path

import pytest

from redrive import Redrive
from redrive.cli.session import store_name
from redrive.operations import Story
from redrive.stores.sqlite.schema import LATEST
from tests.cli.shell import Shell, Shop


def story_of(shop: Shop, delivery_id: int = 1) -> Story:
    async def show(app: Redrive) -> Story:
        return await app.operations.show(delivery_id)

    return shop.do(show)


def test_init_creates_the_store_and_says_where(shell: Shell, folder: Path) -> None:
    answer = shell("init", "--store", "sqlite:///shop.db")

    assert answer.code == 0
    assert " ".join(answer.out.split()) == (
        f"The store {folder / 'shop.db'} is ready, with schema version {LATEST}."
    )
    assert (folder / "shop.db").exists()


def test_init_of_a_store_that_is_there_changes_nothing(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("init", "--json")

    assert answer.json["store"] == store_name(shop.url)
    assert len(shell("dlq", "list", "--json").json["deliveries"]) == 1


def test_the_store_may_be_named_in_the_file(shell: Shell, folder: Path) -> None:
    (folder / "redrive.toml").write_text('store = "sqlite:///from_file.db"\n')

    shell("init")

    assert (folder / "from_file.db").exists()


def test_publish_says_where_the_event_goes(shell: Shell, shop: Shop) -> None:
    answer = shell("publish", "order.paid", '{"order": 7}')

    told = story_of(shop)
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out == f"Published {told.event.id} to billing.\n"
    assert told.payload == {"order": 7}


def test_publish_carries_every_attribute(shell: Shell, shop: Shop) -> None:
    shell(
        *("publish", "order.paid", "7", "--key", "order-7", "--tenant", "acme"),
        *("--source", "till", "--idempotency-key", "k-7", "--header", "trace=a=b"),
        *("--header", "lang=de", "--priority", "9", "--severity", "critical"),
        *("--generation", "blue", "--due", "2100-01-01", "--deadline", "2100-01-02T03:04:05+01:00"),
        *("--occurred-at", "2020-02-03 04:05:06 UTC", "--to", "billing"),
        *("--unique-for", "10m", "--unique-by", "seven"),
    )
    same = shell(
        *("publish", "order.paid", "8", "--source", "till", "--unique-for", "10m"),
        *("--unique-by", "seven"),
    )

    event = story_of(shop).event
    assert "Published before as" in same.out
    assert (event.key, event.tenant, event.source) == ("order-7", "acme", "till")
    assert (event.idempotency_key, event.severity, event.priority) == ("k-7", "critical", 9)
    assert event.headers == {"trace": "a=b", "lang": "de"}
    assert (event.generation, event.to) == ("blue", ("billing",))
    assert event.due is not None
    assert event.deadline is not None
    assert event.due.isoformat() == "2100-01-01T00:00:00+00:00"
    assert event.deadline.isoformat() == "2100-01-02T02:04:05+00:00"
    assert event.occurred_at.isoformat() == "2020-02-03T04:05:06+00:00"


@pytest.mark.parametrize("spelling", ["2h", "in 2h", "In 1h 60m"])
def test_due_may_be_a_wait(spelling: str, shell: Shell, shop: Shop) -> None:
    shell("publish", "order.paid", "--due", spelling)

    told = story_of(shop)
    wait = told.delivery.due - told.event.published_at
    assert 7_100 < wait.total_seconds() <= 7_200


@pytest.mark.parametrize("spelling", ["2h", "2h ago"])
def test_it_may_have_occurred_some_time_ago(spelling: str, shell: Shell, shop: Shop) -> None:
    shell("publish", "order.paid", "--occurred-at", spelling)

    event = story_of(shop).event
    age = event.published_at - event.occurred_at
    assert 7_200 <= age.total_seconds() < 7_300


@pytest.mark.parametrize(
    "document", ['{"n": 123456789012345678901234567890}', "[1.10, null]", '"ü"', "null"]
)
def test_a_payload_is_kept_as_it_was_written(document: str, shell: Shell, shop: Shop) -> None:
    """A number that went through a float on its way would not be the number that was sent."""
    shell("publish", "order.paid", document)

    assert bytes(story_of(shop).event.payload).decode() == document.replace(" ", "")


def test_a_payload_may_come_from_standard_input(shell: Shell, shop: Shop) -> None:
    shell("publish", "order.paid", "-", stdin=b'{"order":\n 7}\n')

    assert story_of(shop).payload == {"order": 7}


def test_a_payload_may_come_from_a_file(shell: Shell, shop: Shop, folder: Path) -> None:
    (folder / "order.json").write_text('{"order": 7}')

    shell("publish", "order.paid", "@order.json")

    assert story_of(shop).payload == {"order": 7}


def test_an_event_nobody_wants_is_published_with_a_warning(shell: Shell, shop: Shop) -> None:
    answer = shell("publish", "weather.changed")

    assert answer.code == 0
    assert answer.out.startswith("Published ")
    assert answer.err.startswith("redrive: no destination wants weather.changed")


def test_publishing_twice_under_one_key_stores_once(shell: Shell, shop: Shop) -> None:
    first = shell("publish", "order.paid", "--idempotency-key", "k", "--json").json

    second = shell("publish", "order.paid", "--idempotency-key", "k")

    assert " ".join(second.out.split()) == (
        f"Published before as {first['event_id']}; nothing new was stored."
    )


def test_the_receipt_is_json_for_programs(shell: Shell, shop: Shop) -> None:
    receipt = shell("publish", "order.paid", "--json").json

    assert receipt["destinations"] == ["billing"]
    assert receipt["is_duplicate"] is False
    assert receipt["event_id"] == story_of(shop).event.id


def test_publish_may_expect_a_version_of_the_key(shell: Shell, shop: Shop) -> None:
    first = shell("publish", "order.paid", "--key", "k", "--expected-version", "0", "--json")
    again = shell("publish", "order.paid", "--key", "k", "--expected-version", "0")
    second = shell("publish", "order.paid", "--key", "k", "--expected-version", "1", "--json")

    assert (first.json["version"], second.json["version"]) == (1, 2)
    assert again.code != 0
    assert "The key 'k' is at version 1, not 0 as expected" in " ".join(again.err.split())


def test_a_version_without_a_key_is_refused(shell: Shell, shop: Shop) -> None:
    answer = shell("publish", "order.paid", "--expected-version", "0")

    assert answer.code != 0
    assert "the event has no key" in " ".join(answer.err.split())
