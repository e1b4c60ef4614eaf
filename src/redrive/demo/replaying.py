"""How the demo replays a group: a canary first, and the rest only if it arrives."""

from __future__ import annotations

import msgspec

from redrive.demo.pace import Pace
from redrive.model.delivery import Status
from redrive.operations import Operations
from redrive.store import Group, Query

__all__ = ["Replayed", "replay_the_group"]

_PATIENCE_SECONDS = 20.0


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay: how many letters were sent, and whether it stopped itself."""

    sent: int
    has_stopped: bool


async def replay_the_group(
    operations: Operations, group: Group, pace: Pace, *, why: str
) -> Replayed:
    """Replay one letter of a group; go on with the others only if that one arrives."""
    canary, *others = reversed(await operations.select(Query(group=group.id)))
    await operations.replay([canary], by="demo", why=why)

    async def is_settled() -> bool:
        status = (await operations.show(canary)).delivery.status
        return status in {Status.DELIVERED, Status.FAILED}

    await pace.wait_until(is_settled, patience=_PATIENCE_SECONDS)
    if (await operations.show(canary)).delivery.status is not Status.DELIVERED:
        return Replayed(sent=1, has_stopped=True)
    await operations.replay(others, by="demo", why=why)
    return Replayed(sent=1 + len(others), has_stopped=False)
