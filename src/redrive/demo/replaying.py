"""How the demo replays a group: workers drive it, and it stops itself if the canary fails."""

from __future__ import annotations

from redrive.demo.tempo import Tempo
from redrive.model.replay import ReplayState
from redrive.operations import Operations
from redrive.store import Group, Query, Replay

__all__ = ["replay_the_group"]

_PATIENCE_SECONDS = 20.0


async def replay_the_group(
    operations: Operations, group: Group, pace: Tempo, *, why: str
) -> Replay:
    """Replay the letters of a group, wave by wave, and return how that ended."""
    begun = await operations.start_replay(Query(group=group.id), by="demo", why=why)

    async def is_over() -> bool:
        return (await operations.show_replay(begun.id)).state is not ReplayState.RUNNING

    await pace.wait_until(is_over, patience=_PATIENCE_SECONDS)
    return await operations.show_replay(begun.id)
