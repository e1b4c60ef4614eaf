"""Events that are applied one after the other: each has the time of a call for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.clock import SystemClock
from redrive.executor import ThreadExecutor
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import Faulted, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transports.function import FunctionTransport
from redrive.transports.projection import ProjectionTransport
from tests.simulation.loop import SimulationLoop
from tests.unit.policies.leases import leased

SECONDS = 10.0


async def in_made_up_time(seconds: float) -> None:
    """Wait for a timer of the loop, which jumps to it."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


class Applied:
    """A transport whose function takes as many seconds as the payload says."""

    def __init__(self, *, swallows: bool = False) -> None:
        self._swallows = swallows
        terms = Terms(timeout=timedelta(seconds=SECONDS))
        function = FunctionTransport(
            self._rest, terms=terms, executor=ThreadExecutor(), takes_connection=True
        )
        self.transport = ProjectionTransport(
            [("*", function)], terms=terms, effects=None, clock=SystemClock(), long_seconds=1.0
        )

    async def _rest(self, event: Event[Any], _model: object) -> None:
        try:
            await in_made_up_time(event.payload)
        except asyncio.CancelledError:
            if not self._swallows:
                raise

    async def apply(self, *seconds: float) -> list[Outcome]:
        with self.transport.calls(None) as calls:
            return [await calls.apply([_carrying(one)]) for one in seconds]


def _carrying(seconds: float) -> Leased:
    one = leased()
    payload = msgspec.Raw(msgspec.json.encode(seconds))
    return msgspec.structs.replace(one, event=msgspec.structs.replace(one.event, payload=payload))


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    """Return a loop whose time is made up."""
    loop = SimulationLoop(0)
    yield loop
    loop.discard()


def test_calls_that_take_long_together_are_not_late(loop: SimulationLoop) -> None:
    outcomes = loop.run_until_complete(Applied().apply(*[SECONDS * 0.7] * 5))

    assert outcomes == [Succeeded()] * 5


def test_one_that_takes_too_long_is_ended_and_the_next_goes_on(loop: SimulationLoop) -> None:
    begun = loop.time()

    first, late, last = loop.run_until_complete(Applied().apply(7.0, 3_600.0, 7.0))

    assert (first, last) == (Succeeded(), Succeeded())
    assert isinstance(late, Faulted)
    assert loop.time() - begun == pytest.approx(7.0 + SECONDS + 7.0)


def test_two_tasks_do_not_end_the_calls_of_each_other(loop: SimulationLoop) -> None:
    applied = Applied()

    async def both() -> list[list[Outcome]]:
        calls = (applied.apply(7.0, 7.0, 3_600.0), applied.apply(9.0, 9.0, 9.0))
        return list(await asyncio.gather(*calls))

    one, other = loop.run_until_complete(both())

    assert isinstance(one[2], Faulted)
    assert [*one[:2], *other] == [Succeeded()] * 5


def test_tasks_by_turns_need_one_timer_each(
    loop: SimulationLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers, applied, at = [], Applied(), loop.call_at

    def counted(when: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:  # noqa: ANN401 - as it comes
        if when - loop.time() >= SECONDS:
            timers.append(when)
        return at(when, *rest, **options)

    async def both() -> None:
        await asyncio.gather(applied.apply(*[0.0] * 100), applied.apply(*[0.0] * 100))

    monkeypatch.setattr(loop, "call_at", counted)
    loop.run_until_complete(both())

    assert len(timers) == 2


def test_one_that_takes_no_notice_of_its_end_cancels_nothing_else(loop: SimulationLoop) -> None:
    async def swallowed() -> tuple[list[Outcome], int]:
        outcomes = await Applied(swallows=True).apply(3_600.0, 7.0)
        task = asyncio.current_task()
        assert task is not None
        return outcomes, task.cancelling()

    outcomes, cancelling = loop.run_until_complete(swallowed())

    assert outcomes == [Succeeded()] * 2
    assert cancelling == 0


def test_whoever_cancels_is_obeyed(loop: SimulationLoop) -> None:
    async def cancelled() -> None:
        running = asyncio.ensure_future(Applied().apply(7.0, 7.0))
        await in_made_up_time(8.0)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(cancelled())
