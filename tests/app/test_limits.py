"""Limits: breakers, rates, budgets and pauses, as they are felt by a destination."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Unpack

import pytest

from redrive import (
    Breaker,
    BreakerChanged,
    ConfigurationError,
    Event,
    NewEvent,
    NotFoundError,
    Query,
    Rate,
    Redrive,
    Retry,
    SharedRate,
    UsageError,
    http,
)
from redrive.app.declaration import DestinationOptions
from redrive.model.delivery import Delivery, Leased, Status
from redrive.model.gate import Closed, Failure, GateFigures, HalfOpen, Hold, Open
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.observer import Claimed, Operated
from redrive.testing import Kit
from tests.app.recorder import Recorder

FAULT = Fault(error_class="ConnectionError", message="refused", rule="network")
OK = Succeeded()
DOWN = Faulted(fault=FAULT, nature=Nature.TRANSIENT)
WRONG = Faulted(fault=FAULT, nature=Nature.TERMINAL)
BUSY = Faulted(fault=FAULT, nature=Nature.THROTTLED, retry_after=timedelta(seconds=30))
EVERY_SECOND = Retry(max_attempts=50, base="1s", factor=1, jitter="none")


class Gateway:
    """A service that answers as it is told, and remembers the second of each call."""

    batch = 1

    def __init__(self, store: str = "memory://", **options: Unpack[DestinationOptions]) -> None:
        options.setdefault("retry", EVERY_SECOND)
        self.answer: Outcome = OK
        self.script: list[Outcome] = []
        """Answers that come before `answer`, one for each call."""
        self.calls: list[float] = []
        self.app = Redrive("memory://")
        self.app.destination("gateway", "order.*", transport=self, **options)
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.calls += [self.kit.clock.monotonic()] * len(deliveries)
        return [self.script.pop(0) if self.script else self.answer for _ in deliveries]

    async def publish(self, count: int = 1) -> None:
        await self.app.publish_many([NewEvent(type="order.paid") for _ in range(count)])

    async def gate(self) -> GateFigures:
        [gate] = await self.operations.gates()
        return gate

    async def pending(self) -> Sequence[Delivery]:
        query = Query(status=Status.PENDING)
        return (await self.operations.deliveries(query, limit=1_000)).deliveries

    @property
    def claims(self) -> list[int]:
        """How many deliveries each claim took."""
        return [len(one.deliveries) for one in self.recorder.of(Claimed)]

    @property
    def states(self) -> list[str]:
        """What the breaker became, in order."""
        return [type(one.change.after).__name__.lower() for one in self.recorder.of(BreakerChanged)]


def keeps_to(rate: float, burst: float, calls: Sequence[float]) -> bool:
    """Tell whether no stretch of time saw more calls than its length and the burst allow."""
    return all(
        later - first + 1 <= rate * (calls[later] - calls[first]) + burst + 1e-3
        for first in range(len(calls))
        for later in range(first, len(calls))
    )


async def test_failures_is_how_many_in_a_row_open_the_breaker(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=3), concurrency=1)
    gateway.script = [DOWN, DOWN, OK, DOWN, DOWN, DOWN]
    async with gateway.kit:
        await gateway.publish(10)

        await gateway.kit.drain()

        assert len(gateway.calls) == 6
        assert gateway.states == ["open"]


async def test_an_open_breaker_holds_deliveries_and_spends_no_attempt(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=2, open_for="60s"), concurrency=1)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.run_for("59s")

        gate = await gateway.gate()
        assert len(gateway.calls) == 2
        assert sorted(one.attempts for one in await gateway.pending()) == [0, 0, 0, 0, 1]
        assert gate.hold is Hold.BREAKER_OPEN
        assert gate.until == gateway.kit.clock.now() + timedelta(seconds=1)


async def test_terminal_failures_never_open_a_breaker(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=2), concurrency=1)
    gateway.answer = WRONG
    async with gateway.kit:
        await gateway.publish(5)

        tally = await gateway.kit.drain()

        assert tally.failed == 5
        assert isinstance((await gateway.gate()).gate.breaker, Closed)


async def test_open_for_is_how_long_until_the_first_probe(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, open_for="10s"), concurrency=1)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.run_for("15s")

        assert gateway.calls == [0, 10]
        assert gateway.states == ["open", "halfopen", "open"]


async def test_successes_of_probes_close_the_breaker(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, successes=2))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(9)
        await gateway.kit.run_for("2m")

        assert gateway.states == ["open", "halfopen", "closed"]
        assert gateway.claims == [1, 1, 1, 8]
        assert len(gateway.calls) == 11


async def test_probes_is_how_many_are_under_way_while_it_is_half_open(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, successes=4, probes=2))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(9)
        await gateway.kit.run_for("2m")

        assert gateway.claims == [1, 2, 2, 6]


async def test_longest_open_bounds_the_waits_between_probes(store: str) -> None:
    gateway = Gateway(
        store, breaker=Breaker(failures=1, open_for="10s", longest_open="30s"), concurrency=1
    )
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.run_for("10m")

        waits = [later - earlier for earlier, later in pairwise(gateway.calls)]
        assert waits[:2] == [10, 10]
        assert max(waits) <= 30
        assert min(waits[8:]) >= 24


async def test_a_failed_probe_spends_no_attempt_and_the_next_takes_another(store: str) -> None:
    gateway = Gateway(
        store, breaker=Breaker(failures=1, open_for="10s"), retry=Retry(max_attempts=2)
    )
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("10m")

        pending = await gateway.pending()
        probes = [one.deliveries[0].lease.delivery_id for one in gateway.recorder.of(Claimed)[1:]]
        assert {one.attempts for one in pending} == {0}
        assert len(probes) > 10
        assert all(one != other for one, other in pairwise(probes))
        assert Counter(probes).most_common()[-1][1] >= len(probes) // 3
        story = await gateway.operations.show(pending[0].id)
        assert {one.result for one in story.delivery.log} <= {"probe", "down"}
        assert gateway.kit.dead_letters() == []


async def test_what_the_breaker_opened_beside_spends_no_attempt_either(store: str) -> None:
    """Three calls at once, and one attempt each: two are late results of the outage."""
    gateway = Gateway(store, breaker=Breaker(failures=2), retry=Retry(max_attempts=2))
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("10m")
        gateway.answer = OK
        tally = await gateway.kit.run_for("2m")

        assert tally.delivered == 3
        assert gateway.kit.dead_letters() == []


@pytest.mark.parametrize("most", [2, 3, 5])
async def test_an_outage_makes_no_dead_letter_of_the_only_delivery(store: str, most: int) -> None:
    gateway = Gateway(store, breaker=Breaker(), retry=Retry(max_attempts=most))
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.run_for("10m")
        assert [one.attempts for one in await gateway.pending()] == [most - 1]
        gateway.answer = OK

        assert (await gateway.kit.run_for("1m")).delivered == 1


async def test_what_fails_while_others_arrive_is_a_dead_letter_in_the_end(store: str) -> None:
    """A quiet destination with one delivery that it cannot take: that is no outage."""
    gateway = Gateway(store, breaker=Breaker(), retry=Retry(max_attempts=3))
    async with gateway.kit:
        gateway.answer = DOWN
        await gateway.publish()
        await gateway.kit.run_for("10m")
        [poison] = await gateway.pending()

        gateway.script = [OK]
        await gateway.publish()
        await gateway.kit.run_for("2m")

        assert [one.id for one in gateway.kit.dead_letters()] == [poison.id]
        assert list(await gateway.pending()) == []


async def test_a_terminal_failure_of_a_probe_tells_of_the_delivery(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1), concurrency=1)
    gateway.script = [DOWN, WRONG]
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.run_for("1m")

        assert [one.attempts for one in gateway.kit.dead_letters()] == [1]


async def test_the_figures_name_the_last_failure_and_when(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=2, successes=1), concurrency=1)
    gateway.script = [DOWN, DOWN]
    async with gateway.kit:
        await gateway.publish(2)
        at = gateway.kit.clock.now()
        await gateway.kit.run_for("1m")

        figures = await gateway.gate()
        assert isinstance(figures.gate.breaker, Closed)
        assert figures.gate.last_failure == Failure(error="ConnectionError: refused", at=at)


async def test_rate_of_a_breaker_is_the_share_of_failures_that_opens_it(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=99, rate=0.5, least_calls=4), concurrency=1)
    gateway.script = [DOWN, OK, OK, OK, DOWN, DOWN]
    async with gateway.kit:
        await gateway.publish(9)

        await gateway.kit.drain()

        assert len(gateway.calls) == 6
        assert gateway.states == ["open"]


async def test_least_calls_is_how_many_a_share_is_counted_of(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=99, rate=0.5, least_calls=7), concurrency=1)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(9)

        await gateway.kit.drain()

        assert len(gateway.calls) == 7


async def test_window_is_how_far_back_the_share_is_counted(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=99, rate=0.5, least_calls=4, window="10s"),
        retry=Retry(max_attempts=1),
    )
    gateway.answer = DOWN
    async with gateway.kit:
        for _ in range(2):
            await gateway.publish(3)
            await gateway.kit.run_for("11s")
        before = list(gateway.states)
        await gateway.publish(4)
        await gateway.kit.drain()

        assert before == []
        assert gateway.states == ["open"]


async def test_http_destinations_have_a_breaker_and_handlers_have_none() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="handler")(print)
    app.destination("http", "order.*", transport=http("https://api.example.com"))
    app.destination(
        "http-without", "order.*", transport=http("https://api.example.com"), breaker=None
    )
    async with Kit(app) as kit:
        await app.publish("user.seen")

        breakers = {one.destination: one.limits.breaker for one in await kit.operations.gates()}

    assert breakers == {"handler": None, "http": Breaker(), "http-without": None}


async def test_rate_bounds_first_attempts_in_every_stretch_of_time(store: str) -> None:
    gateway = Gateway(store, rate="5/s")
    async with gateway.kit:
        await gateway.publish(20)
        await gateway.kit.run_for("2s")
        await gateway.publish(10)
        await gateway.kit.run_for("10s")

        assert len(gateway.calls) == 30
        assert keeps_to(5, 1, gateway.calls)
        assert gateway.calls[-1] == pytest.approx(5.8, abs=0.2)


async def test_a_rate_that_holds_is_named_with_its_end(store: str) -> None:
    gateway = Gateway(store, rate="30/m")
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.drain()

        gate = await gateway.gate()
        assert len(gateway.calls) == 1
        assert gate.hold is Hold.RATE
        assert gate.until == gateway.kit.clock.now() + timedelta(seconds=2)


async def test_a_burst_lets_more_pass_at_once(store: str) -> None:
    gateway = Gateway(store, rate=Rate(per_second=1, burst=5))
    async with gateway.kit:
        await gateway.publish(8)
        await gateway.kit.run_for("10s")

        assert Counter(gateway.calls) == {0: 5, 1: 1, 2: 1, 3: 1}


async def test_retry_rate_bounds_retries_and_nothing_else(store: str) -> None:
    gateway = Gateway(store, retry_rate="4/s")
    gateway.script = [DOWN] * 12
    async with gateway.kit:
        await gateway.publish(12)
        await gateway.kit.run_for("10s")

        first, retries = gateway.calls[:12], gateway.calls[12:]
        assert first == [0] * 12
        assert len(retries) == 12
        assert keeps_to(4, 1, retries)
        assert retries[-1] == pytest.approx(1 + 11 / 4, abs=0.1)


async def test_rate_does_not_slow_retries(store: str) -> None:
    gateway = Gateway(store, rate=Rate(per_second=0.001, burst=5), retry_rate=None)
    gateway.script = [DOWN] * 5
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.run_for("2s")

        assert Counter(gateway.calls) == {0: 5, 1: 5}


async def test_replay_rate_bounds_replays_and_nothing_else(store: str) -> None:
    gateway = Gateway(store, replay_rate="2/s", retry=Retry(max_attempts=1))
    gateway.script = [DOWN] * 6
    async with gateway.kit:
        await gateway.publish(6)
        await gateway.kit.drain()
        await gateway.operations.replay([one.id for one in gateway.kit.dead_letters()], by="ada")
        await gateway.publish(3)
        await gateway.kit.run_for("10s")

        assert Counter(gateway.calls) == {0: 10, 0.5: 1, 1: 1, 1.5: 1, 2: 1, 2.5: 1}


async def test_retries_are_paced_unless_they_are_told_not_to_be(store: str) -> None:
    usual, unbounded = Gateway(store), Gateway(retry_rate=None)

    for gateway in (usual, unbounded):
        gateway.script = [DOWN] * 50
        async with gateway.kit:
            await gateway.publish(50)
            await gateway.kit.run_for("5s")

    assert keeps_to(100, 10, usual.calls[50:])
    assert Counter(unbounded.calls) == {0: 50, 1: 50}


async def test_retry_budget_bounds_retries_by_the_first_attempts_there_were(store: str) -> None:
    """A hundred at once and ten a second are always there; each first attempt adds its share."""
    gateway = Gateway(store, retry_budget=0.5, retry_rate=None)
    gateway.script = [DOWN] * 150
    async with gateway.kit:
        await gateway.publish(150)
        await gateway.kit.run_for("1s")
        await gateway.kit.drain()
        spent = len(gateway.calls) - 150
        held_by = (await gateway.gate()).hold

        await gateway.publish(40)
        await gateway.kit.drain()
        earned = len(gateway.calls) - 150 - spent - 40
        await gateway.kit.run_for("1s")
        floor = len(gateway.calls) - 150 - spent - 40 - earned

        assert (spent, held_by) == (100, Hold.RETRY_BUDGET)
        assert (earned, floor) == (20, 10)


async def test_what_waited_behind_a_breaker_goes_out_at_the_pace_of_retries(store: str) -> None:
    """A destination that has just come back must not be knocked over by what has piled up."""
    gateway = Gateway(
        store, breaker=Breaker(failures=1, open_for="60s", successes=1), retry_rate="5/s"
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.run_for("30s")
        await gateway.publish(20)
        await gateway.kit.run_for("2m")

        assert len(gateway.calls) == 22
        assert keeps_to(5, 1, gateway.calls[2:])


async def test_concurrency_of_a_destination_is_shared_by_all_workers(store: str) -> None:
    app, running, most = Redrive("memory://", poll="10ms"), 0, 0
    may_end, has_two, is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    left = 6

    @app.handler("order.*", concurrency=2)
    async def bill(event: Event[Any]) -> None:
        nonlocal running, most, left
        running += 1
        most = max(most, running)
        if running == 2:
            has_two.set()
        await may_end.wait()
        running -= 1
        left -= 1
        if not left:
            is_done.set()

    async with Kit(app, store=store) as kit, app.worker(), app.worker():
        await app.publish_many([NewEvent(type="order.paid") for _ in range(6)])
        await has_two.wait()
        for _ in range(50):
            await kit.clock.sleep(0)
        in_flight = await app.operations.deliveries(Query(status=Status.IN_FLIGHT))
        hold = (await app.operations.gates())[0].hold
        may_end.set()
        while not is_done.is_set():
            kit.clock.advance("10ms")
            await kit.clock.sleep(0)

    assert most == 2
    assert len(in_flight.deliveries) == 2
    assert hold is Hold.CONCURRENCY


async def test_a_destination_that_asks_for_a_pause_gets_it_from_everybody(store: str) -> None:
    gateway = Gateway(store, concurrency=1)
    gateway.script = [OK, BUSY]
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.drain()
        gate = await gateway.gate()
        await gateway.publish()
        await gateway.kit.run_for("1m")

        assert gate.hold is Hold.SLOWED
        assert Counter(gateway.calls) == {0: 2, 30: 5}
        assert {one.attempts for one in await gateway.pending()} == set()
        assert gateway.states == []


async def test_a_paused_destination_gets_nothing_until_it_is_resumed(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish(3)
        is_new = await gateway.operations.pause("gateway", by="ada", why="they migrate")
        await gateway.kit.run_for("1h")
        gate = await gateway.gate()
        held = await gateway.pending()

        was_paused = await gateway.operations.resume("gateway", by="bob", why="they are done")
        await gateway.kit.run_for("1s")

        assert (is_new, was_paused) == (True, True)
        assert (gate.hold, gate.until) == (Hold.PAUSED, None)
        assert gate.gate.pause is not None
        assert (gate.gate.pause.by, gate.gate.pause.why) == ("ada", "they migrate")
        assert [one.attempts for one in held] == [0, 0, 0]
        assert gateway.calls == [3600] * 3


async def test_pausing_and_resuming_are_on_record_once(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()
        acts = [
            await gateway.operations.pause("gateway", by="ada", why="they migrate"),
            await gateway.operations.pause("gateway", by="bob", why="me too"),
            await gateway.operations.resume("gateway", by="bob", why="they are done"),
            await gateway.operations.resume("gateway", by="ada"),
        ]

        entries = [
            (one.action, one.by, one.why, one.detail) for one in await gateway.operations.audit()
        ]
        assert acts == [True, False, True, False]
        assert entries == [
            ("resume", "bob", "they are done", "gateway"),
            ("pause", "ada", "they migrate", "gateway"),
        ]
        assert [(one.action, one.destination) for one in gateway.recorder.of(Operated)] == [
            ("pause", "gateway"),
            ("resume", "gateway"),
        ]


async def test_what_waited_for_a_pause_to_end_goes_out_at_the_pace_of_retries(store: str) -> None:
    gateway = Gateway(store, retry_rate="5/s")
    async with gateway.kit:
        await gateway.publish(20)
        await gateway.operations.pause("gateway", by="ada")
        await gateway.kit.run_for("1m")
        await gateway.operations.resume("gateway", by="ada")
        await gateway.kit.run_for("10s")

        assert len(gateway.calls) == 20
        assert keeps_to(5, 1, gateway.calls)


async def test_a_breaker_opened_by_hand_stays_open_until_it_is_reset(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker())
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.operations.open_breaker("gateway", by="ada", why="their deploy")
        await gateway.kit.run_for("1d")
        held = list(gateway.calls)
        await gateway.operations.reset_breaker("gateway", by="bob", why="they are done")
        await gateway.kit.drain()

        entries = await gateway.operations.audit()
        assert held == []
        assert len(gateway.calls) == 2
        assert [(one.action, one.by, one.why, one.detail) for one in entries] == [
            ("reset_breaker", "bob", "they are done", "gateway"),
            ("open_breaker", "ada", "their deploy", "gateway"),
        ]
        assert gateway.states == ["open", "closed"]


async def test_a_breaker_opened_by_hand_for_a_while_is_probed_afterwards(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(successes=1))
    async with gateway.kit:
        await gateway.publish(2)
        until = gateway.kit.clock.now() + timedelta(minutes=5)
        await gateway.operations.open_breaker("gateway", by="ada", until=until)
        await gateway.kit.run_for("6m")

        assert gateway.calls == [300, 300]
        assert gateway.states == ["open", "halfopen", "closed"]


async def test_without_a_breaker_one_opened_by_hand_closes_when_its_time_is_over(
    store: str,
) -> None:
    """Nobody counts the probes of a destination without a breaker, so it would never close."""
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish(5)
        until = gateway.kit.clock.now() + timedelta(minutes=5)
        await gateway.operations.open_breaker("gateway", by="ada", until=until)
        await gateway.kit.run_for("6m")

        assert gateway.calls == [300] * 5
        assert gateway.states == ["open", "closed"]
        assert isinstance((await gateway.gate()).gate.breaker, Closed)


async def test_a_breaker_is_not_opened_until_a_time_without_a_zone(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()

        with pytest.raises(ConfigurationError, match="without a time zone"):
            await gateway.operations.open_breaker(
                "gateway",
                by="ada",
                until=datetime(2026, 1, 1),  # noqa: DTZ001 - wrong on purpose
            )


async def test_an_unknown_destination_is_answered_with_the_nearest(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()

        for act in (
            gateway.operations.pause,
            gateway.operations.resume,
            gateway.operations.open_breaker,
            gateway.operations.reset_breaker,
        ):
            with pytest.raises(
                NotFoundError, match="no destination 'gate'; did you mean 'gateway'"
            ):
                await act("gate", by="ada")


async def test_hooks_hear_of_every_change_of_a_breaker(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, successes=1))
    gateway.script = [DOWN]
    heard: list[BreakerChanged] = []

    @gateway.app.on_breaker
    def note(change: BreakerChanged) -> None:
        heard.append(change)

    @gateway.app.on_breaker
    async def fail(change: BreakerChanged) -> None:
        raise RuntimeError("the pager is down")

    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.run_for("2m")
        await gateway.operations.open_breaker("gateway", by="ada")

    assert [(one.change.destination, type(one.change.after), one.by) for one in heard] == [
        ("gateway", Open, ""),
        ("gateway", HalfOpen, ""),
        ("gateway", Closed, ""),
        ("gateway", Open, "ada"),
    ]
    assert [type(one.change.before) for one in heard] == [Closed, Open, HalfOpen, Closed]


async def test_breakers_and_pauses_survive_a_restart(sqlite: str) -> None:
    gateway = Gateway(sqlite, breaker=Breaker(failures=1, open_for="1h"))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish(1)
        await gateway.kit.drain()
        await gateway.operations.pause("gateway", by="ada", why="they migrate")
        before = await gateway.gate()

        await gateway.app.close()
        await gateway.kit.run_for("59m")
        after = await gateway.gate()
        await gateway.operations.resume("gateway", by="ada")
        held_by_the_breaker = await gateway.gate()
        await gateway.kit.run_for("2m")

    assert isinstance(before.gate.breaker, Open)
    assert (after.gate, after.hold) == (before.gate, Hold.PAUSED)
    assert held_by_the_breaker.hold is Hold.BREAKER_OPEN
    assert gateway.calls == [0, 3600]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rate": "fast"}, "rate is 'fast'; write how many in how long, such as \"100/s\""),
        ({"retry_rate": "0/s"}, "retry_rate is '0/s'"),
        ({"replay_rate": 5}, "replay_rate is 5"),
        ({"retry_budget": 1.5}, "retry_budget is 1.5; it is a share"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"breaker": True}, "breaker is True; pass a Breaker"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(options: Any, complaint: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(ConfigurationError) as refused:
        Gateway(**options)

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"failures": 0}, "failures is 0; it is a whole number from 1"),
        ({"rate": 2}, "rate is 2; it is the share of failed calls"),
        ({"open_for": "0s"}, "open_for is 0s; write how long"),
        ({"window": "soon"}, "window is 'soon', which is not a duration"),
        ({"probes": True}, "probes is True"),
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused(fields: Any, complaint: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(ConfigurationError) as refused:
        Breaker(**fields)

    assert complaint in str(refused.value)


async def test_an_override_slows_a_destination_until_it_ends(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.kit.drain()
        await gateway.operations.override(
            "gateway", rate="1/s", lasts="10s", by="ann", why="they asked"
        )
        await gateway.publish(30)

        await gateway.kit.run_for("9s")
        slowed = len(gateway.calls)
        await gateway.kit.run_for("2s")

        assert slowed == 10
        assert len(gateway.calls) == 30


async def test_an_override_lets_a_worker_run_more_at_once() -> None:
    gateway = Gateway(concurrency=1)
    async with gateway.kit:
        await gateway.kit.drain()
        await gateway.operations.override(
            "gateway", concurrency=5, lasts="1h", by="ann", why="they asked"
        )
        await gateway.publish(20)

        await gateway.kit.drain()

        assert max(gateway.claims) == 5
        told = [(one.action, one.destination) for one in gateway.recorder.of(Operated)]
        assert told == [("override", "gateway")]


async def test_an_override_that_is_ended_early_is_over() -> None:
    gateway = Gateway(rate="1/h")
    async with gateway.kit:
        await gateway.kit.drain()
        operations = gateway.operations
        await operations.override("gateway", rate="100/s", lasts="1h", by="ann", why="they asked")

        assert await operations.end_override("gateway", by="ann")
        assert not await operations.end_override("gateway", by="ann")

        assert (await gateway.gate()).override is None


@pytest.mark.parametrize(
    ("limits", "lasts", "why", "said"),
    [
        ({}, "1h", "because", "give a rate or a concurrency"),
        ({"rate": "fast"}, "1h", "because", "rate is 'fast'"),
        ({"concurrency": 0}, "1h", "because", "concurrency is 0"),
        ({"rate": "1/s"}, "0s", "because", "say for how long"),
        ({"rate": "1/s"}, "31d", "because", "at most 30d"),
        ({"rate": "1/s"}, "1h", " ", "A reason is needed to set limits"),
    ],
)
async def test_an_override_that_says_nothing_is_refused(
    limits: dict[str, Any], lasts: str, why: str, said: str
) -> None:
    gateway = Gateway()
    async with gateway.kit:
        with pytest.raises((ConfigurationError, UsageError), match=said):
            await gateway.operations.override("gateway", **limits, lasts=lasts, by="ann", why=why)


async def test_destinations_that_share_a_rate_keep_to_it_together(store: str) -> None:
    gateway = Gateway(store, shared_rate=SharedRate("acme", "2/s"))
    other = SharedRate("acme", Rate(per_second=2.0))
    gateway.app.destination("mail", "order.*", transport=gateway, shared_rate=other)
    async with gateway.kit:
        await gateway.publish(20)
        await gateway.kit.run_for("8s")

        claimed = Counter(
            one.destination for fact in gateway.recorder.of(Claimed) for one in fact.deliveries
        )
        assert keeps_to(2, 1, gateway.calls)
        assert len(gateway.calls) >= 15
        assert abs(claimed["gateway"] - claimed["mail"]) <= 1
        [first, *_] = await gateway.pending()
        story = await gateway.operations.show(first.id)
        assert "shared_rate" in [one.reason for one in story.waiting]


def test_two_rates_under_one_name_are_refused() -> None:
    gateway = Gateway(shared_rate=SharedRate("acme", "2/s"))

    with pytest.raises(ConfigurationError, match="'gateway' and 'mail' share the rate 'acme'"):
        gateway.app.destination(
            "mail", "order.*", transport=gateway, shared_rate=SharedRate("acme", "3/s")
        )


@pytest.mark.parametrize(
    ("name", "rate", "said"),
    [
        ("", "1/s", "shares nothing"),
        ("acme", None, "shares nothing"),
        ("acme", "fast", "rate is 'fast'"),
        (7, "1/s", "name of a shared rate"),
    ],
)
def test_a_shared_rate_that_is_none_is_refused(name: Any, rate: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError, match=said):
        SharedRate(name, rate)


def test_a_shared_rate_has_a_name() -> None:
    with pytest.raises(ConfigurationError, match="shared_rate is '2/s'"):
        Gateway(shared_rate="2/s")  # type: ignore[arg-type]
