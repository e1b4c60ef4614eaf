"""Services and rules on pages: looked at, tried, changed, stopped and deleted."""

from __future__ import annotations

import pytest

from redrive.operations import GatewayDocument
from redrive.store import Query
from tests.web.pages.conftest import Shop

GATEWAY = GatewayDocument(
    services={"crm": {"url": "https://crm.example.com/hooks"}},
    rules={
        "orders": {
            "service": "crm",
            "event": "order.*",
            "path": "/orders",
            "template": {"number": "{{ payload.order }}"},
        }
    },
)


@pytest.fixture
async def described(shop: Shop) -> Shop:
    """A shop with a service and a rule, and an order that was paid before."""
    await shop.app.publish("order.paid", {"order": 7})
    await shop.operations.apply_gateway(GATEWAY, by="ann", why="the new CRM")
    return shop


async def test_a_service_is_disabled_enabled_and_deleted_with_a_reason(described: Shop) -> None:
    browser = described.browser()
    await browser.open("/services")
    await browser.click("crm")

    disabled = await browser.submit("/services/disable", why="they move")
    enabled = await browser.submit("/services/enable")
    deleted = await browser.submit("/services/delete", why="they are gone")

    assert "It is disabled: nobody serves it" in disabled.text
    assert "enabled: nothing → false" in disabled.text
    assert "is served again" in enabled.text
    assert "The store describes no service." in deleted.text
    whys = [one.why for one in await described.operations.audit(limit=10)]
    assert "they move" in whys


async def test_many_services_and_rules_are_found_by_name_and_shown_page_by_page(
    shop: Shop,
) -> None:
    names = [f"crm-{number:03}" for number in range(101)]
    many = GatewayDocument(
        services={name: {"url": "https://crm.example.com/hooks"} for name in names},
        rules={name: {"service": name, "event": "order.*"} for name in names},
    )
    await shop.operations.apply_gateway(many, by="ann", why="a CRM for each")
    browser = shop.browser()

    for what in ("service", "rule"):
        first = await browser.open(f"/{what}s?name=CRM")
        last = await browser.click("Next")
        one = await browser.open(f"/{what}s?name=crm-007")

        assert f"101 {what}s, page 1 of 2" in first.text
        assert ("crm-000" in first.text, "crm-100" in first.text) == (True, False)
        assert ("crm-000" in last.text, "crm-100" in last.text) == (False, True)
        assert f"1 {what}" in one.text
        assert ("crm-007" in one.text, "crm-006" in one.text) == (True, False)


async def test_a_service_for_which_work_waits_is_deleted_only_if_that_is_left(
    described: Shop,
) -> None:
    await described.app.publish("order.paid", {"order": 8})
    browser = described.browser()
    await browser.open("/services/crm")

    refused = await browser.submit("/services/delete", why="gone")
    await browser.open("/services/crm")
    deleted = await browser.submit("/services/delete", why="gone", leave_waiting="yes")

    assert "Deliveries wait for the service" in refused.text
    assert "were deleted" in deleted.text


async def test_a_rule_is_tried_on_its_page_before_it_is_saved(described: Shop) -> None:
    browser = described.browser()
    await browser.open("/rules/orders")
    changed = '{"service": "crm", "event": "order.*", "text": "Order {{ payload.order }}"}'

    tried = await browser.submit("/preview", rule=changed)
    tried_before = (await described.operations.rules(name="orders"))[0].version
    saved = await browser.submit("/preview", by="/save", rule=changed, why="texts are enough")

    assert "Order 7" in tried.text
    assert "text/plain" in tried.text
    assert tried_before == 1
    assert "Version 2 is in force." in saved.text
    assert "texts are enough" in saved.text
    assert "template: {" in saved.text


async def test_a_rule_is_tried_with_what_was_made_up_and_with_an_event(described: Shop) -> None:
    [event] = (await described.operations.find_events(limit=1)).events
    browser = described.browser()
    await browser.open("/rules/orders")

    sample = await browser.submit("/preview", sample_type="order.paid", sample='{"order": 99}')
    past = await browser.submit("/preview", event=event.id, sample_type="", sample="")
    slip = await browser.submit("/preview", event="", rule='{"service": "crm", "evnt": "order.*"}')
    broken = await browser.submit("/preview", rule="[1")

    assert '{"number":99}' in sample.text
    assert '{"number":7}' in past.text
    assert "did you mean 'event'" in slip.text
    assert browser.answer.status == 400
    assert "This is no JSON" in broken.text


async def test_a_rule_that_was_tried_stands_there_as_it_was_typed(described: Shop) -> None:
    browser = described.browser()
    before = (await browser.open("/rules/orders")).form("/preview").fields["rule"]

    for _ in range(2):
        after = (await browser.submit("/preview")).form("/preview").fields["rule"]

        assert "\n" in before
        assert after == before


async def test_a_rule_is_disabled_and_deleted(described: Shop) -> None:
    browser = described.browser()
    await browser.open("/rules")
    await browser.click("orders")

    disabled = await browser.submit("/rules/disable", why="too many")
    enabled = await browser.submit("/rules/enable")
    deleted = await browser.submit("/rules/delete", why="of no use")

    assert "It is disabled: it gives nothing" in disabled.text
    assert "Version 3 is in force" in enabled.text
    assert "The store describes no rule." in deleted.text
    await browser.open("/rules/orders")
    assert browser.answer.status == 404


async def test_lists_are_narrowed_by_a_part_of_a_name(described: Shop) -> None:
    browser = described.browser()

    assert "1 service" in (await browser.open("/services?name=RM")).text
    assert "No service fits." in (await browser.open("/services?name=erp")).text
    assert "1 rule" in (await browser.open("/rules?name=crm")).text
    assert "No rule fits." in (await browser.open("/rules?name=mail")).text


async def test_the_last_requests_to_a_service_are_on_its_page(described: Shop) -> None:
    empty = await described.browser().open("/services/crm")
    missing = {"template": {"n": "{{ payload.missing }}"}}
    await described.operations.alter_rule("orders", missing, by="ann")
    await described.app.publish("order.paid", {"order": 1})
    await described.app.drain(services=True)

    shown = await described.browser().open("/services/crm")

    assert "None is in the log." in empty.text
    assert "The rule orders@2 cannot be rendered" in shown.text
    assert "order.paid" in shown.text


async def test_who_replays_says_whether_it_is_rendered_again(described: Shop) -> None:
    operations, app = described.operations, described.app
    missing = {"template": {"n": "{{ payload.missing }}"}}
    await operations.alter_rule("orders", missing, by="ann")
    for number in range(3):
        await app.publish("order.paid", {"order": number})
    await app.drain(services=True)
    letters = (await operations.dead_letters(Query(destination="crm"))).deliveries
    await operations.alter_rule("orders", {"template": {"n": "{{ payload.order }}"}}, by="ann")
    as_it_was, again, *_ = [one.id for one in letters]
    browser = described.browser()

    await browser.open(f"/deliveries/{as_it_was}")
    await browser.submit(f"/deliveries/{as_it_was}/replay")
    await browser.open(f"/deliveries/{again}")
    await browser.submit(f"/deliveries/{again}/replay", rendered="again")
    [group] = await operations.groups(Query(destination="crm"))
    plan = await browser.open(f"/dead-letters/groups/{group.id}/replay")
    await browser.submit("/replay", rendered="again")

    assert "Render them again, by their rules as they are now" in plan.text
    rules = {one.id: (await operations.show(one.id)).delivery.rule for one in letters}
    assert rules.pop(as_it_was) == "orders@2"
    assert set(rules.values()) == {"orders@3"}
