"""Routes: what is asked for, by whom, with what, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, Unpack

import msgspec

from redrive.clock import Clock
from redrive.model.event import EventAttributes, NewEvent, Receipt
from redrive.operations import Operations
from redrive.web.caller import Caller
from redrive.web.requests import Nothing

__all__ = ["App", "Call", "Endpoint", "Route"]

G = TypeVar("G")


class App(Protocol):
    """What the server stands on: publishing, and everything a person may do."""

    @property
    def operations(self) -> Operations:
        """Everything a person may do."""

    async def publish(
        self, event_type: str, payload: object = None, **attributes: Unpack[EventAttributes]
    ) -> Receipt:
        """Publish an event; returns when it and its deliveries are durable."""

    async def publish_many(self, events: Sequence[NewEvent]) -> Sequence[Receipt]:
        """Publish all of the events, or none."""


class Call:
    """One request that was let in: who asks, what its path names, and what else its headers say."""

    def __init__(
        self,
        *,
        app: App,
        caller: Caller,
        operation: str,
        path: dict[str, Any],
        clock: Clock,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> None:
        self.app = app
        self.caller = caller
        self.operation = operation
        self.path = path
        self.idempotency_key = idempotency_key
        self.if_match = if_match
        self.headers: dict[str, str] = {}
        self._clock = clock

    @property
    def operations(self) -> Operations:
        """Everything that can be done, within what of the store is theirs."""
        return self.caller.operations(self.app.operations)

    @property
    def by(self) -> str:
        """Who acts, for the audit log."""
        return self.caller.by

    @property
    def id(self) -> int:
        """The number that the path names."""
        return int(self.path["id"])

    @property
    def name(self) -> str:
        """The name that the path names."""
        return str(self.path["name"])

    @property
    def now(self) -> datetime:
        """The present instant."""
        return self._clock.now()

    def narrow(
        self, *, tenant: str | None = None, destination: str | None = None
    ) -> dict[str, str | None]:
        """Return the tenant and the destination that a question is about, if it may be asked."""
        tenant, destination = self.caller.narrow(
            self.operation, tenant=tenant, destination=destination
        )
        return {"tenant": tenant, "destination": destination}


Endpoint = Callable[[Call, Any], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table that routing, decoding, roles and the OpenAPI document come from.

    `operation` is the name in `Operations`, or `publish` and `publish_many`; it says which role is
    needed, and what a caller may be limited to. `given` is read from the query of a GET, and from
    the body of a POST.
    """

    method: str
    path: str
    operation: str
    endpoint: Endpoint
    result: Any
    given: type[msgspec.Struct] = Nothing
    example: Any = None

    @property
    def is_unsafe(self) -> bool:
        """Whether it may change something, and so has a body."""
        return self.method != "GET"

    @property
    def is_act(self) -> bool:
        """Whether somebody steps in with it, so that pages show what came of it."""
        return self.is_unsafe and self.operation not in ("publish", "publish_many")

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return (self.endpoint.__doc__ or "").partition("\n")[0]
