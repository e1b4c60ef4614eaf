"""Grafana Loki: each event is a line of a log, at the time when it happened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Unpack, get_args

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.policies.classify import Verdict
from redrive.policies.terms import Terms
from redrive.transport import Answer, Transport
from redrive.transports.envelope import Body, encode_line
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.format import message_id, request_plan
from redrive.transports.http.options import RequestOptions
from redrive.transports.http.request import Request
from redrive.transports.options import need, read_choice, read_count

__all__ = ["LokiBlueprint", "LokiOptions", "loki"]

_PATH = "/loki/api/v1/push"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LABELS = {"job": "redrive"}


class LokiOptions(RequestOptions, total=False):
    """What `loki` takes beside the address; see there."""

    labels: Mapping[str, str]
    """The labels of the stream that lines go to."""
    metadata: bool
    """Whether each line has its id, type and the like as structured metadata."""
    body: Body
    """What a line is: the whole event, or the payload alone."""
    batch: int
    """How many events one request carries at most."""


class LokiBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked Loki, from which each worker makes a transport of its own."""

    plan: HttpBlueprint
    labels: dict[str, str]
    metadata: bool
    body: Body
    batch: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:
        """Return a transport for one worker; it connects when it first sends."""
        from redrive.transports.http.transport import HttpTransport  # noqa: PLC0415 - aiohttp

        written = _LokiFormat(self)
        return HttpTransport(self.plan, terms=terms, clock=clock, written=written, batch=self.batch)

    def __repr__(self) -> str:
        return f"loki({self.plan.host!r}, …)"


def loki(url: str, **options: Unpack[LokiOptions]) -> LokiBlueprint:
    """Declare a Grafana Loki, for `app.destination(..., transport=loki(...))`.

    - the address is that of Loki; `/loki/api/v1/push` is added to it
    - `labels`: of the stream that lines go to, `{"job": "redrive"}` by default
    - `body`: `"event"` by default, or `"payload"`
    - `metadata`: also send id, type, key, tenant, source and severity as structured metadata
    - `batch`: how many events one request carries, 100 by default
    - `headers`, `auth`, `allow_networks` and the like: as for `http`

    >>> loki("https://logs.example.com", labels={"app": "shop"})
    loki('logs.example.com', …)
    """
    refuse_unknown(options, LokiOptions.__annotations__, what="loki option")
    need("Loki destinations", extra="loki", modules=("aiohttp",))
    metadata = options.get("metadata", False)
    if not isinstance(metadata, bool):
        raise ConfigurationError(f"metadata is {metadata!r}; it is True or False.")
    return LokiBlueprint(
        plan=request_plan(url, options, path=_PATH),
        labels=_read_labels(options.get("labels", _LABELS)),
        metadata=metadata,
        body=read_choice("body", options.get("body", "event"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
    )


def _read_labels(labels: object) -> dict[str, str]:
    if not isinstance(labels, Mapping) or not labels:
        raise ConfigurationError(
            f'labels is {labels!r}; it maps names to texts, such as {{"app": "shop"}}, and Loki '
            "needs one at least."
        )
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ConfigurationError(
                f"The label {name!r} is none of Loki's; use letters, digits and '_'."
            )
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"The label {name!r} is {value!r}; it is a text.")
    return dict(labels)


class _LokiFormat:
    """Writes what Loki's push API takes."""

    def __init__(self, way: LokiBlueprint) -> None:
        self._way = way

    async def compose(self, deliveries: Sequence[Leased], *, now: datetime) -> Request:  # noqa: ARG002 - the lines have times of their own
        stream = {"stream": self._way.labels, "values": [self._value(one) for one in deliveries]}
        plan = self._way.plan
        body = msgspec.json.encode({"streams": [stream]})
        return Request(plan.headers, body, plan.method, plan.url)

    def judge(self, answer: Answer, usual: Verdict | None) -> Verdict | None:  # noqa: ARG002 - as the port has it
        return usual

    def _value(self, one: Leased) -> tuple[object, ...]:
        event = one.event
        at = (event.occurred_at - _EPOCH) // timedelta(microseconds=1) * 1_000
        line = encode_line(event, self._way.body).decode().rstrip("\n")
        if not self._way.metadata:
            return str(at), line
        told = {
            "id": message_id(one),
            "type": event.type,
            "severity": event.severity.value,
            "key": event.key,
            "tenant": event.tenant,
            "source": event.source,
        }
        return str(at), line, {name: value for name, value in told.items() if value}
