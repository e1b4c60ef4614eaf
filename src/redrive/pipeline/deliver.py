"""Deliver: run what was claimed, each try within its time-out, and collect the outcomes."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import cast

from redrive.clock import Clock, wait_at_most
from redrive.executor import StillRunning
from redrive.model.delivery import Lease, Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Snooze
from redrive.observer import HandlerStuck, Observer
from redrive.policies.capture import capture, timed_out
from redrive.policies.classify import classify
from redrive.transport import Endpoint, Transport, checked_outcomes

__all__ = ["Carrier", "Load", "loads_of"]

_LONGEST_WITHOUT_A_BREAK = 0.01
_UNTIL_THE_KEY_COMES = "5m"
_ENDING_SECONDS = 1.0
"""How long handlers that were cancelled may take to clean up before they count as not ended."""


class Load:
    """Deliveries on their way together: one for most transports, several for those that batch."""

    __slots__ = (
        "claimed",
        "deliveries",
        "endpoint",
        "is_abandoned",
        "is_held",
        "is_out_of_sight",
        "is_timed_out",
        "outcomes",
        "started",
        "task",
        "timeout",
        "took",
        "waited",
    )

    def __init__(self, endpoint: Endpoint, deliveries: Sequence[Leased], *, claimed: float) -> None:
        self.endpoint = endpoint
        self.deliveries = deliveries
        self.claimed = claimed
        self.timeout = endpoint.terms.timeout.total_seconds()
        self.started: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.outcomes: Sequence[Outcome] = ()
        self.waited = 0.0
        self.took = 0.0
        self.is_timed_out = False
        self.is_abandoned = False
        self.is_held = False
        self.is_out_of_sight = False

    def finish(self, outcomes: Sequence[Outcome], *, now: float) -> None:
        """Keep what came of it, and how long it took."""
        self.outcomes = outcomes
        self.waited = now - self.claimed
        self.took = 0.0 if self.started is None else now - self.started

    @property
    def is_on_its_way(self) -> bool:
        """Whether its handler runs, or somebody lost sight of it."""
        return self.is_out_of_sight or (self.task is not None and not self.task.done())

    @property
    def begun(self) -> float:
        """When its time began to run: a load that is never started must not be held for ever."""
        return self.claimed if self.started is None else self.started

    def may_be_held(self, now: float, *, grace: float) -> bool:
        """Tell whether its lease is still worth extending, whatever its handler does."""
        return self.is_held or now < self.begun + self.timeout + grace

    def overran(self, now: float, *, grace: float) -> bool:
        """Tell whether it has run for longer than its time-out and the grace after it."""
        if self.started is None:
            return False
        return now >= self.started + self.timeout + grace


def loads_of(
    deliveries: Sequence[Leased], endpoints: Mapping[str, Endpoint], *, claimed: float
) -> list[Load]:
    """Put deliveries together as their transports take them."""
    by_destination: dict[str, list[Leased]] = {}
    for leased in deliveries:
        by_destination.setdefault(leased.destination, []).append(leased)
    loads = []
    for name, theirs in by_destination.items():
        endpoint = endpoints[name]
        size = _batch_of(endpoint.transport)
        sound = [one for one in theirs if not one.unreadable]
        loads += [
            Load(endpoint, sound[begin : begin + size], claimed=claimed)
            for begin in range(0, len(sound), size)
        ]
        loads += [Load(endpoint, [one], claimed=claimed) for one in theirs if one.unreadable]
    return loads


class Carrier:
    """Runs loads on one event loop, in tasks that are used again.

    A task of its own and a timer for every delivery would cost more than all the rest of its way.
    So a few runners take loads from a queue, and one watch looks after all time-outs. A runner
    whose handler has changed context variables is replaced: no delivery sees another's.
    """

    def __init__(
        self,
        *,
        worker: str,
        clock: Clock,
        grace: timedelta,
        observer: Observer,
        on_progress: Callable[[], None],
        effects: int = 0,
        threads: int = 10,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._grace = grace.total_seconds()
        self._observer = observer
        self._on_progress = on_progress
        self._queue: deque[Load] = deque()
        self._scarce = {"effects": effects, "threads": threads}
        self._held: dict[str, deque[Load]] = {name: deque() for name in self._scarce}
        self._running: dict[Load, None] = {}
        self._stuck: dict[Load, None] = {}
        self._finished: list[Load] = []
        self._runners: dict[asyncio.Task[None], None] = {}
        self._parked: list[asyncio.Future[None]] = []
        self._context = contextvars.copy_context()
        self._last_break = clock.monotonic()
        self._is_runner_called = False
        self._is_stopped = False
        self._next_check = math.inf
        self._must_check = asyncio.Event()

    def start(self, loads: Sequence[Load]) -> None:
        """Take over loads; they begin as soon as the event loop is free."""
        for load in loads:
            self._running[load] = None
            scarce = load.endpoint.scarce
            if scarce is None:
                self._queue.append(load)
            elif self._scarce[scarce] > 0:
                self._scarce[scarce] -= 1
                self._queue.append(load)
            else:  # its time begins to run when it has a place
                load.is_held = True
                self._held[scarce].append(load)
        self._call_runner()

    def _free_place(self, scarce: str) -> None:
        """Let the next one begin when an effect, or what ran in a thread, has ended."""
        if self._held[scarce]:
            load = self._held[scarce].popleft()
            load.is_held = False
            self._queue.append(load)
            self._call_runner()
        else:
            self._scarce[scarce] += 1

    def take_finished(self) -> list[Load]:
        """Return the loads that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def running(self) -> dict[str, int]:
        """Return how many deliveries are on their way, or stuck, to each destination."""
        return _by_destination(self._running)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way that is still to be settled."""
        return len(self._running) == len(self._stuck) and not self._finished

    def stuck(self) -> dict[str, int]:
        """Return how many deliveries' handlers neither ended nor stopped, by destination."""
        return _by_destination(self._stuck)

    def leases(self, *, with_effects: bool = True) -> list[Lease]:
        """Return the leases worth extending. May be called from another thread.

        Those `with_effects` may have been settled already, together with the effect.
        """
        now = self._clock.monotonic()
        return [
            delivery.lease
            for load in list(self._running)
            if not load.is_abandoned and load.may_be_held(now, grace=self._grace)
            if with_effects or not load.endpoint.is_transactional
            for delivery in load.deliveries
        ]

    def still_held(self, loads: Iterable[Load]) -> list[Load]:
        """Return those that go on and are worth holding. May be called from another thread."""
        now = self._clock.monotonic()
        return [
            load
            for load in loads
            if load.is_on_its_way and load.may_be_held(now, grace=self._grace)
        ]

    def wedged_by(self, last_tick: float) -> Load | None:
        """Return a load whose time-out and grace have passed while the event loop stood still.

        May be called from another thread.
        """
        now = self._clock.monotonic()
        for load in list(self._running):
            allowed = load.timeout + self._grace
            is_unwatched = last_tick < load.begun + load.timeout and not load.is_abandoned
            blocked_since = load.begun if is_unwatched else max(load.begun, last_tick)
            if now >= blocked_since + allowed:
                return load
        return None

    async def watch(self) -> None:
        """End what takes longer than its time-out, until cancelled."""
        while True:
            self._must_check.clear()
            self._next_check = self._earliest_overrun()
            if self._next_check == math.inf:
                await self._must_check.wait()
            else:
                rest = self._next_check - self._clock.monotonic()
                await wait_at_most(self._must_check, rest, self._clock)
            self._check()

    async def stop(self) -> list[Leased]:
        """End what can be ended; returns the deliveries that have ended without an outcome.

        What goes on all the same is `left`, and its leases are worth extending until it ends.
        """
        self._is_stopped = True
        self._queue.clear()
        for held in self._held.values():
            held.clear()
        told = {load.task for load in self._running if load.is_timed_out}
        for runner in list(self._runners):
            if runner not in told:  # a handler in a thread is no longer waited for at a second word
                runner.cancel()
        for _ in range(2):
            await self._clock.sleep(0)
        running = [load.task for load in self.left() if load.task and not load.task.done()]
        if running:
            await asyncio.wait(running, timeout=_ENDING_SECONDS)
        for parked in self._parked:
            parked.cancel()
        # Only now: what has ended meanwhile is settled, and must not be given back as well.
        return self._take_ended()

    def _take_ended(self) -> list[Leased]:
        """Let go of what no longer runs, and return what there is to give back of it."""
        ended = [load for load in list(self._running) if not load.is_on_its_way]
        for load in ended:
            self._running.pop(load, None)
        return [one for load in ended if not load.is_abandoned for one in load.deliveries]

    def left(self) -> list[Load]:
        """Return what was to end and goes on."""
        return [load for load in self._running if not load.is_abandoned]

    def _call_runner(self) -> None:
        if not self._queue or self._is_runner_called:
            return
        self._is_runner_called = True
        while self._parked:
            parked = self._parked.pop()
            if not parked.done():
                parked.set_result(None)
                return
        runner = self._context.run(asyncio.create_task, self._run())
        self._runners[runner] = None
        runner.add_done_callback(lambda task: self._runners.pop(task, None))

    async def _run(self) -> None:
        clean = contextvars.copy_context()
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._is_runner_called = False
        self._last_break = self._clock.monotonic()
        while True:
            if not self._queue:
                parked = asyncio.get_running_loop().create_future()
                self._parked.append(parked)
                await parked
                self._is_runner_called = False
                self._last_break = self._clock.monotonic()
                continue
            load = self._queue.popleft()
            # Were this handler to wait, the next load must not wait for it.
            self._call_runner()
            load.task = task
            await self._carry(load)
            # It was told to end while the load had to finish a step, or to clean up.
            if task.cancelling() or self._is_stopped:
                return
            if contextvars.copy_context() != clean:
                self._call_runner()
                return
            if self._clock.monotonic() - self._last_break > _LONGEST_WITHOUT_A_BREAK:
                await self._clock.sleep(0)
                self._last_break = self._clock.monotonic()

    async def _carry(self, load: Load) -> None:
        task = load.task
        load.started = self._clock.monotonic()
        if load.started + load.timeout < self._next_check:
            self._must_check.set()
        outcomes: Sequence[Outcome]
        try:
            if load.deliveries[0].unreadable:
                outcomes = [_unreadable(load.deliveries[0])]
            else:
                outcomes = checked_outcomes(
                    await load.endpoint.transport.send(load.deliveries), len(load.deliveries)
                )
        except BaseException as error:
            if isinstance(error, StillRunning):
                load.is_out_of_sight = True
                raise
            if isinstance(error, asyncio.CancelledError) and load.is_timed_out:
                outcomes = _timed_out(load)
            elif _ends_runner(error, task):
                raise
            else:
                outcomes = _raised(load, error)
        if load.is_timed_out and task is not None:
            task.uncancel()
        if load.endpoint.scarce is not None:
            self._free_place(load.endpoint.scarce)
        is_awaited = load in self._running and not load.is_abandoned
        self._running.pop(load, None)
        if is_awaited:
            self._end(load, outcomes)
        else:
            self._stuck.pop(load, None)
            self._on_progress()

    def _end(self, load: Load, outcomes: Sequence[Outcome]) -> None:
        load.finish(outcomes, now=self._clock.monotonic())
        self._finished.append(load)
        self._on_progress()

    def _earliest_overrun(self) -> float:
        return min(
            (
                load.started + load.timeout + (self._grace if load.is_timed_out else 0.0)
                for load in self._running
                if load.started is not None and not load.is_abandoned
            ),
            default=math.inf,
        )

    def _check(self) -> None:
        now = self._clock.monotonic()
        for load in list(self._running):
            if load.is_abandoned or not load.overran(now, grace=0.0):
                continue
            if not load.is_timed_out:
                load.is_timed_out = True
                if load.task is not None:
                    load.task.cancel()
            elif load.overran(now, grace=self._grace):
                load.is_abandoned = True
                self._stuck[load] = None
                self._end(load, _timed_out(load))
                self._observer.notice(
                    HandlerStuck(
                        worker=self._worker,
                        destination=load.endpoint.destination.name,
                        deliveries=tuple(one.lease.delivery_id for one in load.deliveries),
                    )
                )


def _batch_of(transport: Transport) -> int:
    """Return how many it takes at once; one that cannot even say that is asked to send, and fails.

    It is somebody else's code, and a mistake in it must not keep the others from their work.
    """
    try:
        return max(1, int(transport.batch))
    except Exception:  # noqa: BLE001 - whatever it raises
        return 1


def _by_destination(loads: Iterable[Load]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for load in loads:
        name = load.endpoint.destination.name
        counts[name] = counts.get(name, 0) + len(load.deliveries)
    return counts


def _ends_runner(error: BaseException, task: asyncio.Task[None] | None) -> bool:
    """Tell whether it is meant for the runner; a handler may raise any of its own.

    A real Ctrl-C is no exception here: the command and asyncio both hear the signal themselves, and
    the second of them cancels. So a `KeyboardInterrupt` is the handler's, or it would end worker
    after worker with nothing counted.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit) and not _is_current(task)


def _is_current(task: asyncio.Task[None] | None) -> bool:
    """Tell whether it has its turn; a task that Python throws away and closes has none."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False


def _raised(load: Load, error: BaseException) -> list[Outcome]:
    """Return what a transport's error means for each delivery, by the rules of handlers."""
    terms = load.endpoint.terms
    verdict = classify(error, terminal=terms.terminal, transient=terms.transient)
    rule = "transport raised" if verdict.rule == "default" else verdict.rule
    outcome = Faulted(
        fault=capture(error, rule=rule), nature=verdict.nature, retry_after=verdict.retry_after
    )
    return [outcome] * len(load.deliveries)


def _unreadable(leased: Leased) -> Outcome:
    """Return what becomes of a delivery that nobody was sent; a key that is missing may come."""
    if leased.is_sealed:
        return Snooze(_UNTIL_THE_KEY_COMES)
    fault = Fault(
        error_class="Unreadable",
        message=f"Nothing was sent: {leased.unreadable}. Give it a payload with "
        "`redrive dlq edit`, or publish the event anew and resolve this one.",
        rule="it cannot be read",
    )
    return Faulted(fault=fault, nature=Nature.TERMINAL)


def _timed_out(load: Load) -> list[Outcome]:
    outcome = Faulted(fault=timed_out(load.endpoint.terms.timeout), nature=Nature.TRANSIENT)
    return [outcome] * len(load.deliveries)
