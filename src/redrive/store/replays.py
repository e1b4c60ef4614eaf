"""What a store promises about replays of many dead letters, which outlive whoever began them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.edit import Change
from redrive.model.gate import Bucket
from redrive.model.replay import AutoReplay, Pace, ReplayState, Wave
from redrive.model.settlement import FailureReason
from redrive.store.inspection import Query

__all__ = [
    "AUTO_REPLAY",
    "MOST_NEWCOMERS",
    "Advance",
    "Due",
    "Editing",
    "NewReplay",
    "Replay",
    "ReplayStep",
    "Replays",
    "SeenAutoReplay",
    "Selection",
    "Survey",
]

AUTO_REPLAY = "auto-replay"
"""Who starts automatic replays, as the audit log and the cycles of deliveries name it."""

MOST_NEWCOMERS = 20_000
"""How many letters that failed since are looked at to count newcomers, at most."""

_AUTO_REPLAY_ONCE = "schedule"
"""How releases before this one named it; their replays are in stores."""

Due = Callable[[AutoReplay, datetime, datetime], bool]
"""Says whether an auto-replay has come due between two instants; pure, and called on any thread."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which unresolved dead letters are meant: those of the ids, or all that a query finds."""

    ids: tuple[DeliveryId, ...] | None = None
    query: Query | None = None


class NewReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay still to be started."""

    selection: Selection
    pace: Pace = Pace()
    generation: str | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of many, and how far it has come.

    Each letter selected is sent or skipped or still `left`; each one sent is delivered, failed
    again or still `under_way`. `behind` are those of the skipped that a dead letter, not sent with
    them, is in the way of. `newcomers` are dead letters that its query finds but that failed
    too late to be selected, or of more than `MOST_NEWCOMERS` that failed since the latest so many;
    `None` where nobody counted them. `next_at` is when the rate lets it
    send again. `reason` says why it is in its state, `changed_by` who saw to that, if anybody.
    """

    id: int
    state: ReplayState
    by: str
    why: str
    started_at: datetime
    changed_at: datetime
    selected: int
    sent: int = 0
    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    behind: int = 0
    newcomers: int | None = None
    pace: Pace = Pace()
    wave: Wave = Wave()
    bucket: Bucket = Bucket()
    next_at: datetime | None = None
    generation: str | None = None
    query: Query | None = None
    destinations: tuple[str, ...] = ()
    reason: str = ""
    changed_by: str = ""

    @property
    def left(self) -> int:
        """How many of the selected letters had no turn yet."""
        return self.selected - self.sent - self.skipped

    @property
    def under_way(self) -> int:
        """How many of those that were sent are neither delivered nor failed again."""
        return self.sent - self.delivered - self.failed

    @property
    def is_automatic(self) -> bool:
        """Whether an auto-replay began it."""
        return self.by in (AUTO_REPLAY, _AUTO_REPLAY_ONCE)


class ReplayStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did in one step: the letters it sent, and how it stands after that."""

    replay: Replay
    sent: tuple[DeliveryId, ...] = ()


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that were taken, by the store's clock `now`, and what will want attention next.

    `running` counts the replays that go on; `next_at` is when a rate lets one of them do so.
    """

    now: datetime
    steps: tuple[ReplayStep, ...] = ()
    running: int = 0
    next_at: datetime | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a selection finds now, counted; of groups and tenants the largest.

    `in_lanes` are the letters that keep the order of a key, and `behind` those of them that wait
    behind another dead letter which is not selected: a replay leaves them alone.
    """

    selected: int
    destinations: tuple[tuple[str, int], ...] = ()
    reasons: tuple[tuple[FailureReason, int], ...] = ()
    groups: tuple[tuple[str, str, int], ...] = ()
    tenants: tuple[tuple[str, int], ...] = ()
    in_lanes: int = 0
    behind: int = 0


class SeenAutoReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that is replayed by itself, and since when a due time counts."""

    destination: str
    auto_replay: AutoReplay
    since: datetime


class Replays(Protocol):
    """Replays of many dead letters: each survives its workers, and sends no letter twice.

    What becomes of a letter that was sent is counted when it is settled, whoever settles it and
    whatever state the replay is in by then.
    """

    async def survey(self, selection: Selection) -> Survey:
        """Count what a selection finds, without changing anything."""

    async def start_replay(self, new: NewReplay, *, actor: Actor) -> Replay | None:
        """Take down what the selection finds now, to be sent step by step; `None` if nothing.

        What fails later is not part of it. Nothing is sent yet.
        """

    async def advance_replays(self) -> Advance:
        """Take the next step of every running replay, decided and carried out as one.

        However many call it at once, a letter is sent at most once by one replay, and no wave is
        exceeded. A letter is skipped if since the start somebody else has replayed, resolved or
        deleted it, or if it waits behind a dead letter that is not sent with it. Letters go in
        publish order; those of a destination that blocks go together.
        """

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        """Return replays, the latest first; `before` is the id to go on from."""

    async def find_replay(self, replay_id: int) -> Replay | None:
        """Return one replay, with its newcomers counted."""

    async def steer_replay(self, replay_id: int, state: ReplayState, *, actor: Actor) -> bool:
        """Bring a replay into a state; tells whether it was in one that leads there.

        `PAUSED`, from running: nothing more is sent for now. `RUNNING`, from paused or, beginning
        with a canary again, from stopped. `CANCELLED`, from all but over: the rest is left alone.
        """

    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        """Start what is due of the destinations that are replayed by themselves.

        A destination that was removed is not, until it is registered again.
        An auto-replay counts from when it is first seen; a due time starts at most one replay,
        whoever calls. Nothing is started while the destination is paused, its breaker not closed,
        or its last automatic replay not over: it stays due. Letters that were sent in this way
        least often go first, then in publish order.
        """

    async def auto_replays(self) -> Sequence[SeenAutoReplay]:
        """Return the destinations that are replayed by themselves, as far as they were seen."""


class Editing(Protocol):
    """Changing what a dead letter carries. Its event stays as it is."""

    async def edit(
        self,
        delivery_id: DeliveryId,
        *,
        before: msgspec.Raw,
        payload: msgspec.Raw,
        changes: tuple[Change, ...],
        more: int,
        actor: Actor,
        is_replayed: bool,
        scope: Scope = WHOLE_STORE,
    ) -> bool:
        """Give an unresolved dead letter another payload, which every later try carries.

        Nothing happens unless it is in the scope, and what it carries now is `before`. The edit
        joins those on the delivery, of which the last are kept. With `is_replayed` it is replayed
        in the same stroke.
        """
