"""What a rule makes of events, before any is sent by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import Redrive
from redrive.errors import NotFoundError, UsageError
from redrive.observer import EventSkipped, Fact
from redrive.operations import GatewayDocument, Previewed, SampleEvent

WHO = "ada"
CRM = {"url": "https://crm.example.com/hooks?key=t0ps3cret", "headers": {"x-us": "env:US"}}


def gateway(**rule: Any) -> GatewayDocument:  # noqa: ANN401 - as a document has it
    orders = {
        "service": "crm",
        "event": ["order.*"],
        "condition": "payload.total > 10",
        "method": "PUT",
        "path": "/orders/{{ payload.total }}",
        "headers": {"x-key": "{{ key }}"},
        "template": {"total": "{{ payload.total }}"},
        **rule,
    }
    return GatewayDocument(services={"crm": CRM}, rules={"orders": orders})


@pytest.fixture
async def app() -> AsyncIterator[Redrive]:
    async with Redrive("memory://") as running:
        await running.operations.apply_gateway(gateway(), by=WHO)
        yield running


class Notebook:
    """An observer that keeps what it is told."""

    def __init__(self, told: list[Fact]) -> None:
        self._told = told

    def notice(self, fact: Fact) -> None:
        self._told.append(fact)


async def preview(app: Redrive, **given: Any) -> tuple[Previewed, ...]:  # noqa: ANN401 - as it takes
    return (await app.operations.preview_rule("orders", **given)).previews


async def test_the_last_events_that_fit_are_shown_as_they_would_be_sent(app: Redrive) -> None:
    for number in range(15):
        await app.publish("order.paid", {"total": number}, key="k")
    await app.publish("mail.sent", {"total": 99})

    latest, *others = await preview(app)

    assert latest == Previewed(
        event_id=latest.event_id,
        event_type="order.paid",
        published_at=latest.published_at,
        verdict="sent",
        method="PUT",
        url="https://crm.example.com/hooks?key=[redacted]",
        path="/orders/14",
        headers={"x-key": "k", "content-type": "application/json"},
        body='{"total":14}',
    )
    assert [one.body for one in others] == [f'{{"total":{n}}}' for n in (13, 12, 11)]
    assert len(await preview(app, limit=2)) == 2


async def test_an_event_that_is_not_sent_says_why(app: Redrive) -> None:
    small = await app.publish("order.paid", {"total": 1})
    other = await app.publish("mail.sent", {})
    broken = await app.publish("order.paid", {"sum": 1})

    [of_small] = await preview(app, event_id=small.event_id)
    [of_other] = await preview(app, event_id=other.event_id)
    [of_broken] = await preview(app, event_id=broken.event_id)

    assert (of_small.verdict, of_small.why) == ("passed by", "It does not fulfil the condition.")
    assert of_other.why == "The rule is about order.*."
    assert of_broken.verdict == "held"
    assert "payload.total" in of_broken.why


async def test_a_sample_and_changed_keys_are_tried_without_changing_anything(app: Redrive) -> None:
    sample = SampleEvent(type="order.paid", payload={"total": 50, "name": "Ann"}, tenant="acme")
    changes = {"template": None, "text": "{{ payload.name }} of {{ tenant }}", "path": None}

    [as_it_is] = await preview(app, sample=sample)
    [changed] = await preview(app, sample=sample, changes=changes)

    assert as_it_is.body == '{"total":50}'
    assert (changed.body, changed.path) == ("Ann of acme", "")
    assert changed.headers["content-type"] == "text/plain; charset=utf-8"
    [kept] = await app.operations.rules(name="orders")
    assert kept.version == 1


async def test_a_rule_that_is_not_there_yet_can_be_tried(app: Redrive) -> None:
    document = {"service": "crm", "event": "order.*"}
    sample = SampleEvent(type="order.paid", payload={"total": 50})

    found = await app.operations.preview_rule("fresh", changes=document, sample=sample)

    assert [one.body for one in found.previews] == ['{"total":50}']


async def test_what_is_hidden_from_people_is_hidden_from_the_rule_they_try(app: Redrive) -> None:
    """Else a template would be a way to look at it."""
    await app.publish("order.paid", {"total": 50, "password": "hunter22"})
    peeping = {"template": {"p": "{{ payload.password | upper }}"}, "condition": None}

    [found] = await preview(app, changes=peeping)

    assert "hunter22" not in found.body.lower()


@pytest.mark.parametrize("on_error", ["hold", "skip"])
async def test_a_condition_that_fails_is_decided_by_the_rule(app: Redrive, on_error: str) -> None:
    sample = SampleEvent(type="order.paid", payload={})

    [found] = await preview(app, sample=sample, changes={"on_error": on_error})

    assert found.verdict == {"hold": "held", "skip": "passed by"}[on_error]
    assert "cannot be decided" in found.why


async def test_what_a_service_of_a_tenant_does_not_get_is_said(app: Redrive) -> None:
    await app.operations.alter_service("crm", {"tenant": "acme"}, by=WHO)
    sample = SampleEvent(type="order.paid", payload={"total": 50}, tenant="other")

    [found] = await preview(app, sample=sample)

    assert found.why == "It belongs to 'other', and the service to the tenant 'acme'."


async def test_what_is_not_there_is_not_tried(app: Redrive) -> None:
    operations = app.operations

    with pytest.raises(NotFoundError, match="did you mean 'orders'"):
        await operations.preview_rule("order")
    with pytest.raises(NotFoundError, match="to which the rule 'orders' leads"):
        await operations.preview_rule("orders", changes={"service": "cmr"})
    with pytest.raises(NotFoundError):
        await operations.preview_rule("orders", event_id="nobody")
    with pytest.raises(UsageError, match="both given"):
        await operations.preview_rule("orders", event_id="1", sample=SampleEvent(type="order.paid"))


async def test_what_was_in_force_before_can_be_looked_at(app: Redrive) -> None:
    await app.operations.alter_rule("orders", {"path": "/v2"}, by=WHO, why="they moved")

    latest, first = await app.operations.past_versions("rule", "orders")

    assert (latest.kept.version, latest.kept.document["path"], latest.why) == (
        2,
        "/v2",
        "they moved",
    )
    assert latest.is_current
    assert (first.kept.version, first.is_current) == (1, False)
    with pytest.raises(NotFoundError):
        await app.operations.past_versions("service", "orders")
    with pytest.raises(UsageError, match="one of service, rule"):
        await app.operations.past_versions("thing", "orders")


@pytest.mark.parametrize(("on_error", "fitting"), [("hold", 3), ("skip", 1)])
async def test_of_how_many_events_the_condition_fails_is_told(
    app: Redrive, on_error: str, fitting: int
) -> None:
    await app.operations.alter_rule("orders", {"on_error": on_error}, by=WHO)
    for payload in ({"total": 50}, {"sum": 1}, {"sum": 2}, {"total": 1}):
        await app.publish("order.paid", payload)

    found = await app.operations.preview_rule("orders", limit=1)

    assert (found.looked_at, found.fitting, found.undecided) == (4, fitting, 2)
    assert "payload.total" in found.why
    assert len(found.previews) == 1


async def test_what_a_rule_passes_by_is_told_once_by_who_publishes(app: Redrive) -> None:
    told: list[Fact] = []
    app.observe(Notebook(told))
    await app.operations.alter_rule("orders", {"on_error": "skip"}, by=WHO)

    receipt = await app.publish("order.paid", {"sum": 1})
    await app.publish("order.paid", {"total": 50})

    [skipped] = [one for one in told if isinstance(one, EventSkipped)]
    assert (skipped.rule, skipped.event_id) == ("orders@2", receipt.event_id)
    assert "payload.total" in skipped.why
