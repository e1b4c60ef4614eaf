"""Formats: how a service that speaks HTTP wants events, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted
from redrive.policies.classify import Verdict
from redrive.transport import Answer
from redrive.transports.http.declaration import HttpBlueprint, http
from redrive.transports.http.options import RequestOptions
from redrive.transports.http.request import Request

__all__ = ["PARTIAL", "Format", "message_id", "request_plan", "with_path"]

F = TypeVar("F")

PARTIAL = "partial success"
"""The rule of an answer that takes some of a batch and does not say which."""


class Format(Protocol):
    """The language of one service, for one worker."""

    async def compose(self, deliveries: Sequence[Leased], *, now: datetime) -> Request | Faulted:
        """Return the request for these, or why there can be none."""

    def judge(self, answer: Answer, usual: Verdict | None) -> Verdict | None:
        """Return what an answer means, which is mostly the usual; `None` for a success."""


def request_plan(url: str, options: Mapping[str, Any], *, path: str = "") -> HttpBlueprint:
    """Return a plan of requests, of those options that are about requests."""
    request = {name: options[name] for name in RequestOptions.__annotations__ if name in options}
    plan = http(url, forward_headers=(), **request)
    return http(with_path(url, path), forward_headers=(), **request) if path else plan


def with_path(url: str, path: str) -> str:
    """Return an address with the path of a service at its end, unless it is there."""
    parts = urlsplit(url)
    if parts.path.rstrip("/").endswith(path):
        return url
    return parts._replace(path=parts.path.rstrip("/") + path).geturl()


def message_id(one: Leased) -> str:
    """Return what a delivery is called, the same at every try: what a rule gives is its own."""
    rule = one.rule.partition("@")[0]
    return f"{one.event.id}-{rule}" if rule else one.event.id
