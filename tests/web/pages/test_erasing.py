"""Erasing on pages: counted first, done with a reason, and told without what was erased."""

from __future__ import annotations

from tests.web.pages.conftest import Shop


async def test_what_events_of_a_key_said_is_counted_and_then_erased(shop: Shop) -> None:
    receipt = await shop.app.publish("page.seen", {"name": "Xanthippe"}, key="customer-1")
    browser = shop.browser()
    await browser.open("/erase")

    typed = {"kind": "key", "name": "customer-1", "with_key": "yes", "waiting": "fail"}
    planned = await browser.submit("/erase/plan", **typed)
    done = await browser.submit("/erase", why="request 17")
    event = await browser.open(f"/events/{receipt.event_id}")

    assert "Erase what 1 event said" in planned.text
    assert "What 1 event said was erased." in done.text
    assert "It was erased" in event.text
    assert "customer-1" not in event.text
    [entry] = await shop.operations.audit(limit=1)
    assert (entry.action, entry.why) == ("erase", "request 17")


async def test_the_page_of_an_event_leads_to_its_erasure(shop: Shop) -> None:
    receipt = await shop.app.publish("page.seen", {"n": 1})
    browser = shop.browser()
    await browser.open(f"/events/{receipt.event_id}")

    form = await browser.click("Erase what it said…")

    assert form.form("/erase/plan").fields["name"] == receipt.event_id


async def test_what_is_unclear_is_said_in_a_sentence(shop: Shop) -> None:
    browser = shop.browser()
    await browser.open("/erase")

    page = await browser.submit("/erase/plan", kind="key", name=" ")

    assert browser.answer.status == 400
    assert "Name the key whose payloads are meant." in page.text
