"""Remote operations: what they all stand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

import msgspec

from redrive.client.sending import Sender
from redrive.errors import UsageError
from redrive.model.access import Grant, Scope
from redrive.model.delivery import Status
from redrive.model.duration import Duration, duration, spell_duration
from redrive.model.limits import Rate, spell_rate
from redrive.observer import Observers
from redrive.operations.context import MOST_PER_PAGE, OperationContext
from redrive.policies.payload import encode_payload
from redrive.store import Query, Store
from redrive.web.answers import Acted
from redrive.web.requests import Filter, Given

__all__ = [
    "RemoteContext",
    "encoded",
    "fields_of",
    "filter_of",
    "instant",
    "rate_text",
    "span_text",
    "stretches",
]

T = TypeVar("T")


class RemoteContext(OperationContext):
    """What remote operations stand on: a server that is asked."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(_refuse, Observers())
        self._sender = sender

    def _refuse_actor(self, by: str, caller: Grant | None = None) -> None:
        """Refuse to act in somebody's name: a server writes down whose token it was."""
        if by or caller is not None:
            raise UsageError(
                "A server knows who acts by the token, so nobody acts through it as "
                f"{by or caller!s:.100}; leave by= (or --by) out."
            )

    async def _do(self, operation: str, kind: type[T], given: Given, by: str, **path: object) -> T:
        """Have an act done, in the name of whose token it is."""
        self._refuse_actor(by)
        return await self._sender.ask(operation, kind, given, path=path)

    async def _act(self, operation: str, given: Given, by: str, **path: object) -> bool:
        """Have an act done that may change nothing; tells whether it did."""
        return (await self._do(operation, Acted, given, by, **path)).changed

    def within(self, scope: Scope) -> Self:
        """Refuse: which part of the store is theirs, a server knows by the token."""
        raise UsageError(
            f"A server knows by the token what somebody may see; give the client one for {scope}."
        )


async def _refuse() -> Store:
    """Refuse what has no route, whatever it is: all that has one never asks for a store."""
    raise UsageError(
        "No server does this for its callers; do it where the store is, with its URL: --store, or "
        "REDRIVE_STORE."
    )


def encoded(payload: object) -> msgspec.Raw:
    """Return a payload as it is sent."""
    return payload if isinstance(payload, msgspec.Raw) else msgspec.Raw(encode_payload(payload))


def filter_of(query: Query | None) -> dict[str, Any]:
    """Return what `Filter` holds of a query for dead letters."""
    chosen = query or Query()
    if chosen.status is not Status.FAILED:
        raise UsageError(
            f"The query asks for {chosen.status or 'all'} deliveries; this is about dead letters "
            "alone, so leave its status out."
        )
    return fields_of(chosen)


def fields_of(query: Query) -> dict[str, Any]:
    """Return what `Filter` holds of a query."""
    return {name: getattr(query, name) for name in Filter.__struct_fields__}


def instant(value: datetime | Duration | None) -> str | None:
    """Write an instant, or how long from now."""
    return value.isoformat() if isinstance(value, datetime) else span_text(value)


def span_text(value: Duration | None, *, name: str = "duration") -> str | None:
    """Write a duration, once it is one."""
    if value is None:
        return None
    read = duration(value, name=name)
    return value if isinstance(value, str) else spell_duration(read)


def rate_text(value: Rate | str | None) -> str | None:
    """Write a rate."""
    return spell_rate(value) if isinstance(value, Rate) else value


def stretches(ids: Sequence[int]) -> Iterator[list[int]]:
    """Return ids in as many as a request takes."""
    for begin in range(0, len(ids), MOST_PER_PAGE):
        yield list(ids[begin : begin + MOST_PER_PAGE])
