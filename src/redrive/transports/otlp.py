"""OpenTelemetry logs by OTLP over HTTP: each event is a log record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Unpack

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.outcome import Nature
from redrive.policies.classify import Verdict
from redrive.policies.terms import Terms
from redrive.transport import Answer, Transport
from redrive.transports.envelope import encode_event
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.format import PARTIAL, request_plan
from redrive.transports.http.options import RequestOptions
from redrive.transports.http.request import Request
from redrive.transports.options import need, read_count
from redrive.transports.records import write_request

__all__ = ["OtlpBlueprint", "OtlpOptions", "otlp"]

_PATH = "/v1/logs"
_RESOURCE = {"service.name": "redrive"}


class OtlpOptions(RequestOptions, total=False):
    """What `otlp` takes beside the address; see there."""

    resource: Mapping[str, str]
    """What the records come from, such as `{"service.name": "shop"}`."""
    batch: int
    """How many events one request carries at most."""


class OtlpBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked receiver of OTLP, from which each worker makes a transport of its own."""

    plan: HttpBlueprint
    resource: dict[str, str]
    batch: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:
        """Return a transport for one worker; it connects when it first sends."""
        from redrive.transports.http.transport import HttpTransport  # noqa: PLC0415 - aiohttp

        written = _OtlpFormat(self)
        return HttpTransport(self.plan, terms=terms, clock=clock, written=written, batch=self.batch)

    def __repr__(self) -> str:
        return f"otlp({self.plan.host!r}, …)"


def otlp(url: str, **options: Unpack[OtlpOptions]) -> OtlpBlueprint:
    """Declare a receiver of OpenTelemetry logs, for `app.destination(..., transport=otlp(...))`.

    - the address is that of the receiver, such as a collector's; `/v1/logs` is added to it
    - `resource`: what the records come from, `{"service.name": "redrive"}` by default
    - `batch`: how many events one request carries, 100 by default
    - `headers`, `auth`, `allow_networks` and the like: as for `http`

    >>> otlp("https://collector.example.com:4318")
    otlp('collector.example.com:4318', …)
    """
    refuse_unknown(options, OtlpOptions.__annotations__, what="otlp option")
    need("OTLP destinations", extra="otlp", modules=("aiohttp", "opentelemetry.proto"))
    resource = options.get("resource", _RESOURCE)
    if not isinstance(resource, Mapping) or not all(
        isinstance(one, str) and one for pair in resource.items() for one in pair
    ):
        raise ConfigurationError(
            f'resource is {resource!r}; it maps names to texts, such as {{"service.name": "shop"}}.'
        )
    plan = request_plan(url, options, path=_PATH)
    return OtlpBlueprint(
        plan=msgspec.structs.replace(
            plan, headers={**plan.headers, "content-type": "application/x-protobuf"}
        ),
        resource=dict(resource),
        batch=read_count("batch", options.get("batch", 100)),
    )


class _OtlpFormat:
    """Writes log records, and reads which of them were taken."""

    def __init__(self, way: OtlpBlueprint) -> None:
        self._way = way
        self._version = version("redrive")  # it is read from a file

    async def compose(self, deliveries: Sequence[Leased], *, now: datetime) -> Request:  # noqa: ARG002 - the records have times of their own
        body = write_request(deliveries, self._way.resource, version=self._version)

        def shown() -> bytes:
            return b"\n".join(encode_event(one.event, "event") for one in deliveries)

        plan = self._way.plan
        return Request(plan.headers, body, plan.method, plan.url, shown)

    def judge(self, answer: Answer, usual: Verdict | None) -> Verdict | None:
        """Return the usual, unless a success takes less than all."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - the extra
        from opentelemetry.proto.collector.logs.v1 import (  # noqa: PLC0415 - the extra
            logs_service_pb2 as service,
        )

        if usual is not None or not answer.body:
            return usual
        try:
            read = service.ExportLogsServiceResponse.FromString(answer.body)
        except DecodeError:
            return None  # a receiver may say what it likes, as long as it takes them
        if read.partial_success.rejected_log_records:
            return Verdict(nature=Nature.TERMINAL, rule=PARTIAL)
        return None
