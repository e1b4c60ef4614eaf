"""Events and deliveries are sought by what is known of them."""

from __future__ import annotations

import pytest

from redrive.web.pages import search
from tests.web.pages.conftest import Shop


@pytest.mark.parametrize(
    "asked",
    [
        *("key=order-1", "type=order.*", "tenant=acme", "text=EXPIRED", "text=visa-4111"),
        *("destination=billing", "status=failed", "key=order-1&text=expired&status=failed"),
    ],
)
async def test_events_are_found_by(broken: Shop, asked: str) -> None:
    document = await broken.browser().open(f"/search?{asked}")

    assert "order-1" in document.text
    assert "dead letter" in document.text


@pytest.mark.parametrize("asked", ["key=none", "text=nowhere", "tenant=globex", "type=mail.*"])
async def test_what_is_nowhere_is_not_found(broken: Shop, asked: str) -> None:
    assert "Nothing fits." in (await broken.browser().open(f"/search?{asked}")).text


async def test_the_box_on_each_page_leads_to_what_can_be_only_one_thing(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    event = (await broken.operations.show(letter)).event

    assert f"Delivery {letter}" in (await browser.open(f"/search?any={letter}")).text
    assert f"Event {event.type}" in (await browser.open(f"/search?any={event.id}")).text
    assert "order-2" in (await browser.open("/search?any=order-2")).text
    assert "Nothing fits." in (await browser.open("/search?any=999999")).text


async def test_text_is_read_from_so_many_and_goes_on_by_cursor(
    broken: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_READ", 2)
    browser = broken.browser()

    first = await browser.open("/search?text=%22order%22%3A0")
    found = await browser.click("Look further back")

    assert "Text is looked for in the newest" in first.text
    assert "Nothing was found yet." in first.text
    assert "order-0" in found.text
    assert "Look further back" not in found.text


async def test_an_event_shows_its_deliveries_and_its_payload_on_record(broken: Shop) -> None:
    event = (await broken.operations.find_events(limit=1)).events[0]
    browser = broken.browser()

    hidden = await browser.open(f"/events/{event.id}")
    shown = await browser.submit("/reveal", why="to see")

    assert "dead letter" in hidden.text
    assert "visa-4111" not in hidden.text
    assert "visa-4111" in shown.text
    [entry] = await broken.operations.audit(limit=1)
    assert (entry.action, entry.why) == ("reveal", "to see")


async def test_destinations_are_sorted_and_come_in_pages(broken: Shop) -> None:
    browser = broken.browser()

    sorted_by = await browser.open("/destinations?sort=pending&page=1")
    beyond = await browser.open("/destinations?page=2")
    refused = await browser.open("/destinations?sort=colour")

    assert "billing" in sorted_by.text
    assert 'aria-sort="descending"' in (await _html(broken, "/destinations?sort=failed"))
    assert "No destination fits." in beyond.text
    assert "it is one of attention, name" in refused.text


async def _html(shop: Shop, path: str) -> str:
    browser = shop.browser()
    await browser.open(path)
    return browser.answer.body.decode()
