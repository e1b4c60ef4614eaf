"""The carrier: runs loads, ends what overruns, and keeps deliveries apart."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.outcome import Faulted, Outcome, Succeeded
from redrive.observer import Fact, HandlerStuck
from redrive.pipeline.deliver import Carrier, Load
from redrive.policies.terms import Terms
from redrive.testing import FakeClock
from redrive.transport import Endpoint

Handler = Callable[[Leased], Awaitable[None]]


class Calling:
    """A transport that calls a function for each delivery."""

    batch = 1

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        for one in deliveries:
            await self._handler(one)
        return [Succeeded()] * len(deliveries)


class Watching:
    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def notice(self, fact: Fact) -> None:
        self.facts.append(fact)


class Bench:
    """A carrier on a fake clock, and what it needs."""

    def __init__(self, *, grace: str = "10s") -> None:
        self.clock = FakeClock()
        self.watching = Watching()
        self.progress = asyncio.Event()
        self.carrier = Carrier(
            worker="w",
            clock=self.clock,
            grace=timedelta(seconds=float(grace.removesuffix("s"))),
            observer=self.watching,
            on_progress=self.progress.set,
            effects=1,
        )

    def load(
        self,
        handler: Handler,
        *,
        number: int = 1,
        timeout: str = "30s",
        is_transactional: bool = False,
    ) -> Load:
        leased = Leased(
            lease=Lease(DeliveryId(number), 1),
            destination="billing",
            event=Event(
                id=EventId(str(number)),
                type="order.paid",
                payload=msgspec.Raw(b"null"),
                published_at=self.clock.now(),
                occurred_at=self.clock.now(),
            ),
            attempt=1,
            kind=Kind.FIRST,
            claimed_at=self.clock.now(),
            enqueued_at=self.clock.now(),
        )
        endpoint = Endpoint(
            destination=Destination(name="billing", patterns=("*",)),
            terms=Terms(timeout=timeout),
            transport=Calling(handler),
            is_transactional=is_transactional,
        )
        return Load(endpoint, [leased], claimed=self.clock.monotonic())

    async def rest(self) -> None:
        """Let everything run that can run now."""
        for _ in range(20):
            await self.clock.sleep(0)


@asynccontextmanager
async def a_bench(*, grace: str = "10s") -> AsyncIterator[Bench]:
    bench = Bench(grace=grace)
    watch = asyncio.create_task(bench.carrier.watch())
    try:
        yield bench
    finally:
        watch.cancel()
        await bench.carrier.stop()
        await asyncio.gather(watch, return_exceptions=True)


async def test_quick_handlers_share_a_runner() -> None:
    async with a_bench() as bench:
        tasks: list[asyncio.Task[None] | None] = []

        async def handler(_: Leased) -> None:
            tasks.append(asyncio.current_task())

        bench.carrier.start([bench.load(handler, number=number) for number in range(50)])
        await bench.rest()

        assert len(bench.carrier.take_finished()) == 50
        assert len({id(task) for task in tasks}) == 1


async def test_handlers_that_wait_run_side_by_side() -> None:
    async with a_bench() as bench:
        running, together, go_on = 0, 0, asyncio.Event()

        async def handler(_: Leased) -> None:
            nonlocal running, together
            running += 1
            together = max(together, running)
            await go_on.wait()
            running -= 1

        bench.carrier.start([bench.load(handler, number=number) for number in range(5)])
        await bench.rest()
        go_on.set()
        await bench.rest()

        assert together == 5
        assert len(bench.carrier.take_finished()) == 5


async def test_context_variables_of_one_delivery_are_unseen_by_the_next() -> None:
    async with a_bench() as bench:
        tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
        seen: list[str] = []

        async def handler(leased: Leased) -> None:
            seen.append(tenant.get())
            tenant.set(leased.event.id)

        bench.carrier.start([bench.load(handler, number=number) for number in range(3)])
        await bench.rest()

        assert seen == ["nobody", "nobody", "nobody"]


async def test_a_handler_that_takes_too_long_is_ended_at_its_time_out() -> None:
    async with a_bench() as bench:

        async def handler(_: Leased) -> None:
            await asyncio.Event().wait()

        bench.carrier.start([bench.load(handler, timeout="5s")])
        await bench.rest()
        bench.clock.advance("4s")
        await bench.rest()
        assert bench.carrier.take_finished() == []

        bench.clock.advance("1s")
        await bench.rest()

        [load] = bench.carrier.take_finished()
        [outcome] = load.outcomes
        assert isinstance(outcome, Faulted)
        assert outcome.fault.rule == "timeout"
        assert bench.carrier.is_empty


async def test_a_short_time_out_is_kept_beside_a_long_one() -> None:
    async with a_bench() as bench:

        async def handler(_: Leased) -> None:
            await asyncio.Event().wait()

        bench.carrier.start([bench.load(handler, number=1, timeout="1h")])
        await bench.rest()
        bench.carrier.start([bench.load(handler, number=2, timeout="1s")])
        await bench.rest()
        bench.clock.advance("1s")
        await bench.rest()

        [load] = bench.carrier.take_finished()
        assert load.deliveries[0].lease.delivery_id == 2


async def test_a_handler_that_will_not_end_is_given_up_and_keeps_its_place() -> None:
    async with a_bench(grace="2s") as bench:
        is_released = asyncio.Event()

        async def handler(_: Leased) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await is_released.wait()
            await is_released.wait()

        bench.carrier.start([bench.load(handler, timeout="5s")])
        await bench.rest()
        bench.clock.advance("5s")
        await bench.rest()
        assert bench.carrier.take_finished() == []
        bench.clock.advance("2s")
        await bench.rest()

        [load] = bench.carrier.take_finished()
        assert [type(outcome) for outcome in load.outcomes] == [Faulted]
        assert [type(fact) for fact in bench.watching.facts] == [HandlerStuck]
        assert bench.carrier.stuck() == {"billing": 1}
        assert bench.carrier.running() == {"billing": 1}
        assert bench.carrier.is_empty

        is_released.set()
        await bench.rest()

        assert bench.carrier.stuck() == {}
        assert bench.carrier.take_finished() == []


async def test_leases_are_extended_until_time_out_and_grace_are_over() -> None:
    async with a_bench(grace="2s") as bench:

        async def handler(_: Leased) -> None:
            await asyncio.Event().wait()

        load = bench.load(handler, timeout="5s")
        bench.carrier.start([load])
        await bench.rest()

        bench.clock.advance("6.9s")
        assert bench.carrier.leases() == [load.deliveries[0].lease]
        bench.clock.advance("0.1s")
        assert bench.carrier.leases() == []


async def test_a_loop_that_stands_still_beyond_time_out_and_grace_is_noticed() -> None:
    async with a_bench(grace="2s") as bench:

        async def handler(_: Leased) -> None:
            await asyncio.Event().wait()

        load = bench.load(handler, timeout="5s")
        bench.carrier.start([load])
        await bench.rest()

        bench.clock.advance("7s")

        assert bench.carrier.wedged_by(last_tick=1.0) is load
        assert bench.carrier.wedged_by(last_tick=5.5) is None


async def test_stopping_ends_handlers_and_returns_what_was_not_finished() -> None:
    async with a_bench() as bench:
        is_ended = asyncio.Event()

        async def handler(_: Leased) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                is_ended.set()

        load = bench.load(handler)
        bench.carrier.start([load])
        await bench.rest()

        assert await bench.carrier.stop() == list(load.deliveries)
        await bench.rest()
        assert is_ended.is_set()
        assert bench.carrier.take_finished() == []


async def test_a_runner_that_is_thrown_away_ends_without_an_outcome() -> None:
    async with a_bench() as bench:
        runners: list[asyncio.Task[None] | None] = []

        async def handler(_: Leased) -> None:
            runners.append(asyncio.current_task())
            await asyncio.Event().wait()

        bench.carrier.start([bench.load(handler)])
        await bench.rest()
        [runner] = runners
        assert runner is not None
        coroutine = runner.get_coro()
        assert isinstance(coroutine, Coroutine)

        coroutine.close()

        assert bench.carrier.take_finished() == []


async def test_an_interrupt_of_the_handlers_own_leaves_the_runner_at_work() -> None:
    async with a_bench() as bench:
        tasks: list[asyncio.Task[None] | None] = []

        async def handler(_: Leased) -> None:
            tasks.append(asyncio.current_task())
            raise KeyboardInterrupt

        bench.carrier.start([bench.load(handler, number=number) for number in range(2)])
        await bench.rest()

        outcomes = [load.outcomes[0] for load in bench.carrier.take_finished()]
        assert [type(outcome) for outcome in outcomes] == [Faulted, Faulted]
        assert len(set(tasks)) == 1


async def test_a_transport_that_raises_is_a_failure_of_the_attempt() -> None:
    async with a_bench() as bench:

        async def handler(_: Leased) -> None:
            raise RuntimeError("a bug in the transport")

        bench.carrier.start([bench.load(handler)])
        await bench.rest()

        [load] = bench.carrier.take_finished()
        [outcome] = load.outcomes
        assert isinstance(outcome, Faulted)
        assert outcome.fault.rule == "transport raised"


async def test_an_effect_that_waits_for_a_place_does_not_run_out_of_time() -> None:
    async with a_bench() as bench:
        ends = {number: asyncio.Event() for number in (1, 2)}
        begun: list[int] = []

        async def handler(leased: Leased) -> None:
            begun.append(leased.lease.delivery_id)
            await ends[leased.lease.delivery_id].wait()

        loads = [bench.load(handler, number=number, is_transactional=True) for number in (1, 2)]
        bench.carrier.start(loads)
        await bench.rest()
        assert begun == [1]
        bench.clock.advance(timedelta(seconds=29))
        ends[1].set()
        await bench.rest()
        assert begun == [1, 2]
        bench.clock.advance(timedelta(seconds=29))
        await bench.rest()
        ends[2].set()
        await bench.rest()

        assert [load.outcomes for load in bench.carrier.take_finished()] == [[Succeeded()]] * 2


async def test_what_may_be_settled_with_its_effect_is_told_apart() -> None:
    async with a_bench() as bench:
        plain = bench.load(lambda _: asyncio.Event().wait(), number=1)  # type: ignore[arg-type,return-value]
        effect = bench.load(
            lambda _: asyncio.Event().wait(),  # type: ignore[arg-type,return-value]
            number=2,
            is_transactional=True,
        )
        bench.carrier.start([plain, effect])
        await bench.rest()

        assert [one.delivery_id for one in bench.carrier.leases()] == [1, 2]
        assert [one.delivery_id for one in bench.carrier.leases(with_effects=False)] == [1]


async def test_a_runner_that_is_stopped_while_it_finishes_a_step_ends() -> None:
    async with a_bench() as bench:
        finish = asyncio.Event()

        async def handler(_: Leased) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.wait([asyncio.ensure_future(finish.wait())])

        load = bench.load(handler, is_transactional=True)
        bench.carrier.start([load])
        await bench.rest()
        task = load.task
        assert task is not None
        task.cancel()
        await bench.rest()
        finish.set()
        await bench.rest()

        assert task.done()


async def test_what_ends_while_the_carrier_stops_is_not_given_back_too() -> None:
    """It would be settled and released, and only the store would keep them apart."""
    async with a_bench() as bench:

        async def handler(_: Leased) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        load = bench.load(handler)
        bench.carrier.start([load])
        await bench.rest()

        assert await bench.carrier.stop() == []
        assert bench.carrier.take_finished() == [load]


async def test_a_handler_that_is_stuck_is_known_after_the_carrier_has_stopped() -> None:
    """It may have got stuck only just now, and the process must not wait for it."""
    release = asyncio.Event()
    async with a_bench(grace="1s") as bench:

        async def handler(_: Leased) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()

        bench.carrier.start([bench.load(handler, timeout="1s")])
        for _ in range(3):
            await bench.rest()
            bench.clock.advance("1s")
        await bench.rest()

        assert await bench.carrier.stop() == []
        assert bench.carrier.stuck() == {"billing": 1}

        release.set()
        await bench.rest()
        assert bench.carrier.stuck() == {}
