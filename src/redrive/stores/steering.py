"""How a replay of many stands: as it begins, as it is read, and after an act or a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.model.audit import Actor
from redrive.model.replay import ReplayState
from redrive.policies.replay import resumed
from redrive.store import Advance, NewReplay, Replay, ReplayStep

__all__ = ["ACTIONS", "IS_OVER", "REPLAY_COLUMNS", "begun", "in_state", "read", "summary", "turned"]

REPLAY_COLUMNS = "id, state, selected, sent, delivered, failed, skipped, document"
"""What `read` takes, in its order."""

ACTIONS = {
    ReplayState.PAUSED: "pause_replay",
    ReplayState.RUNNING: "resume_replay",
    ReplayState.CANCELLED: "cancel_replay",
}
"""What the audit log calls it when a person brings a replay into a state."""

IS_OVER = frozenset({ReplayState.CANCELLED, ReplayState.DONE})

_replays = msgspec.json.Decoder(Replay)


def begun(new: NewReplay, *, actor: Actor, now: datetime) -> Replay:
    """Return a replay that has selected nothing yet."""
    return Replay(
        id=0,
        state=ReplayState.RUNNING,
        by=actor.by,
        why=actor.why,
        started_at=now,
        changed_at=now,
        selected=0,
        pace=new.pace,
        generation=new.generation,
        query=new.selection.query,
    )


def read(row: Sequence[Any]) -> Replay:
    """Read a replay; what is counted beside its document is right, not what is in it."""
    number, state, selected, sent, delivered, failed, skipped, document = row
    return msgspec.structs.replace(
        _replays.decode(document),
        id=number,
        state=ReplayState(state),
        selected=selected,
        sent=sent,
        delivered=delivered,
        failed=failed,
        skipped=skipped,
    )


def in_state(
    replay: Replay, state: ReplayState, why: str, *, now: datetime, by: str = ""
) -> Replay:
    """Return a replay that has come into a state."""
    return msgspec.structs.replace(
        replay, state=state, reason=why, changed_at=now, changed_by=by, next_at=None
    )


def turned(replay: Replay, state: ReplayState, *, actor: Actor, now: datetime) -> Replay:
    """Return a replay that a person has paused, resumed or cancelled."""
    if state is ReplayState.RUNNING:
        replay = resumed(replay)
    return in_state(replay, state, actor.why, now=now, by=actor.by)


def summary(taken: Iterable[tuple[ReplayStep | None, Replay]], *, now: datetime) -> Advance:
    """Sum up the steps that were taken, each with how its replay stands."""
    taken = tuple(taken)
    running = [replay for _, replay in taken if replay.state is ReplayState.RUNNING]
    return Advance(
        now=now,
        steps=tuple(step for step, _ in taken if step is not None),
        running=len(running),
        next_at=min((one.next_at for one in running if one.next_at), default=None),
    )
