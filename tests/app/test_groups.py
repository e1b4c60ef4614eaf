"""Groups: dead letters that failed in the same way, looked at and acted on together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from redrive import Cancel, DeadLettered, Event, Query, Redrive, Retry, Snooze, Terminal, UsageError
from redrive.testing import Kit


class Shop:
    """An app in a kit whose handler fails as the payload says."""

    def __init__(self, store: str) -> None:
        self.app = Redrive("memory://")
        self.app.handler("order.*", name="billing", retry=Retry(max_attempts=1))(self.bill)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations
        self.is_mended = False

    async def bill(self, event: Event[dict[str, Any]]) -> object:
        if self.is_mended:
            return None
        match event.payload:
            case {"cancel": str(why)}:
                return Cancel(why)
            case {"snooze": str(wait)}:
                return Snooze(wait)
            case {"terminal": str(message)}:
                raise Terminal(message)
            case {"order": int(number)}:
                raise ConnectionError(f"billing refused order {number}")
        return None

    async def fail(self, *payloads: object, **attributes: str) -> None:
        for payload in payloads:
            await self.app.publish("order.paid", payload, **attributes)  # type: ignore[arg-type]
        await self.kit.drain()


@pytest.fixture
async def shop(store: str) -> AsyncIterator[Shop]:
    shop = Shop(store)
    async with shop.kit:
        yield shop


async def test_failures_of_one_cause_are_one_group(shop: Shop) -> None:
    await shop.fail({"order": 17}, {"order": 18}, {"terminal": "no such street"}, tenant="acme")

    refused, unknown = await shop.operations.groups()

    assert refused.title == "ConnectionError: billing refused order # (test_groups.py, bill)"
    assert (refused.count, refused.top_tenants) == (2, (("acme", 2),))
    assert (refused.reason, refused.destination) == ("exhausted", "billing")
    assert unknown.title == "redrive.errors.Terminal: no such street (test_groups.py, bill)"


class Parcel(msgspec.Struct):
    """What the handlers below take."""

    weight: int


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_payload_that_does_not_fit_points_to_its_handler(
    store: str, *, is_batch: bool
) -> None:
    app = Redrive("memory://")

    async def ship(event: Event[Parcel]) -> None:
        """Take parcels."""

    async def ship_all(events: list[Event[Parcel]]) -> None:
        """Take parcels together."""

    if is_batch:
        app.handler("parcel.*", name="ship", batch=10)(ship_all)
    else:
        app.handler("parcel.*", name="ship")(ship)
    async with Kit(app, store=store) as kit:
        for payload in ({"weight": "a"}, {"weight": "b"}, {"street": "c"}):
            await app.publish("parcel.packed", payload)
        await kit.drain()

        wrong, missing = await kit.operations.groups()
        story = await kit.operations.show(wrong.example)

    place = f"(test_groups.py, {'ship_all' if is_batch else 'ship'})"
    name = "msgspec.ValidationError"
    assert wrong.title == f"{name}: Expected `int`, got `str` - at `$.weight` {place}"
    assert missing.title == f"{name}: Object missing required field `weight` {place}"
    assert (wrong.count, wrong.message) == (2, "Expected `int`, got `str` - at `$.weight`")
    assert story.delivery.fault is not None
    assert "transports/function.py" not in story.delivery.fault.stack


async def test_whatever_fails_a_delivery_gives_it_a_group(shop: Shop) -> None:
    await shop.fail({"order": 1}, {"terminal": "no"}, {"cancel": "customer left"}, deadline="1h")
    await shop.fail({"snooze": "2h"}, deadline="1h")
    await shop.app.publish("order.paid", {"order": 5}, due="1h")
    await shop.app.publish("order.paid", {"order": 6}, due="2h", deadline="3h")
    await shop.operations.cancel([5], by="ada")
    shop.kit.clock.advance("3h")
    await shop.kit.drain()

    letters = (await shop.operations.dead_letters()).deliveries

    assert {letter.reason for letter in letters} == {
        "exhausted",
        "terminal",
        "cancelled",
        "expired",
    }
    assert [letter.id for letter in letters if not (letter.fault and letter.fault.group)] == []
    assert len(await shop.operations.groups()) == len(letters) == 6


async def test_only_the_dead_letter_and_not_each_try_names_the_group(shop: Shop) -> None:
    """A fault is kept with every try; what all of them share is kept once."""
    await shop.fail({"order": 17})

    [letter] = (await shop.operations.dead_letters()).deliveries

    [attempt] = letter.log
    assert attempt.fault is not None
    assert attempt.fault.group == ""


async def test_a_whole_group_is_replayed(shop: Shop) -> None:
    await shop.fail({"order": 17}, {"order": 18}, {"terminal": "no such street"})
    [group, other] = await shop.operations.groups()
    shop.is_mended = True

    selected = await shop.operations.select(Query(group=group.id))
    changed = await shop.operations.replay(selected, by="ada", why="billing is back")
    tally = await shop.kit.drain()

    assert (len(selected), len(changed), tally.delivered) == (2, 2, 2)
    assert list(await shop.operations.groups()) == [other]


async def test_what_fails_after_the_selection_is_left_alone(shop: Shop) -> None:
    """Whoever looked at three letters did not mean the fourth."""
    await shop.fail({"order": 17}, {"order": 18})
    [group] = await shop.operations.groups()

    selected = await shop.operations.select(Query(group=group.id))
    await shop.fail({"order": 19})
    await shop.operations.replay(selected[:1], by="bob", why="one to try")
    changed = await shop.operations.resolve(selected, by="ada", why="refunded")

    assert (len(selected), len(changed)) == (2, 1)
    [left] = await shop.operations.groups()
    assert (left.id, left.count) == (group.id, 1)


async def test_a_selection_goes_through_every_page(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.operations.looking.MOST_PER_PAGE", 2)
    await shop.fail(*({"order": number} for number in range(5)))

    assert sorted(await shop.operations.select()) == [1, 2, 3, 4, 5]


async def test_the_story_of_a_dead_letter_names_its_group(shop: Shop) -> None:
    await shop.fail({"order": 17}, {"order": 18})

    story = await shop.operations.show(1)

    assert story.group is not None
    assert story.group.count == 2
    assert [story.group] == list(await shop.operations.groups())


async def test_what_has_not_failed_or_is_resolved_has_no_group(shop: Shop) -> None:
    await shop.fail({"fine": True}, {"order": 17})
    await shop.operations.resolve([2], by="ada", why="refunded")

    assert [(await shop.operations.show(number)).group for number in (1, 2)] == [None, None]


async def test_a_hook_hears_of_the_group(shop: Shop) -> None:
    told: list[DeadLettered] = []
    shop.app.on_failed(told.append)

    await shop.fail({"order": 17})

    [group] = await shop.operations.groups()
    assert [letter.group for letter in told] == [group.id]


@pytest.mark.parametrize("limit", [0, 1_001])
async def test_a_limit_out_of_range_is_refused(limit: int, shop: Shop) -> None:
    with pytest.raises(UsageError, match=f"limit is {limit}"):
        await shop.operations.groups(limit=limit)
