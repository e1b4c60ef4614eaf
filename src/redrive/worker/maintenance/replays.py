"""The duties that drive replays: begin those that are due, and take every step there is."""

from __future__ import annotations

from redrive.model.replay import ReplayState
from redrive.observer import Observer, ReplayEnded, ReplayStarted, ReplayStopped, WaveSent
from redrive.policies.auto_replay import is_due
from redrive.store import Advance, Replays

__all__ = ["advance_replays", "start_auto_replays"]


async def start_auto_replays(store: Replays, observer: Observer) -> int:
    """Begin the automatic replays that are due; returns how many."""
    started = await store.start_auto_replays(due=is_due)
    for replay in started:
        observer.notice(ReplayStarted(replay=replay))
    return len(started)


async def advance_replays(store: Replays, observer: Observer) -> tuple[int, Advance]:
    """Take every step there is to take now; returns how many letters were sent, and what is left.

    A store sends a part of a large wave in each step, so that others get to write in between.
    """
    sent = 0
    while True:
        advance = await store.advance_replays()
        for step in advance.steps:
            if step.sent:
                observer.notice(WaveSent(replay=step.replay, deliveries=step.sent))
            match step.replay.state:
                case ReplayState.STOPPED:
                    observer.notice(ReplayStopped(replay=step.replay))
                case ReplayState.DONE:
                    observer.notice(ReplayEnded(replay=step.replay))
                case _:
                    pass
            sent += len(step.sent)
        if not advance.steps:
            return sent, advance
