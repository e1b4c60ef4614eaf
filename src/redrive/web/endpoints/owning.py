"""Owning: what of the store is a caller's to see; the rest is as if it were not there."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec

from redrive.errors import NotFoundError
from redrive.operations import Story
from redrive.store import Query
from redrive.web.problem import ProblemError
from redrive.web.route import Call

__all__ = ["at_own", "counted_within", "next_page", "owned", "visible", "within"]

_MOST_LIMITED = 100


class _AtDestination(Protocol):
    @property
    def destination(self) -> str: ...


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


D = TypeVar("D", bound=_AtDestination)


async def owned(call: Call, delivery_id: int) -> Story:
    """Return the story of a delivery, if it is the caller's."""
    return await within(call, await call.operations.show(delivery_id))


async def within(call: Call, story: Story) -> Story:
    """Return a story that tells of nothing but what is the caller's, if it is."""
    one = story.delivery
    call.caller.require(call.operation, tenant=one.tenant, destination=one.destination)
    return await counted_within(call, story)


async def counted_within(call: Call, story: Story) -> Story:
    """Return a story whose group counts the caller's letters alone."""
    if not call.caller.is_limited or story.group is None:
        return story
    query = Query(
        group=story.group.id,
        tenant=call.caller.grant.tenant,
        destination=story.delivery.destination,
    )
    found = await call.operations.groups(query, limit=1)
    return msgspec.structs.replace(story, group=next(iter(found), None))


async def visible(call: Call, ids: Sequence[int]) -> list[int]:
    """Return those of the deliveries that are the caller's."""
    if not call.caller.is_limited:
        return list(ids)
    if len(ids) > _MOST_LIMITED:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "bad-request",
            f"There are {len(ids)} ids; who may act on a part of the store names at most "
            f"{_MOST_LIMITED} at once.",
        )
    found = []
    for one in ids:
        try:
            delivery = (await call.operations.show(one)).delivery
        except NotFoundError:
            continue
        tenant, destination = delivery.tenant, delivery.destination
        if call.caller.sees(call.operation, tenant=tenant, destination=destination):
            found.append(one)
    return found


def at_own(call: Call, found: Sequence[D]) -> list[D]:
    """Return those of destinations that are the caller's."""
    own = call.caller.grant.destinations
    return [one for one in found if not own or one.destination in own]


def next_page(found: Sequence[_Numbered], limit: int) -> str | None:
    """Return where a list goes on whose pages end with an id."""
    return str(found[-1].id) if len(found) == limit else None
