"""Tracking by chance: an app on a fake clock, through everything that may go wrong, and checked.

Each step is drawn from a seed, and at the end all is well again: then each event has arrived once
where it was to go, in its order, or is counted as dropped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive import BufferFullError, Filter, Redrive, Retry, StoreUnavailableError, Tracking
from redrive.app.declaration import Ports
from redrive.errors import JournalError
from redrive.journal.folder import files_of
from redrive.journal.writer import JournalWriter
from redrive.model.delivery import Leased, Status
from redrive.model.outcome import Outcome, Succeeded
from redrive.store import Query, Tried
from redrive.testing import FakeClock
from redrive.testing.fakes import CountingIds, InlineExecutor, SeededRng
from tests.tracking.test_outage import Weak

__all__ = ["Chance", "take"]

_KINDS = (*["track"] * 6, *["flush"] * 4, *["break"] * 3, "wait", "work")
_STEPS = 60
_FILES = 400


class Moody(Weak):
    """A store that may also die in the middle of what a drain gives it, and keep the first half."""

    dies_midway = 0

    async def take_over(self, batch: Sequence[Tried]) -> int:
        if self.dies_midway and len(batch) > 1:
            self.dies_midway -= 1
            await super().take_over(batch[: len(batch) // 2])
            raise StoreUnavailableError("it died in the middle")
        return await super().take_over(batch)


class Sink:
    """Takes events in batches, unless it is told to fail."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.is_dead = False
        self.taken: list[str] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        if self.is_dead:
            raise ConnectionError("nobody is there")
        self.taken += [one.event.id for one in deliveries]
        return [Succeeded()] * len(deliveries)


class Chance:
    """The app, its world, and what was tracked."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - it draws steps
        self.clock = FakeClock()
        self.store = Moody(self.clock)
        self.folder = folder
        self.is_full = False
        # Both together may count an event as dropped that the store has, and has not said so.
        self.answers_get_lost = self.random.random() < 0.5
        terms = Tracking(
            rate=None,
            capacity=self.random.choice([4, 50]),
            on_full=self.random.choice(["spill", "drop_oldest", "raise"]),
            filter=Filter(never_save=("page.debug",)),
        )
        self.app = Redrive("memory://", tracking=terms)
        self.sinks = {"a": Sink(3), "b": Sink(50), "steps": Sink(1)}
        retry = Retry(max_attempts=1000, base="1s", jitter="none", factor=1)
        for name, pattern in (("a", "page.*"), ("b", "*.*"), ("steps", "step.*")):
            order = "park" if name == "steps" else "none"
            self.app.destination(
                name,
                pattern,
                transport=self.sinks[name],
                retry=retry,
                breaker=None,
                order=order,  # type: ignore[arg-type]
            )
        self.tracked: dict[str, str] = {}
        self.journaled: list[str] = []

    @contextmanager
    def wired(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Connect the app to this world, whose disk may be full."""
        append = JournalWriter.append

        def write(writer: JournalWriter, records: Sequence[object]) -> None:
            if self.is_full:
                raise JournalError("the disk is full")
            append(writer, records)  # type: ignore[arg-type]

        patch.setattr(JournalWriter, "append", write)
        ports = Ports(
            clock=self.clock,
            ids=CountingIds(),
            rng=SeededRng(1),
            executor=InlineExecutor(),
            journal=self.folder,
            tracks_inline=True,
        )
        with self.app.rewired(ports, lambda: self.store):
            yield

    async def step(self) -> None:
        """Do one thing, whatever it is."""
        draw = self.random
        match draw.choice(_KINDS):
            case "track":
                for _ in range(draw.randint(1, 7)):
                    self.track(draw.choice(["page.seen", "page.debug", "step.done", "step.done"]))
            case "flush":
                await self.app.flush()
            case "work" if not self.store.is_down:
                await self.app.drain()
            case "wait":
                self.clock.advance(draw.choice(["200ms", "2s"]))
            case _:
                self.break_or_mend()
        assert self.app.tracking.figures().is_balanced, self.app.tracking.figures()

    def break_or_mend(self) -> None:
        """Have the store, the disk or a sink fail, or not any more."""
        draw = self.random
        match draw.choice(["store", "disk", "sink"]):
            case "store":
                self.store.is_down = not self.store.is_down
                if self.answers_get_lost:
                    self.store.loses_answers = draw.choice([0, 0, 2])
                    self.store.dies_midway = draw.choice([0, 0, 2])
            case "disk":
                self.is_full = not (self.is_full or self.answers_get_lost) and draw.random() < 0.5
            case _:
                sink = self.sinks[draw.choice("ab")]
                sink.is_dead = not sink.is_dead

    def track(self, event_type: str) -> None:
        """Track an event; those of a key are numbered by their order."""
        key = "k" if event_type == "step.done" else None
        try:
            tracked = self.app.track(event_type, len(self.tracked), key=key)
        except BufferFullError:
            return
        self.tracked[tracked.event_id] = event_type

    async def recover(self) -> None:
        """Let all be well again, and everything that waits arrive."""
        self.store.is_down = self.is_full = False
        self.store.loses_answers = self.store.dies_midway = 0
        for sink in self.sinks.values():
            sink.is_dead = False
        for _ in range(_FILES):
            self.clock.advance("3s")
            await self.app.flush()
            await self.app.drain()
            page = await self.store.find(Query(status=Status.PENDING), limit=1)
            if not page.deliveries and not any(one.waiting for one in files_of(self.folder)):
                return
        raise AssertionError("something waits for ever")

    def check(self) -> None:
        """Compare what was tracked with what has arrived, and with what is counted as dropped."""
        figures = self.app.tracking.figures()
        assert figures.waiting == 0
        lost: set[str] = set()
        for name, sink in self.sinks.items():
            wanted = [one for one, kind in self.tracked.items() if _wants(name, kind)]
            twice = [one for one, times in Counter(sink.taken).items() if times > 1]
            assert twice == [], f"{name} was given {len(twice)} twice"
            assert set(sink.taken) <= set(wanted)
            lost |= set(wanted) - set(sink.taken)
        refused = figures.tracked - len(self.tracked)  # the buffer was full, and that was raised
        assert len(lost) + refused == sum(figures.dropped.values()), (lost, figures)
        steps = [one for one in self.tracked if one in set(self.sinks["steps"].taken)]
        assert self.sinks["steps"].taken == steps, "the order is lost"
        assert figures.is_balanced


def _wants(name: str, event_type: str) -> bool:
    return name == "b" or event_type.startswith({"a": "page.", "steps": "step."}[name])


async def take(seed: int, folder: Path) -> None:
    """Take all steps of a seed, and check what came of it."""
    chance = Chance(folder / f"journal-{seed}", seed)
    with pytest.MonkeyPatch.context() as patch, chance.wired(patch):
        for _ in range(_STEPS):
            await chance.step()
        await chance.recover()
        chance.check()
