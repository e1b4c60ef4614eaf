"""Replays: the list of them, one with its progress, and how it is steered."""

from __future__ import annotations

import msgspec

from redrive.model.replay import ReplayState
from redrive.store import Replay
from redrive.web.pages.page import Moved, Page, Step, Visit

__all__ = [
    "ReplayView",
    "Replays",
    "cancel_replay",
    "pause_replay",
    "resume_replay",
    "show_replay",
    "show_replays",
]

_PER_PAGE = 50
_REFRESH_SECONDS = 2


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """Replays, the latest first, and where the next page begins."""

    replays: tuple[Replay, ...]
    next: int | None = None


class ReplayView(msgspec.Struct, frozen=True, kw_only=True):
    """A replay, how it is in a sentence, and what may be done."""

    replay: Replay
    sentence: str
    level: str
    steps: tuple[Step, ...]

    @property
    def finished(self) -> int:
        """How many of its letters need no more of it."""
        return self.replay.delivered + self.replay.failed + self.replay.skipped


async def show_replays(visit: Visit) -> Page:
    """Show the replays of many, the latest first."""
    found = await visit.operations.replays(before=visit.number("before"), limit=_PER_PAGE)
    more = found[-1].id if len(found) == _PER_PAGE else None
    model = Replays(replays=tuple(found), next=more)
    return Page(template="replays.html", title="Replays", model=model)


async def show_replay(visit: Visit) -> Page:
    """Show how far a replay has come; it is looked at again while it goes on."""
    replay = await visit.operations.show_replay(visit.id)
    level, sentence = _told(replay)
    model = ReplayView(replay=replay, sentence=sentence, level=level, steps=_steps(replay))
    is_moving = replay.state is ReplayState.RUNNING or replay.under_way
    return Page(
        template="replay.html",
        title=f"Replay {replay.id}",
        model=model,
        refresh=_REFRESH_SECONDS if is_moving else None,
        is_live=bool(is_moving),
    )


async def pause_replay(visit: Visit) -> Moved:
    """Send no more letters for now."""
    await visit.operations.pause_replay(visit.id, by=visit.by, why=visit.why)
    return Moved(f"/replays/{visit.id}")


async def resume_replay(visit: Visit) -> Moved:
    """Go on with a replay that was paused or has stopped."""
    await visit.operations.resume_replay(visit.id, by=visit.by, why=visit.why)
    return Moved(f"/replays/{visit.id}")


async def cancel_replay(visit: Visit) -> Moved:
    """Leave the letters that are not sent yet alone for good."""
    await visit.operations.cancel_replay(visit.id, by=visit.by, why=visit.why)
    return Moved(f"/replays/{visit.id}")


def _told(replay: Replay) -> tuple[str, str]:
    match replay.state:
        case ReplayState.DONE:
            return _end(replay)
        case ReplayState.RUNNING:
            return "warning", "It goes on, wave by wave."
        case ReplayState.PAUSED:
            return "warning", "It is paused."
        case ReplayState.STOPPED:
            return "error", "It has stopped by itself, because letters failed again."
        case ReplayState.CANCELLED:
            return "warning", "It was cancelled; what was not sent was left alone."


def _end(replay: Replay) -> tuple[str, str]:
    if replay.under_way:
        return "warning", "All are sent; some are still on their way."
    if replay.failed:
        return "error", f"Done, but {replay.failed:,} failed again."
    if replay.delivered == replay.selected:
        return "ok", "All redelivered."
    return "ok", f"Done: {replay.delivered:,} redelivered, {replay.skipped:,} left alone."


def _steps(replay: Replay) -> tuple[Step, ...]:
    def step(label: str, act: str) -> Step:
        return Step(label=label, to=f"/replays/{replay.id}/{act}", operation=f"{act}_replay")

    match replay.state:
        case ReplayState.RUNNING:
            return (step("Pause", "pause"), step("Cancel", "cancel"))
        case ReplayState.PAUSED | ReplayState.STOPPED:
            return (step("Resume", "resume"), step("Cancel", "cancel"))
        case _:
            return ()
