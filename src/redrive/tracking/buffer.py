"""The buffer: what threads have tracked and the sender has yet to take, and the books of both."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from redrive.model.tracked import TrackingFigures
from redrive.tracking.figures import Books, End
from redrive.tracking.item import Flight, Item

__all__ = ["Buffer", "Spilled"]


class Spilled:
    """Which events of this process are in the journal and not drained, by their numbers.

    It outlives a sender that dies, and so does what is in the journal.
    """

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first = 0
        self.last = 0

    def __bool__(self) -> bool:
        return self.last > 0

    def note(self, numbers: Sequence[int]) -> None:
        """Note that these are there."""
        lowest = min(numbers)
        self.first = min(self.first, lowest) if self.first else lowest
        self.last = max(self.last, *numbers)

    def clear(self) -> None:
        """Note that nothing is there any more."""
        self.first = self.last = 0


class Buffer:
    """Any thread may put events into it; one sender at a time takes them out.

    The lock may be taken again by who has it: a signal handler, or a destructor, may track too.
    """

    def __init__(self, capacity: int) -> None:
        self.lock = threading.RLock()
        self.books = Books()
        self.items: deque[Item] = deque()
        self.overflow: deque[Item] = deque()
        self.spilled = Spilled()
        self.capacity = capacity
        self.is_asleep = True
        self._wake: Callable[[], object] | None = None
        self._open: dict[int, Item] = {}
        self._awaited: list[tuple[int, Future[None]]] = []

    @property
    def has_more(self) -> bool:
        """Whether there is anything to take."""
        return bool(self.items or self.overflow)

    @property
    def is_attended(self) -> bool:
        """Whether a sender is there to be woken."""
        return self._wake is not None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what was tracked so far."""
        return bool(self._awaited)

    @property
    def oldest(self) -> int | None:
        """The number of the oldest event that has not ended."""
        with self.lock:
            return self._oldest()

    def attach(self, wake: Callable[[], object]) -> None:
        """Have a sender woken when there is something to take."""
        with self.lock:
            self._wake, self.is_asleep = wake, False

    def detach(self) -> None:
        """Have nobody woken any more."""
        with self.lock:
            self._wake, self.is_asleep = None, True

    def fall_asleep(self) -> bool:
        """Say that the sender waits to be woken; not if there is something to take."""
        with self.lock:
            self.is_asleep = not self.has_more
            return self.is_asleep

    def rouse(self) -> None:
        """Wake the sender; whoever calls it holds the lock."""
        self.is_asleep = False
        if self._wake is not None:
            try:
                self._wake()
            except RuntimeError:  # its loop is closed: whoever looks next makes another sender
                self._wake, self.is_asleep = None, True

    def take(self, most: int, *, with_overflow: bool = True) -> tuple[list[Item], list[Item]]:
        """Return what the sender is to see to: events to send, and events that found no room.

        What found no room is older than what is to be sent, so that neither comes without it.
        """
        with self.lock:
            if self.overflow and not with_overflow:
                return [], []
            if len(self.items) <= most:
                items = list(self.items)
                self.items.clear()
            else:
                items = [self.items.popleft() for _ in range(most)]
            overflow = list(self.overflow)
            self.overflow.clear()
            for one in (*items, *overflow):
                self._open[one.number] = one
            return items, overflow

    def reclaim(self) -> int:
        """Take back what a sender took that has failed, and tell how much that is."""
        with self.lock:
            lost = list(self._open.values())
            self._open.clear()
            self.items.extendleft(reversed(lost))
            return len(lost)

    def end(self, ends: Sequence[tuple[int, End, str]], *, flight: Flight | None = None) -> None:
        """Count what became of events."""
        with self.lock:
            for number, end, why in ends:
                self._open.pop(number, None)
                self.books.end(end, why=why)
            if flight is not None:
                self.books.share(len(flight.arrived), len(flight.names))
            if self._awaited:
                self._tell()

    def reach(self, destination: str, what: str, times: int = 1) -> None:
        """Count what became of events at one destination."""
        with self.lock:
            self.books.reach(destination, what, times)

    def double(self) -> None:
        """Count an event that two patterns disagree about."""
        with self.lock:
            self.books.doubled += 1

    def drain(self, records: int) -> None:
        """Count what the journal has given to the store."""
        with self.lock:
            self.books.drained += records

    def figures(self) -> TrackingFigures:
        """Return the books as they are."""
        with self.lock:
            return self.books.figures()

    def await_all(self) -> Future[None]:
        """Return what is done when all that was tracked so far has ended."""
        future: Future[None] = Future()
        with self.lock:
            oldest, last = self._oldest(), self.books.tracked
            if oldest is None or oldest > last:
                future.set_result(None)
            else:
                self._awaited.append((last, future))
                self.rouse()
        return future

    def _oldest(self) -> int | None:
        numbers = [queue[0].number for queue in (self.items, self.overflow) if queue]
        if self._open:
            numbers.append(min(self._open) if len(self._open) < 64 else next(iter(self._open)))  # noqa: PLR2004
        return min(numbers, default=None)

    def _tell(self) -> None:
        oldest = self._oldest()
        done = [one for one in self._awaited if oldest is None or oldest > one[0]]
        if done:
            self._awaited = [one for one in self._awaited if one not in done]
            for _, future in done:
                if not future.done():
                    future.set_result(None)
