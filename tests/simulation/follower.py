"""One who follows the log as a projection does: on from where it was, again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redrive.model.position import LOG_START, LogPosition
from redrive.store import LoggedEvent
from tests.proof.checkers.records import Read
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop

__all__ = ["Follower"]


class Follower:
    """Takes down what it reads; looks whenever something was stored, when a gap is most likely."""

    def __init__(
        self,
        read: Callable[[LogPosition], Sequence[LoggedEvent]],
        history: History,
        loop: SimulationLoop,
    ) -> None:
        self._read = read
        self._history = history
        self._loop = loop
        self._position = LOG_START

    def go_on(self) -> None:
        """Read what there is by now."""
        for one in self._read(self._position):
            self._position = one.position
            self._history.write(
                Read(
                    at=self._loop.time(),
                    position=one.position,
                    event_id=one.event.id,
                    key=one.event.key,
                    version=one.version,
                )
            )
