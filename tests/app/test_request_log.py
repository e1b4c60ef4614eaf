"""The log of requests: that a service works can be seen, and what it costs is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import Redrive, RequestLog, http
from redrive.app.gateway.service import read_service
from redrive.errors import ConfigurationError, NotFoundError
from redrive.operations import GatewayDocument
from tests.http.receiver import Receiver, answer, receiving


def gateway(receiver: Receiver, **keys: Any) -> GatewayDocument:  # noqa: ANN401 - of a document
    crm = {"url": receiver.url, "allow_private": True, "retry": {"base": "0s"}, **keys}
    return GatewayDocument(
        services={"crm": crm}, rules={"orders": {"service": "crm", "event": "order.*"}}
    )


async def test_each_try_is_logged_with_its_status_and_what_came_of_it(store: str) -> None:
    async with receiving() as receiver, Redrive(store) as app:
        receiver.answers(answer(503, "busy"), answer(201), answer(404, "unknown"))
        await app.operations.apply_gateway(gateway(receiver), by="ada")
        first = await app.publish("order.paid", {"order": 1}, tenant="acme")
        await app.drain(services=True)
        await app.publish("order.paid", {"order": 2})
        await app.drain(services=True)

        log = await app.operations.request_log("crm")
        with pytest.raises(NotFoundError, match="did you mean 'crm'"):
            await app.operations.request_log("crn")

    said = [(one.result, one.status, one.attempt) for one in log]
    assert said == [("failed", "404", 1), ("delivered", "201", 2), ("retry", "503", 1)]
    assert (log[1].event_id, log[1].rule, log[1].tenant) == (first.event_id, "orders@1", "acme")
    assert log[1].latency.total_seconds() > 0
    assert "unknown" in log[0].error


@pytest.mark.parametrize(
    ("keys", "kept"),
    [({"request_log": {"keep": 2}}, 2), ({"request_log": False}, 0), ({}, 5)],
)
async def test_a_service_says_how_many_are_kept(keys: dict[str, Any], kept: int) -> None:
    async with receiving() as receiver, Redrive("memory://") as app:
        await app.operations.apply_gateway(gateway(receiver, **keys), by="ada")
        for number in range(5):
            await app.publish("order.paid", {"order": number})
        await app.drain(services=True)

        assert len(await app.operations.request_log("crm")) == kept


async def test_a_share_of_the_successes_is_kept_and_every_failure() -> None:
    async with receiving() as receiver, Redrive("memory://") as app:
        receiver.refuses(b'"bad"', status=404)
        log = {"keep": 1000, "share": 0.000001}
        await app.operations.apply_gateway(gateway(receiver, request_log=log), by="ada")
        for order in ("good", "bad", "good", "good"):
            await app.publish("order.paid", {"order": order})
        await app.drain(services=True)

        assert [one.result for one in await app.operations.request_log("crm")] == ["failed"]


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"keep": 0}, "from 1 to 1,000"),
        ({"share": 2}, "above 0 and at most 1"),
        ({"keeps": 1}, "did you mean 'keep'"),
    ],
)
def test_a_log_that_cannot_be_kept_is_refused(given: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        read_service("crm", {"url": "https://api.example.com", "request_log": given})


async def test_a_destination_of_code_is_logged_if_it_says_so() -> None:
    async with receiving() as receiver:
        app, way = Redrive("memory://"), http(receiver.url, allow_private=True)
        with pytest.raises(ConfigurationError, match=r"pass RequestLog\(keep=100\)"):
            app.handler("order.*", request_log=5)(print)  # type: ignore[call-overload] # wrong
        app.destination("crm", "order.*", transport=way, request_log=RequestLog(keep=2))
        app.destination("till", "order.*", transport=way)
        async with app:
            for number in range(3):
                await app.publish("order.paid", {"order": number})
            await app.drain()

            assert len(await app.operations.request_log("crm")) == 2
            assert len(await app.operations.request_log("till")) == 0
