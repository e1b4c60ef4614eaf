"""Each key of services, rules and schedules: read, heeded, kept, and spelt right."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import Redrive
from redrive.app.gateway.rule import _KEYS as RULE_KEYS
from redrive.app.gateway.rule import read_rule
from redrive.app.gateway.schedule import KEYS_OF_SCHEDULES, read_schedule
from redrive.app.gateway.service import _OWN, _READERS, _TERMS, read_service
from redrive.app.gateway.ways import KINDS
from redrive.errors import ConfigurationError
from redrive.operations import GatewayDocument

URL = {"url": "https://crm.example.com/hooks"}
SERVICE: dict[str, Any] = {
    "kind": "http",
    "enabled": False,
    "description": "the CRM",
    "profile": "critical",
    "retry": {"max_attempts": 3},
    "retry_overrides": {"order.*": {"max_attempts": 2}},
    "timeout": "3s",
    "concurrency": 2,
    "snooze_limit": 3,
    "snooze_age": "1h",
    "tenant": "acme",
    "order": "park",
    "breaker": {"failures": 2},
    "health": {"ask": "/health"},
    "rate": "10/s",
    "retry_rate": "5/s",
    "over_retry_rate": "dead_letter",
    "replay_rate": "4/s",
    "retry_budget": 0.2,
    "shared_rate": {"name": "crm", "rate": "3/s"},
    "disable_after": "5d",
    "request_log": {"keep": 7},
    "auto_replay": {"cron": "0 3 * * *"},
    "dead_letters": {"count": 7},
    "fairness": {"weights": {"gold-*": 3}},
    "expire_after": "2h",
    "url": "https://other.example.com",
    "headers": {"x-us": "shop"},
    "auth": {"bearer": "env:TOKEN"},
    "retry_on_status": [409],
    "allow_private": True,
    "allow_networks": ["10.0.0.0/8"],
    "connect_timeout": "2s",
    "connections": 7,
    "response_limit": 8192,
    "method": "PUT",
    "forward_headers": ["x-trace"],
    "signing_keys": ["env:KEY"],
    "body": "event",
    "certificate": "file:/run/client.pem",
    "authority": "file:/run/ca.pem",
}
"""A value of each key of a service over HTTP that says something."""
UNHEEDED = ("kind", "description", "auth", "signing_keys")
"""The usual one, one for people, and those whose values a worker looks up."""
RULE: dict[str, Any] = {
    "service": "erp",
    "event": ["order.*"],
    "enabled": False,
    "description": "orders",
    "condition": "payload.total > 1",
    "on_error": "skip",
    "template": {"a": "{{ key }}"},
    "text": "{{ key }}",
    "content_type": "text/csv",
    "method": "PUT",
    "path": "/orders",
    "headers": {"x-a": "b"},
}
SCHEDULE: dict[str, Any] = {
    "event": "report.other",
    "cron": "0 2 * * *",
    "every": "5m",
    "timezone": "Europe/Berlin",
    "payload": {"kind": "sales"},
    "key": "sales",
    "tenant": "acme",
    "priority": 7,
    "missed": "skip",
    "overlap": "skip",
    "description": "for the board",
}
NIGHTLY = {"event": "report.due", "cron": "0 1 * * *"}


def test_each_key_of_a_service_is_known_here() -> None:
    assert {*_OWN, *_TERMS, *KINDS["http"].keys} == set(SERVICE)


def test_each_key_of_a_rule_is_known_here() -> None:
    assert set(RULE_KEYS) == set(RULE)


def test_each_key_of_a_schedule_is_known_here() -> None:
    assert set(KEYS_OF_SCHEDULES) == set(SCHEDULE)


@pytest.mark.parametrize("key", [one for one in SCHEDULE if one != "description"])
def test_a_key_of_a_schedule_is_heeded(key: str) -> None:
    plain = {"event": "report.due"} if key == "every" else NIGHTLY
    before = read_schedule("nightly", NIGHTLY)

    after = read_schedule("nightly", {**plain, key: SCHEDULE[key]})

    assert before != after


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"cron": "0 2 * * *"}, "event is missing"),
        ({"event": "a"}, "needs a cron expression or every="),
        ({"event": "a", "every": "1ms"}, "at most once a second"),
        ({"event": "a", "every": True}, "every is True"),
        ({"event": "a", "cron": "61 * * * *"}, "61"),
        ({"event": 5, "cron": "0 2 * * *"}, "event is 5; it is text."),
        ({**NIGHTLY, "priority": "high"}, "priority is 'high'"),
        ({**NIGHTLY, "missed": "twice"}, "missed is 'twice'"),
        ({**NIGHTLY, "timezone": "Europe/Berlim"}, "timezone is 'Europe/Berlim'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_its_name(
    document: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_schedule("nightly", document)

    assert "The schedule 'nightly'" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("key", [one for one in SERVICE if one not in UNHEEDED])
def test_a_key_of_a_service_is_heeded(key: str) -> None:
    plain, said = read_service("crm", URL), read_service("crm", {**URL, key: SERVICE[key]})

    assert (plain.known, plain.terms, plain.is_enabled, _way(plain.way)) != (
        *(said.known, said.terms, said.is_enabled),
        _way(said.way),
    )


def _way(way: Any) -> object:  # noqa: ANN401 - as its kind has it
    tls = way.tls is not None
    return {name: getattr(way, name) for name in way.__struct_fields__ if name != "tls"}, tls


@pytest.mark.parametrize("key", [one for one in RULE if one != "description"])
def test_a_key_of_a_rule_is_heeded(key: str) -> None:
    plain = {"service": "crm", "event": "*"}

    before, after = read_rule("orders", plain), read_rule("orders", {**plain, key: RULE[key]})

    assert [str(getattr(before, one)) for one in before.__struct_fields__] != [
        str(getattr(after, one)) for one in after.__struct_fields__
    ]


async def test_what_was_applied_with_any_key_is_no_change_any_more() -> None:
    services = {f"s-{key}": {**URL, key: value} for key, value in SERVICE.items()}
    rules = {
        f"r-{key}": {"event": "order.*", key: value, "service": "s-url"}
        for key, value in RULE.items()
    }
    schedules = {
        f"t-{key}": {**({"event": "a"} if key == "every" else NIGHTLY), key: value}
        for key, value in SCHEDULE.items()
    }
    wanted = GatewayDocument(services=services, rules=rules, schedules=schedules)
    async with Redrive("memory://") as app:
        applied = await app.operations.apply_gateway(wanted, by="ada")

        assert len(applied.steps) == len(services) + len(rules) + len(schedules)
        assert (await app.operations.plan_gateway(wanted)).steps == ()
        assert await app.operations.export_gateway() == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_a_slip_in_a_key_of_a_service_is_refused_with_the_right_one(kind: str) -> None:
    for key in (*_OWN, *_TERMS, *KINDS[kind].keys):
        with pytest.raises(ConfigurationError) as refused:
            read_service("crm", {"kind": kind, f"{key}_": 1})

        assert f"key of a service '{key}_'; did you mean '{key}'?" in str(refused.value)


def test_a_slip_in_a_key_of_a_rule_is_refused_with_the_right_one() -> None:
    for key in RULE_KEYS:
        with pytest.raises(ConfigurationError) as refused:
            read_rule("orders", {"service": "crm", "event": "*", f"{key}_": 1})

        assert f"did you mean '{key}'?" in str(refused.value)


def test_a_slip_in_a_key_of_a_schedule_is_refused_with_the_right_one() -> None:
    for key in KEYS_OF_SCHEDULES:
        with pytest.raises(ConfigurationError) as refused:
            read_schedule("nightly", {**NIGHTLY, f"{key}_": 1})

        assert f"did you mean '{key}'?" in str(refused.value)


@pytest.mark.parametrize("key", [one for one in _READERS if one != "retry_overrides"])
def test_a_slip_within_a_table_is_refused_with_the_right_one(key: str) -> None:
    table = SERVICE[key]
    inner = next(iter(table))

    with pytest.raises(ConfigurationError) as refused:
        read_service("crm", {**URL, key: {f"{inner}_": table[inner]}})

    assert f"did you mean '{inner}'?" in str(refused.value)
