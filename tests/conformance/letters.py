"""Short ways to have dead letters, to replay them, and to see what became of that."""

from __future__ import annotations

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change, ChangeKind
from redrive.model.replay import Pace
from redrive.model.settlement import Delivered
from redrive.store import NewReplay, Query, Replay, Selection
from tests.conformance.world import OPERATOR, World, ids_of

__all__ = [
    "CHANGES",
    "EVERYTHING",
    "advance",
    "counts_of",
    "deliver",
    "edit",
    "found",
    "letters_of",
    "start",
]

CHANGES = (Change(path="total", kind=ChangeKind.ADDED, after="1"),)

EVERYTHING = Selection(query=Query())


async def letters_of(world: World, count: int, *, to: str = "billing") -> list[DeliveryId]:
    """Publish that many events whose deliveries fail."""
    return [await world.dead_letter(to=to) for _ in range(count)]


async def start(world: World, selection: Selection = EVERYTHING, **pace: object) -> Replay:
    """Start a replay, of everything unless told otherwise."""
    new = NewReplay(selection=selection, pace=Pace(**pace))  # type: ignore[arg-type]
    replay = await world.store.start_replay(new, actor=OPERATOR)
    assert replay is not None
    return replay


async def advance(world: World) -> list[DeliveryId]:
    """Take every step there is, and return the letters that were sent."""
    sent: list[DeliveryId] = []
    while (advance := await world.store.advance_replays()).steps:
        sent += [one for step in advance.steps for one in step.sent]
    return sent


async def deliver(world: World, *destinations: str) -> list[DeliveryId]:
    """Deliver what is due, and return it."""
    claim = await world.claim(*destinations)
    for leased in claim.deliveries:
        assert not await world.settle(leased, Delivered())
    return ids_of(claim)


async def found(world: World, replay: Replay) -> Replay:
    """Return how a replay stands."""
    found = await world.store.find_replay(replay.id)
    assert found is not None
    return found


def counts_of(replay: Replay) -> tuple[int, int, int, int, int]:
    """Return how many were selected, sent, delivered, failed again and skipped."""
    return replay.selected, replay.sent, replay.delivered, replay.failed, replay.skipped


async def edit(
    world: World,
    letter: DeliveryId,
    payload: bytes = b'{"total":1}',
    *,
    before: bytes = b"{}",
    by: str = "ada",
    is_replayed: bool = False,
) -> bool:
    """Edit the payload of a dead letter."""
    return await world.store.edit(
        letter,
        before=msgspec.Raw(before),
        payload=msgspec.Raw(payload),
        changes=CHANGES,
        more=7,
        actor=Actor(by, "it lacked a total"),
        is_replayed=is_replayed,
    )
