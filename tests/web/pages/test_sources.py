"""Sources on pages: looked at, stopped, let in again and deleted."""

from __future__ import annotations

import pytest

from redrive.operations import GatewayDocument
from tests.web.pages.conftest import Shop

GATEWAY = GatewayDocument(
    sources={
        "shop": {"kind": "github", "secrets": ["env:SHOP_SECRET"], "event": "shop.pushed"},
        "lamp": {"kind": "open", "event": "lamp.lit"},
    }
)


@pytest.fixture
async def described(shop: Shop) -> Shop:
    """A shop that two sources may send to."""
    await shop.operations.apply_gateway(GATEWAY, by="ann", why="they send us webhooks")
    await shop.app.publish("shop.pushed", {"n": 1}, source="shop")
    return shop


async def test_sources_are_listed_with_how_they_are_believed(described: Shop) -> None:
    browser = described.browser()

    listed = await browser.open("/sources")
    one = await browser.click("shop")

    assert "none: open" in listed.text
    assert "/in/lamp" in listed.text
    assert "Version 1 is in force; what it signs is published." in one.text
    assert "shop.pushed" in one.links
    assert "they send us webhooks" in one.text


async def test_a_source_is_disabled_enabled_and_deleted_with_a_reason(described: Shop) -> None:
    browser = described.browser()
    await browser.open("/sources/shop")

    disabled = await browser.submit("/sources/disable", why="they moved")
    enabled = await browser.submit("/sources/enable")
    deleted = await browser.submit("/sources/delete", why="they are gone")

    assert "its messages are turned away" in disabled.text
    assert "enabled: nothing → false" in disabled.text
    assert "is let in again" in enabled.text
    assert [one.name for one in await described.operations.sources()] == ["lamp"]
    assert "shop was deleted" in deleted.text
    whys = [one.why for one in await described.operations.audit(limit=10)]
    assert {"they moved", "they are gone"} <= set(whys)


async def test_an_open_source_is_shown_as_one_to_look_at(described: Shop) -> None:
    page = await described.browser().open("/sources/lamp")

    assert "whoever knows the address is believed" in page.text
