"""Loki, OTLP and Sentry: what events look like there, and what their answers mean."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from redrive import Redrive, Retry
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.model.delivery import Leased
from redrive.model.event import Severity
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Blueprint, Closing, Way
from redrive.transports.http.options import RequestOptions
from redrive.transports.loki import LokiOptions, loki
from redrive.transports.otlp import OtlpOptions, otlp
from redrive.transports.sentry import SentryOptions, sentry
from tests.conformance.transports import a_delivery
from tests.docs.pages import ROOT, table_of
from tests.http.receiver import Receiver, answer, bytes_answer, receiving
from tests.transports.sinks import (
    KEY,
    LokiSite,
    OtlpSite,
    SentrySite,
    read_loki,
    read_otlp,
    read_sentry,
)

HERE = ("127.0.0.1",)
AT = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
NANOSECONDS = 1_777_636_800_123_456_000
TWICE = Retry(max_attempts=2, base="0s", cap="0s", jitter="none")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SITES = [LokiSite, OtlpSite, SentrySite]
Declare = Callable[..., Way]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def told(number: int = 1, payload: bytes = b'{"order":42}', **attributes: Any) -> Leased:  # noqa: ANN401 - of an event
    one = a_delivery(number, payload)
    event = msgspec.structs.replace(one.event, occurred_at=AT, **attributes)
    return msgspec.structs.replace(one, event=event)


async def send(way: Way, *deliveries: Leased) -> list[Outcome]:
    assert isinstance(way, Blueprint)
    transport = way.build(terms=Terms(), clock=SystemClock())
    try:
        return list(await transport.send(deliveries or (told(),)))
    finally:
        assert isinstance(transport, Closing)
        await transport.close()


async def fail(way: Way, *deliveries: Leased) -> Faulted:
    [outcome] = await send(way, *deliveries)
    assert isinstance(outcome, Faulted)
    return outcome


async def test_a_line_of_loki_has_the_time_and_all_of_the_event(receiver: Receiver) -> None:
    way = loki(receiver.url, labels={"app": "shop"}, allow_networks=HERE)

    assert await send(way, told(1, key="k"), told(2)) == [Succeeded(), Succeeded()]

    [request] = receiver.requests
    first, second = read_loki(request)
    assert request.path == "/loki/api/v1/push"
    assert (first.labels, first.nanoseconds) == ({"app": "shop"}, str(NANOSECONDS))
    assert json.loads(first.text) == {
        "id": told().event.id,
        "type": "order.paid",
        "occurred_at": "2026-05-01T12:00:00.123456Z",
        "payload": {"order": 42},
        "key": "k",
    }
    assert json.loads(second.text)["id"] == told(2).event.id
    assert first.metadata == {}


async def test_a_line_of_loki_may_be_the_payload_with_metadata(receiver: Receiver) -> None:
    way = loki(receiver.url, body="payload", metadata=True, allow_networks=HERE)

    await send(way, told(tenant="acme", severity=Severity.ERROR))

    [line] = read_loki(receiver.requests[0])
    assert (line.labels, line.text) == ({"job": "redrive"}, '{"order":42}')
    assert line.metadata == {
        "id": told().event.id,
        "type": "order.paid",
        "severity": "error",
        "tenant": "acme",
    }


async def test_a_record_of_otlp_has_what_the_event_has(receiver: Receiver) -> None:
    way = otlp(receiver.url, resource={"service.name": "shop"}, allow_networks=HERE)
    payload: dict[str, Any] = {
        "order": 42,
        "total": 2.5,
        "paid": True,
        "by": None,
        "lines": ["a", 7],
        "big": 2**64 - 1,
        "none": [],
        "empty": {},
    }
    one = told(
        1,
        msgspec.json.encode(payload),
        key="k",
        tenant="acme",
        severity=Severity.CRITICAL,
        headers={"traceparent": TRACE},
    )

    await send(way, one)

    [request] = receiver.requests
    [record] = read_otlp(request)
    assert request.path == "/v1/logs"
    assert (record.time_unix_nano, record.event_name) == (NANOSECONDS, "order.paid")
    assert (record.severity_number, record.severity_text) == (21, "CRITICAL")
    assert (record.trace_id.hex(), record.span_id.hex()) == tuple(TRACE.split("-")[1:3])
    assert {a.key: a.value.string_value for a in record.attributes} == {
        "redrive.event.id": one.event.id,
        "redrive.event.key": "k",
        "redrive.event.tenant": "acme",
    }
    said = {pair.key: pair.value for pair in record.body.kvlist_value.values}
    assert said["order"].int_value == 42
    assert said["total"].double_value == 2.5
    assert said["paid"].bool_value is True
    assert said["by"].WhichOneof("value") is None
    assert [v.string_value or v.int_value for v in said["lines"].array_value.values] == ["a", 7]
    assert said["big"].string_value == str(2**64 - 1)
    assert said["none"].WhichOneof("value") == "array_value"
    assert said["empty"].WhichOneof("value") == "kvlist_value"
    whole = ExportLogsServiceRequest.FromString(request.body).resource_logs[0]
    [attribute] = whole.resource.attributes
    assert (attribute.key, attribute.value.string_value) == ("service.name", "shop")
    assert whole.scope_logs[0].scope.name == "redrive"


async def test_an_event_of_sentry_is_told_by_its_type(receiver: Receiver) -> None:
    way = sentry(
        f"{receiver.url}/below/42",
        key=KEY,
        environment="production",
        release="1.2",
        allow_networks=HERE,
    )
    one = told(tenant="acme", source="shop", severity=Severity.CRITICAL)

    await send(way, one)

    [request] = receiver.requests
    assert request.path == "/below/api/42/envelope/"
    assert f"sentry_key={KEY}" in request.headers["x-sentry-auth"]
    assert read_sentry(request) == {
        "event_id": one.event.id.replace("-", ""),
        "timestamp": "2026-05-01T12:00:00.123456+00:00",
        "platform": "other",
        "level": "fatal",
        "logger": "redrive",
        "logentry": {"formatted": "order.paid"},
        "fingerprint": ["order.paid"],
        "tags": {"event": "order.paid", "tenant": "acme", "source": "shop"},
        "extra": {"id": one.event.id, "key": None, "payload": {"order": 42}},
        "environment": "production",
        "release": "1.2",
    }


async def test_a_message_in_the_payload_is_what_sentry_shows(receiver: Receiver) -> None:
    way = sentry(f"{receiver.url}/42", key=KEY, allow_networks=HERE)
    by_rule = msgspec.structs.replace(told(payload=b'{"message":"It is late"}'), rule="late@3")

    await send(way, by_rule)
    await send(way, msgspec.structs.replace(by_rule, rule="late@4"))

    first, again = (read_sentry(one) for one in receiver.requests)
    assert first["logentry"] == {"formatted": "It is late"}
    assert len(first["event_id"]) == 32
    assert first["event_id"] == again["event_id"]
    assert first["event_id"] != told().event.id.replace("-", "")


async def test_sentry_says_how_long_to_wait(receiver: Receiver) -> None:
    way = sentry(f"{receiver.url}/42", key=KEY, allow_networks=HERE)
    receiver.answers(
        answer(429, x_sentry_rate_limits="60:error:organization, 3600:transaction:key"),
        answer(429, retry_after="5", x_sentry_rate_limits="60::key"),
        answer(429, x_sentry_rate_limits="soon"),
    )

    waits = [(await fail(way)).retry_after for _ in range(3)]

    assert waits == [timedelta(seconds=60), timedelta(seconds=5), None]


async def test_what_a_collector_takes_a_part_of_is_asked_for_one_by_one(
    receiver: Receiver,
) -> None:
    partial = ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(rejected_log_records=1, error_message="too old")
    ).SerializeToString()
    whole = ExportLogsServiceResponse().SerializeToString()
    receiver.answers(*(bytes_answer(200, one) for one in (partial, whole, partial)))

    first, second = await send(otlp(receiver.url, allow_networks=HERE), told(1), told(2))

    faults = [one for one in (first, second) if isinstance(one, Faulted)]
    assert len(faults) == 1
    assert faults[0].nature is Nature.TERMINAL
    assert faults[0].fault.rule == "partial success"
    assert "too old" in faults[0].fault.message
    assert faults[0].exchange is not None
    assert '"payload":{"order":42}' in faults[0].exchange.sent


async def test_a_warning_of_a_collector_and_an_answer_in_its_own_words_are_successes(
    receiver: Receiver,
) -> None:
    warned = ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(error_message="this is an old version")
    ).SerializeToString()
    receiver.answers(bytes_answer(200, warned), answer(200, "thank you"))
    way = otlp(receiver.url, allow_networks=HERE)

    assert await send(way) + await send(way) == [Succeeded(), Succeeded()]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    ("status", "nature"),
    [
        (400, Nature.TERMINAL),
        (401, Nature.TERMINAL),
        (413, Nature.TERMINAL),
        (429, Nature.THROTTLED),
        (500, Nature.TRANSIENT),
        (503, Nature.TRANSIENT),
    ],
)
async def test_answers_are_classified_by_their_status(
    site: type[LokiSite], status: int, nature: Nature, receiver: Receiver
) -> None:
    there = site(receiver)
    receiver.always(answer(status, f"no, {there.secrets[0]}"))

    outcome = await fail(there.way("127.0.0.1", there.port, HERE))

    assert (outcome.nature, outcome.fault.rule) == (nature, f"status {status}")
    assert there.secrets[0] not in msgspec.json.encode(outcome).decode()


@pytest.mark.parametrize("site", SITES)
async def test_nothing_is_lost_through_an_outage_a_dead_letter_and_a_replay(
    site: type[LokiSite], receiver: Receiver
) -> None:
    there = site(receiver)
    app = Redrive("memory://")
    way = there.way("127.0.0.1", there.port, HERE)
    app.destination("sink", "order.*", transport=way, retry=TWICE, breaker=None)

    async with app:
        before = [await app.publish("order.paid", {"order": number}) for number in range(5)]
        flowing = await app.drain()
        receiver.requests.clear()
        receiver.always(answer(503))
        during = [await app.publish("order.paid", {"order": number}) for number in range(5, 8)]
        down = await app.drain()
        tried = Counter(await there.arrived())
        receiver.requests.clear()
        receiver.always(answer(204))
        letters = (await app.operations.dead_letters()).deliveries
        await app.operations.replay([one.id for one in letters], by="ann", why="it is back")
        back = await app.drain()

    assert (flowing.delivered, down.failed, back.delivered) == (len(before), 3, 3)
    assert {one.fault.rule for one in letters if one.fault} == {"status 503"}
    assert set(tried.values()) == {2}
    assert Counter(await there.arrived()) == Counter(one.event_id for one in during)


@pytest.mark.parametrize(
    ("declare", "url", "options", "said"),
    [
        (loki, "https://h", {"label": {}}, "did you mean 'labels'"),
        (loki, "https://h", {"labels": {}}, "one at least"),
        (loki, "https://h", {"labels": {"a-b": "c"}}, "none of Loki's"),
        (loki, "https://h", {"labels": {"a": ""}}, "is a text"),
        (loki, "https://h", {"metadata": 1}, "True or False"),
        (loki, "https://h", {"batch": 0}, "from 1"),
        (loki, "https://h", {"body": "all"}, "one of payload, event"),
        (loki, "ftp://h", {}, "http or https"),
        (loki, "https://127.0.0.1", {}, "loopback"),
        (otlp, "https://h", {"resource": {"a": 1}}, "names to texts"),
        (otlp, "https://h", {"batches": 1}, "did you mean 'batch'"),
        (otlp, "https://localhost", {}, "loopback"),
        (sentry, "https://h/shop", {"key": "f1"}, "number of a project"),
        (sentry, "https://h/42", {}, "key of a project"),
        (sentry, "https://f1@h/42", {}, "holds a user"),
        (sentry, "https://h/42", {"key": "f1", "release": 7}, "release is 7"),
        (sentry, "https://10.0.0.1/42", {"key": "f1"}, "private"),
    ],
)
def test_a_wrong_declaration_is_refused_with_advice(
    declare: Declare, url: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        declare(url, **options)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://h", "https://h/loki/api/v1/push"),
        ("https://h/", "https://h/loki/api/v1/push"),
        ("https://h/below?a=b", "https://h/below/loki/api/v1/push?a=b"),
        ("https://h/loki/api/v1/push", "https://h/loki/api/v1/push"),
    ],
)
def test_an_address_gets_the_path_of_its_service(url: str, path: str) -> None:
    assert loki(url).plan.url == path


@pytest.mark.parametrize(
    ("page", "options"), [("loki", LokiOptions), ("otlp", OtlpOptions), ("sentry", SentryOptions)]
)
def test_every_option_is_listed_in_its_guide(page: str, options: type) -> None:
    listed = table_of(ROOT / "docs" / "guides" / f"{page}.md", "Options")

    own = set(options.__annotations__) - set(RequestOptions.__annotations__)
    assert sorted(listed) == sorted(own)


@pytest.mark.parametrize(("declare", "options"), [(loki, {}), (otlp, {}), (sentry, {"key": "f1"})])
def test_without_its_library_a_way_says_what_to_install(
    declare: Declare, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("redrive.transports.options.find_spec", find)

    with pytest.raises(ConfigurationError, match=rf"redrive\[{declare.__name__}\]"):
        declare("https://example.com/42", **options)
