"""Sentry as a place for events: each is an event of Sentry, and those of one type an issue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any, Unpack

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.event import Severity
from redrive.policies.classify import Verdict
from redrive.policies.http import read_retry_after
from redrive.policies.terms import Terms
from redrive.transport import Answer, Transport
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.format import message_id, request_plan
from redrive.transports.http.options import RequestOptions, read_url
from redrive.transports.http.request import Request
from redrive.transports.options import need, read_name

__all__ = ["SentryBlueprint", "SentryOptions", "sentry"]

_LEVELS = {Severity.CRITICAL: "fatal"}
_PROJECT = re.compile(r"(.*/)?(\d+)/?")
_KEY = re.compile(r"[A-Za-z0-9_]+")
_LONGEST_MESSAGE = 8_192
_LONGEST_TAG = 200


class SentryOptions(RequestOptions, total=False):
    """What `sentry` takes beside the address; see there."""

    key: str
    """The public key of the project: what stands before the @ in its DSN."""
    environment: str
    """The environment that events come from, such as `"production"`."""
    release: str
    """The release that events come from."""


class SentryBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked project of Sentry, from which each worker makes a transport of its own."""

    plan: HttpBlueprint
    environment: str
    release: str

    def build(self, *, terms: Terms, clock: Clock) -> Transport:
        """Return a transport for one worker; it connects when it first sends."""
        from redrive.transports.http.transport import HttpTransport  # noqa: PLC0415 - aiohttp

        return HttpTransport(self.plan, terms=terms, clock=clock, written=_SentryFormat(self))

    def __repr__(self) -> str:
        return f"sentry({self.plan.host!r}, …)"


def sentry(url: str, **options: Unpack[SentryOptions]) -> SentryBlueprint:
    """Declare a project of Sentry, for `app.destination(..., transport=sentry(...))`.

    - the address and `key` are the parts of its DSN, which is `https://KEY@HOST/PROJECT`
    - `environment`, `release`: what Sentry calls so
    - `headers`, `allow_networks` and the like: as for `http`

    >>> sentry("https://o1.ingest.sentry.io/42", key="f1e2d3c4")
    sentry('o1.ingest.sentry.io', …)
    """
    refuse_unknown(options, SentryOptions.__annotations__, what="sentry option")
    need("Sentry destinations", extra="sentry", modules=("aiohttp",))
    parts = read_url(url)
    project = _PROJECT.fullmatch(parts.path)
    key = options.get("key")
    if project is None:
        raise ConfigurationError(
            f"The address of {parts.hostname!r} does not end with the number of a project; write "
            'the DSN without its key, such as "https://o1.ingest.sentry.io/42".'
        )
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ConfigurationError(
            "The key of a project of Sentry is missing, or no key; it is what stands between // "
            "and @ in its DSN."
        )
    client = f"redrive/{version('redrive')}"
    said = f"Sentry sentry_version=7, sentry_key={key}, sentry_client={client}"
    address = parts._replace(path=f"{project[1] or '/'}api/{project[2]}/envelope/").geturl()
    plan = request_plan(address, options)
    own = {"content-type": "application/x-sentry-envelope", "x-sentry-auth": said}
    return SentryBlueprint(
        plan=msgspec.structs.replace(
            plan, headers={**plan.headers, **own}, secrets=(said, *plan.secrets, key)
        ),
        environment=_told("environment", options.get("environment", "")),
        release=_told("release", options.get("release", "")),
    )


def _told(name: str, value: object) -> str:
    return "" if value == "" else read_name(name, value, example="production")


class _SentryFormat:
    """Writes envelopes; one carries one event."""

    def __init__(self, way: SentryBlueprint) -> None:
        self._way = way

    async def compose(self, deliveries: Sequence[Leased], *, now: datetime) -> Request:
        event = _event(deliveries[0], self._way)
        body = msgspec.json.encode(event)
        head = {"event_id": event["event_id"], "sent_at": now.isoformat()}
        item = {"type": "event", "content_type": "application/json", "length": len(body)}
        lines = (msgspec.json.encode(head), msgspec.json.encode(item), body, b"")
        plan = self._way.plan
        return Request(plan.headers, b"\n".join(lines), plan.method, plan.url)

    def judge(self, answer: Answer, usual: Verdict | None) -> Verdict | None:
        """Return the usual, with the wait that Sentry asks for in its own header."""
        if usual is None or usual.retry_after is not None:
            return usual
        limits = next(
            (v for name, v in answer.headers if name.lower() == "x-sentry-rate-limits"), ""
        )
        seconds = limits.partition(":")[0].strip()
        if not seconds.isdigit():
            return usual
        wait = read_retry_after(seconds, now=datetime.min)  # noqa: DTZ901 - seconds need no present
        return msgspec.structs.replace(usual, retry_after=wait)


def _event(one: Leased, way: SentryBlueprint) -> dict[str, Any]:
    event = one.event
    payload = msgspec.json.decode(event.payload)
    message = payload.get("message") if isinstance(payload, dict) else None
    tags = {"event": event.type, "tenant": event.tenant, "source": event.source}
    told = {"environment": way.environment, "release": way.release}
    return {
        "event_id": _sentry_id(message_id(one)),
        "timestamp": event.occurred_at.isoformat(),
        "platform": "other",
        "level": _LEVELS.get(event.severity, event.severity.value),
        "logger": "redrive",
        "logentry": {
            "formatted": (message if isinstance(message, str) else event.type)[:_LONGEST_MESSAGE]
        },
        "fingerprint": [event.type],
        "tags": {name: value[:_LONGEST_TAG] for name, value in tags.items() if value},
        "extra": {"id": event.id, "key": event.key, "payload": payload},
        **{name: value for name, value in told.items() if value},
    }


def _sentry_id(name: str) -> str:
    """Return 32 hexadecimal digits: those of the event's id where it has them."""
    digits = name.replace("-", "")
    is_id = re.fullmatch(r"[0-9a-f]{32}", digits) is not None
    return digits if is_id else hashlib.sha256(name.encode()).hexdigest()[:32]
