"""Secrets in documents: refused where they are written out, and shown nowhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.app.gateway.rule import read_rule
from redrive.app.gateway.schedule import read_schedule
from redrive.app.gateway.secrets import references_in
from redrive.app.gateway.service import read_service
from redrive.errors import ConfigurationError
from redrive.operations import GatewayDocument
from tests.http.receiver import receiving

WHO = "ada"
SECRET = "hunter2-and-more"  # noqa: S105 - a planted one
URL = "https://crm.example.com/hooks"
WRITTEN: list[tuple[dict[str, Any], str]] = [
    ({"url": f"{URL}?token={SECRET}"}, "url has token= in its query"),
    ({"url": f"{URL}?a=b&api_key={SECRET}#x"}, "url has api_key= in its query"),
    ({"url": f"{URL}?client%5Fsecret={SECRET}"}, "url has client_secret= in its query"),
    ({"url": f"https://bob:{SECRET}@crm.example.com/"}, "holds a user or a password"),
    ({"url": f"https://{SECRET}@crm.example.com/"}, "holds a user or a password"),
    ({"url": URL, "headers": {"X-Api-Key": SECRET}}, "headers has X-Api-Key written out"),
    ({"url": URL, "health": {"ask": f"/up?password={SECRET}"}}, "health.ask has password="),
    (
        {
            "url": URL,
            "auth": {
                "oauth2": {
                    "token_url": f"{URL}?secret={SECRET}",
                    "client_id": "shop",
                    "client_secret": "env:A",
                }
            },
        },
        "auth.oauth2.token_url has secret=",
    ),
    ({"kind": "loki", "url": f"https://loki.example.com?token={SECRET}"}, "url has token="),
    ({"kind": "amqp", "url": f"amqps://bob:{SECRET}@mq.example.com/"}, "holds a user"),
]


@pytest.mark.parametrize(("document", "said"), WRITTEN)
def test_a_secret_that_a_service_has_written_out_is_refused_and_not_shown(
    document: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_service("crm", document)

    assert "The service 'crm'" in str(refused.value)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"path": f"/orders?token={SECRET}"}, "path has token="),
        ({"headers": {"authorization": f"Bearer {SECRET}"}}, "headers has authorization"),
    ],
)
def test_a_secret_that_a_rule_has_written_out_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_rule("orders", {"service": "crm", "event": "*", **keys})

    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_secret_that_a_schedule_has_written_out_is_refused() -> None:
    document = {"event": "report.due", "every": "1h", "payload": {"to": [{"password": SECRET}]}}

    with pytest.raises(ConfigurationError, match="payload has something") as refused:
        read_schedule("nightly", document)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        {"url": f"{URL}?token=env:CRM_TOKEN&page=1"},
        {"url": f"{URL}?page=token"},
        {"url": f"{URL}?token="},
        {"url": "secret:slack-url"},
        {"url": URL, "headers": {"X-Api-Key": "env:CRM_TOKEN"}},
    ],
)
def test_what_is_no_secret_or_says_where_it_is_is_taken(document: dict[str, Any]) -> None:
    assert read_service("crm", document).kind == "http"


def test_templates_may_take_what_an_event_has() -> None:
    rule = {
        "path": "/orders?token={{ payload.token }}",
        "headers": {"x-api-key": "{{ payload.key }}"},
    }

    assert read_rule("orders", {"service": "crm", "event": "*", **rule}).path is not None


def test_references_are_found_in_queries() -> None:
    document = {"url": f"{URL}?token=env%3AA&b=c", "more": ["env:B", {"c": "secret:C"}]}

    assert list(references_in(document)) == ["env:A", "env:B", "secret:C"]


async def test_secrets_of_an_address_are_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_TOKEN", f"{SECRET}&=%")
    async with receiving() as receiver, Redrive("memory://") as app:
        monkeypatch.setenv("CRM_URL", f"{receiver.url}/T000/{SECRET}")
        often = {"allow_private": True, "retry": {"max_attempts": 1}, "breaker": False}
        wanted = GatewayDocument(
            services={
                "query": {"url": f"{receiver.url}?token=env:CRM_TOKEN&page=1", **often},
                "whole": {"url": "env:CRM_URL", **often},
            },
            rules={
                "a": {"service": "query", "event": "*"},
                "b": {"service": "whole", "event": "*"},
            },
        )
        await app.operations.apply_gateway(wanted, by=WHO)
        receiver.refuses(b"bad", status=400)
        await app.publish("order.paid", "good")
        await app.publish("order.paid", "bad")
        tally = await app.drain(services=True)
        exported = await app.operations.export_gateway()
        letters = (await app.operations.dead_letters()).deliveries
        shown = [
            exported,
            await app.operations.services(),
            await app.operations.past_versions("service", "query"),
            await app.operations.audit(),
            [await app.operations.show(one.id) for one in letters],
            [await app.operations.preview_rule(one) for one in "ab"],
            await app.operations.request_log("whole"),
        ]
        plan = await app.operations.plan_gateway(exported)

    assert (tally.delivered, tally.failed) == (2, 2)
    sent = {one.path for one in receiver.requests}
    assert any(one.endswith("?token=hunter2-and-more%26%3D%25&page=1") for one in sent)
    assert any(one.endswith(f"/T000/{SECRET}") for one in sent)
    assert plan.steps == ()
    assert SECRET not in msgspec.json.encode(shown).decode()
