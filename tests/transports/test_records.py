"""Records written by hand are what the official library of the protocol reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from redrive.model.event import Severity
from redrive.transports.records import write_request
from tests.conformance.transports import a_delivery

_VALUES: list[Any] = [
    *("", "a", "é \N{SNOWMAN} \U0001f600", "x" * 127, "x" * 128, "x" * 70_000),
    *(0, 1, -1, 127, 128, 2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**30),
    *(True, False, None, 0.5, -1e300, [], {}, [[], {}, None], {"": {"a": [1, {"b": None}]}}),
    {"order": 42, "lines": [{"sku": "a", "price": 19.9, "gift": True}] * 50},
]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: repr(value)[:20])
def test_every_json_value_is_read_as_it_was(value: object) -> None:
    one = a_delivery(7, msgspec.json.encode(value))

    read = ExportLogsServiceRequest.FromString(write_request([one], {}, version="1"))

    [record] = read.resource_logs[0].scope_logs[0].log_records
    assert _plain(record.body) == _expected(value)


@pytest.mark.parametrize("severity", list(Severity))
def test_all_that_is_known_of_an_event_is_read(severity: Severity) -> None:
    one = a_delivery(7, b'{"order": 42}')
    event = msgspec.structs.replace(
        one.event,
        severity=severity,
        key="order-42",
        tenant="acme",
        source="shop",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"},
    )
    one = msgspec.structs.replace(one, event=event)

    read = ExportLogsServiceRequest.FromString(
        write_request([one, one], {"service.name": "shop"}, version="1.2")
    )

    told = MessageToDict(read, preserving_proto_field_name=True)
    [logs] = told["resource_logs"]
    [ours] = logs["scope_logs"]
    first, second = ours["log_records"]
    assert first == second
    assert logs["resource"]["attributes"] == [_attribute("service.name", "shop")]
    assert ours["scope"] == {"name": "redrive", "version": "1.2"}
    assert first["time_unix_nano"] == "1767323045678901000"
    assert first["severity_text"] == severity.value.upper()
    assert first["event_name"] == event.type
    assert first["flags"] == 1
    assert first["attributes"][1:] == [
        _attribute("redrive.event.key", "order-42"),
        _attribute("redrive.event.source", "shop"),
        _attribute("redrive.event.tenant", "acme"),
    ]
    record = read.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.trace_id.hex(), record.span_id.hex()) == ("ab" * 16, "cd" * 8)
    assert record.observed_time_unix_nano // 1_000 == round(event.published_at.timestamp() * 10**6)


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"string_value": value}}


def _plain(value: AnyValue) -> Any:  # noqa: ANN401 - any JSON
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return {one.key: _plain(one.value) for one in value.kvlist_value.values}
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def _expected(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Numbers that the protocol has no place for are texts; so the largest are."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value
