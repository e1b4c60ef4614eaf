"""Odd values are refused at the door: nothing is stored that could not be read back."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from redrive import ConfigurationError, NewEvent, NotFoundError, Redrive, UsageError

FAR_WEST, FAR_EAST = timezone(-timedelta(hours=14)), timezone(timedelta(hours=14))


@pytest.fixture
def app() -> Redrive:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    return app


@pytest.mark.parametrize(
    "attributes",
    [
        {"source": None},
        {"priority": True},
        {"priority": 1.0},
        {"priority": 101},
        {"due": datetime.max.replace(tzinfo=FAR_WEST)},
        {"due": datetime.min.replace(tzinfo=FAR_EAST)},
        {"deadline": datetime.min.replace(tzinfo=FAR_EAST)},
        {"occurred_at": datetime(9999, 12, 31, tzinfo=UTC)},
        {"key": "\ud800"},
        {"tenant": "a\x00b"},
        {"generation": " "},
        {"idempotency_key": ""},
        {"headers": {"traceparent": "\udfff"}},
        {"headers": {"note": "x" * 9_000}},
        {"headers": {f"h{number}": "x" * 8_000 for number in range(9)}},
    ],
    ids=str,
)
async def test_an_attribute_that_could_not_be_read_back_is_refused(
    app: Redrive, attributes: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        await app.publish("order.paid", **attributes)  # type: ignore[arg-type]

    assert (await app.operations.status()).events == 0


@pytest.mark.parametrize("event_type", [".", "a..b", ".a", "a.", "", "a b"])
async def test_a_type_is_dotted_words(app: Redrive, event_type: str) -> None:
    with pytest.raises(ConfigurationError, match="dotted words"):
        await app.publish(event_type)


async def test_a_wait_without_end_is_kept_within_the_calendar(app: Redrive) -> None:
    await app.publish("order.paid", due=timedelta.max)

    assert (await app.operations.status()).destinations[0].waiting == 1


async def test_instants_are_kept_in_utc(app: Redrive) -> None:
    await app.publish("order.paid", due=datetime(2100, 1, 1, 14, tzinfo=FAR_EAST))

    [logged] = await app.operations.events()
    assert logged.event.due == datetime(2100, 1, 1, tzinfo=UTC)


async def test_many_may_come_from_a_generator(app: Redrive) -> None:
    receipts = await app.publish_many(NewEvent(type="order.paid") for _ in range(3))  # type: ignore[arg-type]

    assert len(receipts) == 3


@pytest.mark.parametrize("events", [7, [{"type": "order.paid"}], "order.paid"])
async def test_many_of_something_else_is_refused(app: Redrive, events: object) -> None:
    with pytest.raises(ConfigurationError, match=r"publish_many got .* as events\[0\]"):
        await app.publish_many(events)  # type: ignore[arg-type]


async def test_an_id_beyond_all_ids_is_not_found(app: Redrive) -> None:
    with pytest.raises(NotFoundError):
        await app.operations.show(10**30)
    assert await app.operations.replay([10**30, -1], by="ada") == []


@pytest.mark.parametrize("ids", ["12", ["a"], [True], [1.5]])
async def test_ids_that_are_none_are_refused(app: Redrive, ids: object) -> None:
    with pytest.raises(UsageError, match="numbers of deliveries"):
        await app.operations.replay(ids, by="ada")  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 10**30, "x", True])
async def test_a_limit_is_a_number_of_rows(app: Redrive, limit: object) -> None:
    with pytest.raises(UsageError, match="limit is"):
        await app.operations.dead_letters(limit=limit)  # type: ignore[arg-type]


async def test_a_reason_of_blanks_is_none(app: Redrive) -> None:
    with pytest.raises(UsageError, match="A reason is needed"):
        await app.operations.delete([1], by="ada", why="  ")


async def test_one_that_cannot_be_stored_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever slips past the door must not take its neighbours along."""
    app = Redrive(f"sqlite:///{tmp_path / 'redrive.db'}")
    monkeypatch.setattr("redrive.model.event.check_text", lambda name, value, longest=0: value)

    async with app:
        results = await asyncio.gather(
            *[app.publish("order.paid", key="\ud800" if n == 7 else f"{n}") for n in range(20)],
            return_exceptions=True,
        )
        assert [n for n, one in enumerate(results) if isinstance(one, Exception)] == [7]
        assert (await app.operations.status()).events == 19


async def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    app = Redrive("sqlite:///redrive.db")

    async with app:
        await app.publish("order.paid")
        os.chdir(tmp_path / "below")
        async with app.transaction() as transaction:
            await app.publish("order.paid", within=transaction)

    assert not (tmp_path / "below" / "redrive.db").exists()
