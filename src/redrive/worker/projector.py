"""The projector: reads the log for projections, batch by batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.clock import Clock, SystemClock
from redrive.errors import StoreError, UsageError
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.outcome import Applied, Outcome, Succeeded
from redrive.model.position import LogPosition
from redrive.observer import ProjectionFailed
from redrive.pipeline.settle import Decision, Settler
from redrive.policies.terms import Terms
from redrive.store import (
    LoggedEvent,
    LogNews,
    LogPage,
    Projected,
    Projecting,
    ReaderTurn,
    Rebuild,
    Settled,
    Store,
)
from redrive.transport import Endpoint, Projects
from redrive.transports.calls import is_being_cancelled
from redrive.worker.polling import Lookout
from redrive.worker.stride import Stride

__all__ = ["Projector"]

_TURNS_PER_LEASE = 3
_MOST_LOOKS = 200
"""How often to look for events that were committed, and must wait for who began before them."""
_LOOKS_SECONDS = 0.025
_REAL_TIME = SystemClock()
"""They are done in real time, whatever the clock of this worker says."""
_PAUSE_SECONDS = 0.5
_NOT_ITS_TURN = "not this worker's turn"
_NO_LEASE = Lease(DeliveryId(0), 0)
_DONE = (Succeeded, Applied)
"""A tuple, because a union made for each event costs more than asking it."""
_CHECKPOINT_SECONDS = 10.0
"""How long a checkpoint may stay behind while there is nothing to apply."""


class Projector:
    """Reads for the projections among a worker's endpoints, where no other worker does."""

    def __init__(
        self,
        *,
        store: Store,
        worker: str,
        endpoints: Sequence[Endpoint],
        settler: Settler,
        lease: timedelta,
        poll: timedelta,
        generation: str,
        clock: Clock,
        on_store_lost: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._poll = poll
        self._lease = lease
        self._on_store_lost = on_store_lost
        self._readers = [
            reader
            for one in endpoints
            if one.destination.is_projection and isinstance(one.transport, Projects)
            for reader in _readers_of(
                store=store,
                worker=worker,
                endpoint=one,
                transport=one.transport,
                settler=settler,
                lease=lease,
                generation=generation,
                clock=clock,
            )
        ]

    def standings(self) -> dict[str, str]:
        """Say of each projection how this worker's reading is; may be called from any thread."""
        found: dict[str, list[_Reader]] = {}
        for one in self._readers:
            found.setdefault(one.name, []).append(one)
        return {name: _standing(readers) for name, readers in found.items()}

    async def run(self) -> None:
        """Read on and on, for each partition of each projection beside the others."""
        if not self._readers:
            return
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(self._follow(reader))
            group.create_task(self._look_out())

    async def catch_up(self) -> bool:
        """Read to the end of the log for all of them; tell whether anything was there."""
        return any([await self._catch_up(reader) for reader in self._readers])

    async def _catch_up(self, reader: _Reader) -> bool:
        if not await reader.take_turn():
            return False
        has_moved = False
        looks = 0
        while (step := await reader.step(keeps=True)) is not None:
            has_moved = has_moved or step.has_moved
            if step.is_held:
                break
            if step.is_end:
                looks += 1
                if looks > _MOST_LOOKS or not await reader.is_behind():
                    break
                await _REAL_TIME.sleep(_LOOKS_SECONDS)
        return has_moved

    async def _follow(self, reader: _Reader) -> None:
        while True:
            try:
                # Of those that have no turn one asks: what it does not get, no other would.
                async with reader.team.asking:
                    while not await reader.take_turn():
                        await self._clock.sleep(self._lease.total_seconds() / _TURNS_PER_LEASE)
                await self._read_on(reader)
            except StoreError as error:
                self._on_store_lost(error)
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _read_on(self, reader: _Reader) -> None:
        """Read until the turn is somebody else's."""
        while True:
            reader.news.clear()
            step = await reader.step()
            if step is None:
                return
            if rest := reader.stride.take_rest():
                await self._clock.sleep(rest)
            if step.is_end:
                await reader.news.wait()

    async def _look_out(self) -> None:
        """Tell readers when it is worth another look: one look for all of them."""
        lookout = Lookout(self._store, self._clock, self._poll)
        moves = 0
        while True:
            lookout.look()
            if lookout.was_told:
                before, moves = moves, sum(one.moves for one in self._readers)
                is_vain = moves == before
                for one in self._readers:
                    one.news.set()
            else:
                is_vain = not await self._look_for_all()
            await lookout.rest(is_vain=is_vain)

    async def _look_for_all(self) -> bool:
        """Have those go on that have something to read, or to hear; tell if there was something.

        What is held asks for itself: there is more for it to read all the time.
        """
        for one in self._readers:
            if one.is_held:
                one.news.set()
        resting = [one for one in self._readers if one.is_at_end and not one.is_held]
        if not resting:
            return False
        try:
            news = await self._store.log_news(min(one.position for one in resting))
        except StoreError as error:
            self._on_store_lost(error)
            return False
        for one in resting:
            one.hear(news)
        return news.has_more


class _HookError(Exception):
    """A read model could not be made, or emptied; the cause is what its own function raised."""


class _Hook:
    """A function that makes or empties a read model, told apart from the store by its errors."""

    def __init__(self, function: Callable[[object], Awaitable[None]] | None) -> None:
        self._function = function

    async def __call__(self, connection: object) -> None:
        if self._function is not None:
            try:
                await self._function(connection)
            except BaseException as error:
                if isinstance(error, GeneratorExit) or is_being_cancelled():
                    raise
                raise _HookError from error


class _Step(msgspec.Struct, frozen=True):
    """What a look at the log has brought: whether it is further, and whether that is the end."""

    has_moved: bool
    is_end: bool
    is_held: bool = False


class _Team:
    """The readers of a projection in one worker, one for each partition that it could have."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.readers: list[_Reader] = []

    def held(self, *, but: _Reader) -> set[int]:
        """Return the partitions that the others have."""
        places = (one.partition for one in self.readers if one is not but)
        return {one for one in places if one is not None}


class _Reader:
    """One partition of a projection, whichever it has the turn of, and how far that is."""

    def __init__(
        self,
        team: _Team,
        *,
        store: Store,
        worker: str,
        endpoint: Endpoint,
        transport: Projects,
        settler: Settler,
        lease: timedelta,
        generation: str,
        clock: Clock,
    ) -> None:
        self.team = team
        self._store = store
        self._worker = worker
        self.name = endpoint.destination.name
        self._terms: Terms = endpoint.terms
        self._transport = transport
        self._settler = settler
        self._lease = lease
        self._generation = generation
        self._clock = clock
        self.news = asyncio.Event()
        """Set when another look is worth it."""
        self.moves = 0
        """How often it has found something."""
        self.position = LogPosition()
        """How far it has read."""
        self._turn: ReaderTurn | None = None
        self._kept = LogPosition()
        self._kept_at = 0.0
        self.is_at_end = False
        self.is_held = False
        """Whether a person, or a dead letter, keeps it from reading on."""
        self._is_reset = False
        self._is_ready = False
        """Whether its tables were looked at since the turn was taken."""
        self._rebuild: Rebuild | None = None
        self.stride = Stride(long_seconds=store.capabilities.long_seconds)
        self._trouble = self._refusal = ""
        self._refused: dict[LogPosition, Outcome] = {}
        self._decisions: dict[LogPosition, Decision] = {}

    @property
    def partition(self) -> int | None:
        """Which partition it reads; `None` while it has no turn."""
        return None if self._turn is None else self._turn.checkpoint.partition

    @property
    def standing(self) -> str:
        """How it is, in a few words; that it is at the end is as of its last look."""
        if self._refusal:
            return f"cannot go on: {self._refusal}"
        if self._turn is None:
            return _NOT_ITS_TURN
        if self._trouble:
            return f"cannot go on: {self._trouble}"
        if self.is_held:
            return "held by a person, or by a dead letter"
        return "at the end of the log" if self.is_at_end else "behind"

    async def take_turn(self) -> bool:
        """Take the turn of reading for a partition, unless other workers have them all."""
        begin = self._transport.begin
        if begin is None:
            begin = await self._store.end_of_log()
        try:
            self._turn = await self._store.take_turn(
                self.name,
                worker=self._worker,
                lease=self._lease,
                begin=begin,
                types=self._transport.types,
                version=self._transport.version,
                tables=self._transport.tables,
                partitions=self._transport.partitions,
                held=self.team.held(but=self),
            )
        except UsageError as error:  # another number of partitions, which waits for a person
            self._lose_turn()
            if str(error) != self._refusal:
                self._tell(str(error))
            self._refusal = str(error)
            return False
        self._refusal = ""
        if self._turn is not None:
            self.position = self._kept = self._turn.checkpoint.position
            self._kept_at = self._clock.monotonic()
            self.is_at_end = self.is_held = False
            self._is_reset = self._turn.checkpoint.is_reset
            self._is_ready = not self._transport.tables
            rebuild = self._turn.checkpoint.rebuild
            self._rebuild = rebuild if rebuild is not None and rebuild.is_running else None
        return self._turn is not None

    def _lose_turn(self) -> None:
        self._turn = None
        self.is_at_end = self.is_held = False

    async def is_behind(self) -> bool:
        """Tell whether there are events that cannot be read yet, because others must commit."""
        return any(
            not part.is_caught_up
            for one in await self._store.projections()
            if one.checkpoint.projection == self.name
            for part in one.parts or (one,)
            if part.checkpoint.partition == self.partition
        )

    def hear(self, news: LogNews) -> None:
        """Take note of how the log is, and whose turn; go on if that concerns it."""
        turn = self._turn
        place = (self.name, -1 if turn is None else turn.checkpoint.partition)
        if turn is None or news.tokens.get(place) != turn.token:
            self._lose_turn()
            self.news.set()
        elif news.has_more or self._owes_checkpoint():
            self.news.set()

    def _owes_checkpoint(self) -> bool:
        """Tell whether it has read past its checkpoint for so long that retention should know."""
        rested = self._clock.monotonic() - self._kept_at
        return self.position != self._kept and rested >= _CHECKPOINT_SECONDS

    async def step(self, *, keeps: bool = False) -> _Step | None:
        """Apply the next events of the log; `None` if the turn was lost.

        Its checkpoint is written with what it applies. If there was nothing to apply, that is now
        and then, or with `keeps`.
        """
        if self._turn is None:
            return None
        before = self.position
        of_all = self._transport.partitions
        page = await self._store.read_events(
            after=before,
            types=self._transport.types,
            limit=self.stride.limit(self._rate()) * of_all,
            partition=self._turn.checkpoint.partition,
            partitions=of_all,
        )
        keeps = keeps and page.reached != self._kept
        ends_rebuild = self._rebuild is not None and page.is_end
        has_work = page.events or self._is_reset or not self._is_ready or ends_rebuild
        if not (has_work or keeps or self._owes_checkpoint()):
            self.position = page.reached
            return self._stepped(has_moved=page.reached != before, is_end=page.is_end)
        begun = self._clock.monotonic()
        try:
            projected = await self._store.project(
                self._turn,
                page,
                self._apply,
                after=self._kept,
                generation=self._generation,
                at_most=self._terms.timeout * 2,
                truncate=_Hook(self._transport.truncate) if self._transport.truncate else None,
                create=None if self._is_ready else _Hook(self._transport.create),
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a projection does, others go on
            said = str(error.__cause__ if isinstance(error, _HookError) else error)
            self._tell_trouble(said)
            return self._stepped(has_moved=False, is_end=True, is_held=True)
        self._trouble = ""
        self.stride.heed(page, took=self._clock.monotonic() - begun, rate=self._rate())
        return self._judge(page, projected)

    def _judge(self, page: LogPage, projected: Projected) -> _Step | None:
        match projected.ending:
            case Projecting.REFUSED:
                self._lose_turn()
                return None
            case Projecting.HELD:
                return self._stepped(has_moved=False, is_end=True, is_held=True)
            case Projecting.CONTRADICTED:
                self._blame(page, projected.error)
                return self._stepped(has_moved=False, is_end=False)
            case Projecting.KEPT:
                reached = projected.reached or page.reached
                has_moved = reached != self._kept or self._is_reset
                self.position = self._kept = reached
                self._kept_at = self._clock.monotonic()
                self._refused.clear()
                self._is_reset = False
                self._is_ready = True
                self._tell_failures(projected.handed_over)
                is_end = page.is_end and projected.reached is None
                if is_end or (self._rebuild is not None and reached >= self._rebuild.goal):
                    self._rebuild = None
                return self._stepped(has_moved=has_moved, is_end=is_end)

    def _stepped(self, *, has_moved: bool, is_end: bool, is_held: bool = False) -> _Step:
        self.moves += has_moved
        self.is_at_end, self.is_held = is_end, is_held
        return _Step(has_moved=has_moved, is_end=is_end, is_held=is_held)

    def _blame(self, page: LogPage, error: Exception | None) -> None:
        """Find the event because of which a commit was refused: go on one by one, then it is it."""
        self.stride.go_one_by_one()
        if len(page.events) == 1 and error is not None:
            self._refused[page.events[0].position] = self._transport.fault(error)

    def _tell_trouble(self, error: str) -> None:
        """Tell what keeps the projection from going on, once."""
        if error != self._trouble:
            self._tell(error)
        self._trouble = error

    def _tell(self, error: str) -> None:
        fact = ProjectionFailed(worker=self._worker, projection=self.name, error=error)
        self._settler.observer.notice(fact)

    def _rate(self) -> float | None:
        """Return how many events a rebuild may apply in a second: of its rate, an equal part."""
        rate = None if self._rebuild is None else self._rebuild.rate
        return None if rate is None else rate / self._transport.partitions

    async def _apply(
        self, connection: object, events: Sequence[LoggedEvent], now: datetime
    ) -> Sequence[Settled | None]:
        answers: list[Settled | None] = []
        refused = self._refused
        with self._transport.calls(connection) as calls:
            for some in self._transport.together([self._leased(one, now) for one in events]):
                begun = self._clock.monotonic()
                place = events[len(answers)].position
                outcome = refused.get(place) if refused else None
                if outcome is None:
                    outcome = await calls.apply(some)
                if isinstance(outcome, _DONE):
                    answers += [None] * len(some)
                    continue
                # Of several, which one failed is found out when they are tried one by one.
                took = self._clock.monotonic() - begun
                decision = self._settler.decide(
                    some[0], outcome, self._terms, waited=took, took=took
                )
                self._decisions[place] = decision
                return [*answers, decision.settled]
        return answers

    def _leased(self, logged: LoggedEvent, now: datetime) -> Leased:
        """Return an event as if it were a delivery that was claimed now."""
        return Leased(
            lease=_NO_LEASE,
            destination=self.name,
            event=logged.event,
            attempt=1,
            kind=Kind.FIRST,
            claimed_at=now,
            enqueued_at=now,
        )

    def _tell_failures(self, handed_over: Sequence[tuple[LoggedEvent, Settled | None]]) -> None:
        """Tell what has failed, now that it is a delivery."""
        decisions, self._decisions = self._decisions, {}
        self._settler.tell(
            [
                decisions[one.position].about(settled)
                for one, settled in handed_over
                if settled is not None
            ]
        )


def _readers_of(*, transport: Projects, **given: Any) -> Sequence[_Reader]:  # noqa: ANN401 - as a reader is made
    """Return a reader for each partition of a projection."""
    team = _Team()
    for _ in range(transport.partitions):
        team.readers.append(_Reader(team, transport=transport, **given))
    return team.readers


def _standing(readers: Sequence[_Reader]) -> str:
    """Say how a projection is in this worker, whichever of its partitions that reads."""
    found = Counter(one.standing for one in readers)
    if len(readers) == 1:
        return readers[0].standing
    mine = [f"{count} {said}" for said, count in sorted(found.items()) if said != _NOT_ITS_TURN]
    return f"of {len(readers)} partitions: {', '.join(mine) or _NOT_ITS_TURN}"
