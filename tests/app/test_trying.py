"""A test of a service: one request in the way of real sending, shown without secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import Redrive
from redrive.errors import NotFoundError, UsageError
from redrive.model.delivery import Status
from redrive.operations import GatewayDocument
from redrive.store import Query
from tests.http.receiver import Receiver, answer, receiving

TOKEN = "tok-9c8b7a6d5e"  # noqa: S105 - planted, to be looked for


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def gateway(receiver: Receiver, **keys: Any) -> GatewayDocument:  # noqa: ANN401 - of a document
    crm = {"url": receiver.url, "allow_private": True, "auth": {"bearer": "env:CRM_TOKEN"}, **keys}
    rule = {"service": "crm", "event": "order.*", "enabled": False}
    shape = {"path": "/orders/{{ key }}", "template": {"number": "{{ payload.order }}"}}
    return GatewayDocument(
        services={"crm": crm, "other": {"kind": "stdout"}}, rules={"orders": {**rule, **shape}}
    )


async def test_a_test_shows_what_was_sent_and_answered_and_leaves_nothing(
    store: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    receiver.answers(answer(200, f"your token is {TOKEN}"))
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver), by="ada")
        done = await app.operations.try_service(
            "crm", {"order": 42}, type="order.paid", key="o-42", rule="orders", by="ada"
        )
        left = [
            one
            for status in Status
            for one in (await app.operations.deliveries(Query(status=status))).deliveries
        ]

    assert (done.is_success, done.status, done.rule, left) == (True, 200, "orders@1", [])
    assert receiver.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert done.exchange is not None
    assert (done.exchange.sent, done.exchange.url) == (
        '{"number":42}',
        f"{receiver.url}/orders/o-42",
    )
    assert TOKEN not in repr(done)


async def test_a_test_is_tried_once_and_says_what_is_wrong(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    receiver.always(answer(503, "later"))
    async with Redrive("memory://") as app:
        await app.operations.apply_gateway(gateway(receiver), by="ada")
        failed = await app.operations.try_service("crm", by="ada")
        await app.operations.pause("crm", by="ada", why="they move")
        held = await app.operations.try_service("crm", by="ada")

    assert (failed.is_success, failed.status, len(receiver.requests)) == (False, 503, 1)
    assert failed.fault is not None
    assert "answered 503" in failed.fault.message
    assert (held.is_success, held.hold, held.exchange) == (False, "paused", None)
    assert held.fault is not None
    assert "it is paused: they move" in held.fault.message


async def test_what_cannot_be_rendered_is_told_and_not_sent(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    async with Redrive("memory://") as app:
        await app.operations.apply_gateway(gateway(receiver), by="ada")
        done = await app.operations.try_service("crm", {"oder": 1}, rule="orders", by="ada")
        with pytest.raises(NotFoundError, match="did you mean 'orders'"):
            await app.operations.try_service("crm", rule="order", by="ada")
        with pytest.raises(UsageError, match="leads to the service 'crm', not to 'other'"):
            await app.operations.try_service("other", rule="orders", by="ada")
        with pytest.raises(UsageError, match="gives no answer"):
            await app.operations.try_service("other", by="ada")

    assert (done.is_success, receiver.requests) == (False, [])
    assert done.fault is not None
    assert "order" in done.fault.message


async def test_the_guard_holds_for_a_test(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    # A name is looked up when it is used, so that nobody can say where it leads before.
    url = receiver.url.replace("127.0.0.1", "localhost.localdomain")
    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", _resolves_to_loopback)
    async with Redrive("memory://") as app:
        document = gateway(receiver, url=url, allow_private=False)
        await app.operations.apply_gateway(document, by="ada")
        done = await app.operations.try_service("crm", by="ada")

    assert (done.is_success, done.status, receiver.requests) == (False, None, [])
    assert done.fault is not None
    assert done.fault.rule == "address not allowed"


async def _resolves_to_loopback(
    self: object, host: str, port: int = 0, family: int = 0
) -> list[dict[str, Any]]:
    found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": 2}
    return [{**found, "proto": 0, "flags": 0}]
