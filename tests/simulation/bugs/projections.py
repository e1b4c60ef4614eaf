"""Planted bugs of how read models are made of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.model.position import LogPosition
from redrive.store import Applying, LogPage, Projected, Projecting, ReaderTurn, Settled
from redrive.stores.sql import batches, log, projections
from redrive.stores.sql.session import Session
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite import projections as sqlite
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

_read_events = log.read_events
_project = projections.project
_apply_batch = SqliteStore.project
_SOME = 5
_TURN = """
SELECT token, time, number FROM redrive.checkpoints WHERE projection = $1 AND log_partition = $2
"""


async def _gap_blind(session: Session, **options: Any) -> LogPage:  # noqa: ANN401 - as the store has it
    """Pass by what commits later than what was stored behind it."""
    page = await _read_events(session, **options)
    *events, last = page.events or (None,)
    read = [one for one in events if one is not None and one.position.number % _SOME]
    return msgspec.structs.replace(page, events=(*read, last)) if events else page


async def _checkpoint_first(
    self: SqliteStore,
    turn: ReaderTurn,
    page: LogPage,
    apply: Applying,
    **options: Any,  # noqa: ANN401 - as the store has it
) -> Projected:
    async def nothing(*given: Any) -> Sequence[Settled | None]:  # noqa: ANN401 - as the store has it
        return [None] * len(given[1])

    projected = await _apply_batch(self, turn, page, nothing, **options)
    if projected.ending is Projecting.KEPT:
        async with self.transaction() as transaction:
            await apply(transaction, page.events, self._clock.now())
    return projected


async def _unfenced(
    session: Session,
    turn: ReaderTurn,
    *given: Any,  # noqa: ANN401 - as the store has it
    after: LogPosition,
    **options: Any,  # noqa: ANN401 - as the store has it
) -> Projected:
    """Apply whatever somebody has read, whoever has the turn, and however far it is by now."""
    [(token, *place)] = await session.fetch(
        _TURN, turn.checkpoint.projection, turn.checkpoint.partition
    )
    turn = msgspec.structs.replace(turn, token=token)
    return await _project(session, turn, *given, after=LogPosition(*place), **options)


async def _without_undoing(self: Any, events: Any) -> Settled | None:  # noqa: ANN401 - private there
    answers = await self._apply(self._connection, events, self._session.now)
    return next((one for one in answers if one is not None), None)


async def _nothing_unread(*_given: object) -> bool:
    """Give readers a version however far it is."""
    return False


async def _undivided(session: Session, **options: Any) -> LogPage:  # noqa: ANN401 - as the store has it
    """Read everything for the first of several partitions."""
    number, count = options.pop("chosen", (0, 1))
    chosen = (number, count) if number else (0, 1)
    return await _read_events(session, chosen=chosen, **options)


def _bug(name: str, *patches: tuple[Any, str, Any]) -> Bug:
    return Bug(name, on="sqlite", is_projecting=True, patches=patches)


BUGS: tuple[Bug, ...] = (
    _bug("a projection reads past gaps", (log, "read_events", _gap_blind)),
    _bug("checkpoint before apply", (SqliteStore, "project", _checkpoint_first)),
    _bug("a key is parked without followers", (batches, "_LANES", f"{batches._LANES} AND 1 = 0")),  # noqa: SLF001 - what the bug is in the place of
    _bug("swap before caught up", (projections, "_has_unread", _nothing_unread)),
    _bug("a key in two partitions", (log, "read_events", _undivided)),
    _bug("two owners of a projection", (sqlite, "project", _unfenced)),
    _bug("what failed stays in the read model", (batches.Batch, "_try", _without_undoing)),
)
