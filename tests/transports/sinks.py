"""What Loki, a collector of OpenTelemetry and Sentry read out of a request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from sentry_sdk.envelope import Envelope

from redrive.transport import Way
from redrive.transports.http import Bearer
from redrive.transports.loki import loki
from redrive.transports.otlp import otlp
from redrive.transports.sentry import sentry
from tests.conformance.transports import Site
from tests.http.receiver import Received, Receiver

__all__ = ["LokiSite", "OtlpSite", "SentrySite", "read_loki", "read_otlp", "read_sentry"]

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105 - of the tests
KEY = "c0ffee00c0ffee00c0ffee00c0ffee00"


class Line(NamedTuple):
    """A line of a log in Loki."""

    labels: dict[str, str]
    nanoseconds: str
    text: str
    metadata: dict[str, str]


def read_loki(request: Received) -> list[Line]:
    """Return the lines of a push, as its documentation has them."""
    assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
    return [
        Line(stream["stream"], at, text, dict(*more))
        for stream in json.loads(request.body)["streams"]
        for at, text, *more in stream["values"]
    ]


def read_otlp(request: Received) -> list[LogRecord]:
    """Return the records of an export."""
    assert request.headers["content-type"] == "application/x-protobuf"
    read = ExportLogsServiceRequest.FromString(request.body)
    return [
        record
        for resource in read.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def read_sentry(request: Received) -> dict[str, Any]:
    """Return the event of an envelope."""
    assert request.headers["content-type"] == "application/x-sentry-envelope"
    envelope = Envelope.deserialize(request.body)
    [item] = envelope.items
    event = item.get_event() or envelope.get_event()
    assert event is not None
    assert envelope.headers["event_id"] == event["event_id"]
    return dict(event)


class _Sink(Site):
    """Takes what it gets, but for one."""

    secrets = (TOKEN,)
    bad = b'{"order":"refused-one"}'

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.port = int(receiver.url.rpartition(":")[2])
        receiver.refuses(b"refused-one", status=400)

    @property
    def taken(self) -> list[Received]:
        return [one for one in self.receiver.requests if b"refused-one" not in one.body]


class LokiSite(_Sink):
    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return loki(f"http://{host}:{port}", auth=Bearer(TOKEN), allow_networks=allow_networks)

    async def arrived(self) -> list[str]:
        return [json.loads(line.text)["id"] for one in self.taken for line in read_loki(one)]


class OtlpSite(_Sink):
    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return otlp(f"http://{host}:{port}", auth=Bearer(TOKEN), allow_networks=allow_networks)

    async def arrived(self) -> list[str]:
        return [
            next(a.value.string_value for a in one.attributes if a.key == "redrive.event.id")
            for request in self.taken
            for one in read_otlp(request)
        ]


class SentrySite(_Sink):
    secrets = (KEY,)

    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        return sentry(f"http://{host}:{port}/42", key=KEY, allow_networks=allow_networks)

    async def arrived(self) -> list[str]:
        return [read_sentry(one)["extra"]["id"] for one in self.taken]
