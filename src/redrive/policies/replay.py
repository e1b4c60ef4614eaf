"""Replay: when the next letters of a replay may be sent, and when it should rather stop.

Pure functions of how the replay stands. A store calls them within its own transaction, so that
however many workers drive a replay, each step is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from redrive.model.gate import Bucket
from redrive.model.limits import Limits
from redrive.model.replay import Pace, ReplayState, Wave
from redrive.policies.buckets import awaited, refilled, whole
from redrive.store import Replay

__all__ = [
    "ACTIONS",
    "Decision",
    "Done",
    "Send",
    "Stop",
    "Wait",
    "decide",
    "estimate",
    "moved",
    "steered",
]

ACTIONS = {
    ReplayState.PAUSED: "pause_replay",
    ReplayState.RUNNING: "resume_replay",
    ReplayState.CANCELLED: "cancel_replay",
}
"""What the audit log calls it when a person brings a replay into a state."""

_BEFORE = {
    ReplayState.PAUSED: (ReplayState.RUNNING,),
    ReplayState.RUNNING: (ReplayState.PAUSED, ReplayState.STOPPED),
    ReplayState.CANCELLED: (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED),
}
_MOST_AT_ONCE = 250
"""How many letters one step sends: more would hold a store's write lock for too long."""


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send that many letters, as a part of this wave."""

    count: int
    wave: Wave


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do before `until`; without it, before letters under way are settled."""

    until: datetime | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Too many failed again: leave the rest alone."""

    why: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Every letter had its turn."""

    why: str = ""


Decision = Send | Wait | Stop | Done


def decide(replay: Replay, *, held: int, now: datetime) -> Decision:
    """Decide about the next step of a replay that is running.

    `held` are the letters under way that wait behind a dead letter: no worker can settle them, so
    they are not waited for.
    """
    wave = replay.wave
    failed = replay.failed - wave.failed_before
    if replay.left and _is_too_much(failed, wave, replay.pace):
        return Stop(why=_complaint(failed, wave))
    if replay.left and wave.sent < wave.size:
        return _send(replay, wave, now=now)
    if replay.under_way > held:
        return Wait()
    if not replay.left:
        return Done(why=_remark(held, replay.behind))
    return _send(replay, _next_wave(replay), now=now)


def moved(
    replay: Replay, wave: Wave, *, sent: int, skipped: int, behind: int, now: datetime
) -> Replay:
    """Return the replay after a step in which so many letters were sent, and others skipped.

    `behind` are those of the skipped that wait behind a dead letter which is not sent with them.
    """
    bucket = replay.bucket
    if replay.pace.rate is not None and sent:
        bucket = Bucket(refilled(bucket, replay.pace.rate, now=now) - sent, now)
    return msgspec.structs.replace(
        replay,
        sent=replay.sent + sent,
        skipped=replay.skipped + skipped,
        behind=replay.behind + behind,
        wave=msgspec.structs.replace(wave, sent=wave.sent + sent),
        bucket=bucket,
        next_at=None,
    )


def steered(replay: Replay, state: ReplayState) -> Replay | None:
    """Return a replay that a person brings into a state, or `None` where it cannot get there.

    One that had stopped goes on with a canary again.
    """
    if replay.state not in _BEFORE[state]:
        return None
    if state is not ReplayState.RUNNING or replay.state is not ReplayState.STOPPED:
        return replay
    # A wave that is full: the next one begins when nothing of it is under way.
    wave = Wave(number=replay.wave.number, failed_before=replay.failed)
    return msgspec.structs.replace(replay, wave=wave)


def estimate(
    destinations: Iterable[tuple[str, int]], limits: Mapping[str, Limits], pace: Pace
) -> timedelta | None:
    """Return how long the rates alone make it take; `None` where no rate holds it back."""
    letters = dict(destinations)
    rates = [
        (count, rate)
        for name, count in letters.items()
        if name in limits and (rate := limits[name].replay_rate) is not None
    ]
    if pace.rate is not None:
        rates.append((sum(letters.values()), pace.rate))
    if not rates:
        return None
    return timedelta(
        seconds=max(max(0.0, count - rate.burst) / rate.per_second for count, rate in rates)
    )


def _is_too_much(failed: int, wave: Wave, pace: Pace) -> bool:
    return failed > 0 and (wave.is_canary or failed > pace.failure_limit * wave.size)


def _complaint(failed: int, wave: Wave) -> str:
    name = "the canary" if wave.is_canary else f"wave {wave.number}"
    return f"{failed:,} of {wave.size:,} in {name} failed again"


def _remark(held: int, behind: int) -> str:
    remarks = []
    if held:
        remarks.append(f"{held:,} of the letters sent wait behind a dead letter of their key")
    if behind:
        remarks.append(f"{behind:,} skipped, held by a dead letter that was not sent with them")
    return "; ".join(remarks)


def _next_wave(replay: Replay) -> Wave:
    wave, pace = replay.wave, replay.pace
    size = min(pace.largest_wave, wave.size * 2 or pace.canary)
    return Wave(
        number=wave.number + 1,
        # What is not there to be sent cannot speak for those that are.
        size=min(size, replay.left),
        failed_before=replay.failed,
        is_canary=wave.size == 0,
    )


def _send(replay: Replay, wave: Wave, *, now: datetime) -> Send | Wait:
    room = min(wave.size - wave.sent, replay.left, _MOST_AT_ONCE)
    rate = replay.pace.rate
    if rate is None:
        return Send(count=room, wave=wave)
    tokens = whole(replay.bucket, rate, now=now)
    # Few steps with several letters each, instead of one for every letter.
    wanted = max(1, min(room, int(rate.burst)))
    if tokens < wanted:
        return Wait(until=awaited(replay.bucket, rate, wanted=wanted, now=now))
    return Send(count=min(room, tokens), wave=wave)
