"""Outages: health checks, giving up instead of waiting, the ramp afterwards, and profiles."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from redrive import (
    Breaker,
    ConfigurationError,
    DeadLettered,
    DestinationPaused,
    Event,
    HealthCheck,
    Query,
    Rate,
    Redrive,
    Retry,
    http,
)
from redrive.app.declaration import Ports, declare_destination, declare_handler
from redrive.model.delivery import Kind, Status
from redrive.model.gate import Hold, Open
from redrive.model.outcome import Fault, Faulted, Nature
from redrive.model.settlement import FailureReason
from redrive.observer import HealthChecked, Operated
from redrive.policies.profiles import PROFILES
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.testing.fakes import InlineExecutor
from tests.app.test_limits import DOWN, EVERY_SECOND, OK, Gateway
from tests.waiting import PATIENCE_SECONDS

GONE = Faulted(
    fault=Fault(error_class="HTTP 410", message="gone", rule="410 gone", code="410"),
    nature=Nature.TERMINAL,
    pause="the gateway answered 410 Gone",
)
LONG = Breaker(failures=1, open_for="10m", successes=2)


class Health:
    """A health check that answers as it is told, and remembers the second of each question."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []
        self.gateway: Gateway | None = None

    def of(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def answer(self) -> object:
        assert self.gateway is not None
        self.asked.append(self.gateway.kit.clock.monotonic())
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


def checked(store: str, health: Health, *, breaker: Breaker = LONG, every: str = "5s") -> Gateway:
    async def ask() -> object:
        return health.answer()

    gateway = Gateway(store, breaker=breaker, health=HealthCheck(ask, every=every))
    health.of(gateway)
    return gateway


async def time_passes(gateway: Gateway) -> None:
    """Let a little time pass, and whoever has something to do about it do so, threads too."""
    gateway.kit.clock.advance("250ms")
    for _ in range(5):
        await gateway.operations.gates()
        await gateway.kit.clock.sleep(0)


async def test_a_healthy_answer_ends_the_open_time_early(store: str) -> None:
    """It moves the breaker, and is the first of the probes that must succeed."""
    health = Health(*[False], ConnectionError("refused"), None)
    gateway = checked(store, health)
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("1m")

        assert health.asked == [5, 10, 15]
        assert gateway.states == ["open", "halfopen", "closed"]
        assert set(gateway.calls) == {0, 15}
        assert [one.error for one in gateway.recorder.of(HealthChecked)] == [
            "it returned False",
            "ConnectionError: refused",
            "",
        ]


async def test_a_healthy_answer_may_be_all_the_successes_there_have_to_be(store: str) -> None:
    health = Health()
    gateway = checked(store, health, breaker=Breaker(failures=1, open_for="10m", successes=1))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("1m")

        assert gateway.states == ["open", "closed"]


async def test_every_is_how_often_the_health_is_asked_for(store: str) -> None:
    health = Health(*[False] * 100)
    gateway = checked(store, health, every="20s")
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.run_for("90s")

        assert health.asked == [20, 40, 60, 80]
        assert isinstance((await gateway.gate()).gate.breaker, Open)


async def test_timeout_of_a_check_is_how_long_an_answer_may_take(store: str) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    gateway = Gateway(store, breaker=LONG, health=HealthCheck(hang, timeout="3s"))
    gateway.script = [DOWN]
    async with gateway.kit, gateway.app.worker():
        await gateway.publish()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not gateway.recorder.of(HealthChecked):
                await time_passes(gateway)

        assert gateway.recorder.of(HealthChecked)[0].error == "no answer within 3s"
        assert isinstance((await gateway.gate()).gate.breaker, Open)


async def test_a_plain_function_is_asked_in_a_thread(store: str) -> None:
    """It may block, and must not keep the event loop of the handlers."""
    asked_on: list[threading.Thread] = []

    def ask() -> None:
        asked_on.append(threading.current_thread())

    app = Redrive(store)
    answers = [ConnectionError("refused")]

    @app.handler(
        "order.*",
        breaker=Breaker(failures=1, open_for="1h", successes=1),
        health=HealthCheck(ask, every="50ms"),
        retry=Retry(base="1ms", cap="1ms"),
    )
    async def bill(event: Event[Any]) -> None:
        if answers:
            raise answers.pop()
        is_done.set()

    is_done = asyncio.Event()
    async with app, app.worker():
        await app.publish("order.paid")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_done.wait()

    assert len(asked_on) == 1
    assert asked_on[0] is not threading.main_thread()


async def test_health_is_asked_for_only_while_the_breaker_is_open(store: str) -> None:
    health = Health()
    gateway = checked(store, health)
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.run_for("10m")
        await gateway.publish(5)
        await gateway.kit.run_for("10m")

        assert health.asked == []


async def test_a_breaker_that_a_person_opened_without_an_end_is_not_checked(store: str) -> None:
    health = Health()
    gateway = checked(store, health)
    async with gateway.kit:
        await gateway.publish()
        await gateway.operations.open_breaker("gateway", by="ada")
        for _ in range(10):
            await gateway.kit.run_for("10s")

        assert health.asked == []
        assert gateway.calls == []


async def test_of_many_workers_one_asks_at_a_time(store: str) -> None:
    health = Health(*[False] * 100)
    gateway = checked(store, health)
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        async with gateway.app.worker(), gateway.app.worker(), gateway.app.worker():
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(health.asked) < 4:
                    await time_passes(gateway)

        assert len(health.asked) <= health.asked[-1] // 5


async def test_on_open_gives_up_what_comes_due_while_the_breaker_is_open(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=2, open_for="10m", on_open="dead_letter"),
        concurrency=1,
    )
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(300)
        await gateway.kit.drain()
        letters = gateway.kit.dead_letters()
        await gateway.kit.run_for("2s")

        given_up = gateway.kit.dead_letters()
        [group] = await gateway.operations.groups()
        assert len(gateway.calls) == 2
        assert len(letters) == 298
        assert len(given_up) == 300
        assert {one.reason for one in given_up} == {FailureReason.CIRCUIT_OPEN}
        assert Counter(one.attempts for one in given_up) == {0: 299, 1: 1}
        assert (group.count, group.error_class) == (300, "CircuitOpen")
        assert len(gateway.recorder.of(DeadLettered)) == 300


async def test_what_was_given_up_can_be_replayed_when_the_destination_is_back(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=1, open_for="1m", successes=1, on_open="dead_letter"),
        concurrency=1,
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.run_for("2m")
        ids = [one.id for one in gateway.kit.dead_letters()]
        await gateway.operations.replay(ids, by="ada")
        await gateway.kit.run_for("1m")

        assert len(ids) == 5
        assert gateway.kit.dead_letters() == []
        assert len(gateway.calls) == 6


async def test_a_pause_holds_even_what_would_be_given_up(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, on_open="dead_letter"))
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.operations.open_breaker("gateway", by="ada")
        await gateway.operations.pause("gateway", by="ada", why="not one more")
        await gateway.kit.run_for("1h")

        assert gateway.kit.dead_letters() == []
        assert len(await gateway.pending()) == 5


async def test_what_is_not_due_is_not_given_up(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, on_open="dead_letter"))
    async with gateway.kit:
        await gateway.app.publish("order.paid", due="1h")
        await gateway.operations.open_breaker("gateway", by="ada")
        await gateway.kit.run_for("59m")
        early = gateway.kit.dead_letters()
        await gateway.kit.run_for("2m")
        await gateway.kit.drain()

        assert early == []
        assert [one.reason for one in gateway.kit.dead_letters()] == [FailureReason.CIRCUIT_OPEN]


async def test_what_is_behind_another_of_its_key_is_not_given_up_before_it(store: str) -> None:
    """Parked behind the first one, the rest of the key waits for what becomes of it."""
    gateway = Gateway(store, breaker=Breaker(failures=1, on_open="dead_letter"), order="park")
    async with gateway.kit:
        for number in range(3):
            await gateway.app.publish("order.paid", number, key="order-42")
        await gateway.operations.open_breaker("gateway", by="ada")
        await gateway.kit.drain()

        [letter] = gateway.kit.dead_letters()
        assert [one.behind for one in await gateway.pending()] == [letter.id] * 2


async def test_over_retry_rate_gives_up_the_retries_above_it(store: str) -> None:
    gateway = Gateway(store, retry_rate=Rate(per_second=1, burst=4), over_retry_rate="dead_letter")
    gateway.script = [DOWN] * 10
    async with gateway.kit:
        await gateway.publish(10)
        await gateway.kit.run_for("1s")
        await gateway.kit.drain()

        letters = gateway.kit.dead_letters()
        assert Counter(gateway.calls) == {0: 10, 1: 4}
        assert {one.reason for one in letters} == {FailureReason.RETRY_RATE_LIMITED}
        assert [one.attempts for one in letters] == [1] * 6
        assert "retry_rate of gateway" in str(letters[0].fault and letters[0].fault.message)


async def test_retries_above_their_rate_wait_unless_told_otherwise(store: str) -> None:
    gateway = Gateway(store, retry_rate=Rate(per_second=1, burst=4))
    gateway.script = [DOWN] * 10
    async with gateway.kit:
        await gateway.publish(10)
        await gateway.kit.run_for("1m")

        assert gateway.kit.dead_letters() == []
        assert len(gateway.calls) == 20


async def test_first_attempts_are_never_given_up_for_the_rate_of_retries(store: str) -> None:
    """What has waited behind a breaker pays as retries do, and is not one."""
    gateway = Gateway(
        store,
        breaker=Breaker(failures=1, successes=1, open_for="10s"),
        retry_rate=Rate(per_second=1, burst=1),
        over_retry_rate="dead_letter",
    )
    async with gateway.kit:
        await gateway.operations.pause("gateway", by="ada")
        await gateway.publish(5)
        await gateway.operations.resume("gateway", by="ada")
        await gateway.kit.run_for("1m")

        assert gateway.kit.dead_letters() == []
        assert len(gateway.calls) == 5


async def test_no_stampede_follows_an_outage_though_nothing_else_bounds_it(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=1, successes=1, open_for="1m"),
        retry_rate=None,
        replay_rate=None,
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(1_000)
        await gateway.kit.run_for("61s")

        assert 10 <= len(gateway.calls) - 2 <= 10 + 13
        assert len(await gateway.pending()) >= 1_000 - 23


async def test_ramp_is_how_long_the_pace_of_what_waited_grows() -> None:
    gateway = Gateway(
        breaker=Breaker(failures=1, successes=1, open_for="1m", ramp="5s"), retry_rate=None
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(400)
        await gateway.kit.run_for("66s")

        seconds = Counter(int(one - 60) for one in gateway.calls[1:])
        assert sum(seconds.values()) == 401
        assert 3 * seconds[0] < seconds[1] + seconds[2]
        assert seconds[0] <= 1 + 10 + 40


async def test_without_a_ramp_everything_goes_out_at_once(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=1, successes=1, open_for="1m", ramp="0s"),
        retry_rate=None,
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(500)
        await gateway.kit.run_for("61s")

        assert Counter(gateway.calls) == {0: 1, 60: 501}


async def test_a_ramp_slows_what_waited_and_not_what_is_new(store: str) -> None:
    gateway = Gateway(
        store, breaker=Breaker(failures=1, successes=1, open_for="1m"), retry_rate="20/s"
    )
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(60)
        await gateway.kit.run_for("61s")
        await gateway.kit.drain()
        held = (await gateway.gate()).hold
        before = len(gateway.calls)
        await gateway.publish(40)
        await gateway.kit.drain()

        assert held is Hold.RAMP
        assert len(gateway.calls) - before == 40


async def test_a_destination_that_is_gone_is_paused_once(store: str) -> None:
    gateway = Gateway(store, concurrency=1)
    gateway.script = [OK]
    gateway.answer = GONE
    heard: list[DestinationPaused] = []
    gateway.app.on_pause(heard.append)
    async with gateway.kit:
        await gateway.publish(10)
        await gateway.kit.run_for("1h")

        gate = await gateway.gate()
        [entry] = await gateway.operations.audit()
        assert len(gateway.calls) == 2
        assert gate.hold is Hold.PAUSED
        assert gate.gate.pause is not None
        assert (gate.gate.pause.by, gate.gate.pause.why) == (
            "redrive",
            "the gateway answered 410 Gone",
        )
        assert (entry.action, entry.by, entry.why, entry.detail) == (
            "pause",
            "redrive",
            "the gateway answered 410 Gone",
            "gateway",
        )
        assert [one.reason for one in gateway.kit.dead_letters()] == [FailureReason.TERMINAL]
        assert len(await gateway.pending()) == 8
        assert heard == [
            DestinationPaused(destination="gateway", why="the gateway answered 410 Gone")
        ]
        assert gateway.recorder.of(Operated) == []


async def test_several_answers_at_once_pause_a_destination_once(store: str) -> None:
    gateway = Gateway(store)
    gateway.answer = GONE
    async with gateway.kit:
        await gateway.publish(30)
        await gateway.kit.drain()

        assert len(gateway.recorder.of(DestinationPaused)) == 1
        assert [one.action for one in await gateway.operations.audit()] == ["pause"]


async def test_a_gone_destination_goes_on_when_a_person_resumes_it(store: str) -> None:
    gateway = Gateway(store, concurrency=1)
    gateway.script = [GONE]
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("1h")
        await gateway.operations.resume("gateway", by="ada", why="they gave us a new address")
        await gateway.kit.run_for("1m")

        assert len(gateway.calls) == 3
        assert await gateway.pending() == ()


def options_of(**options: Any) -> Any:  # noqa: ANN401 - what a declaration holds
    return declare_handler(print, ("order.*",), {"name": "billing", **options}, Ports())


def test_profile_sets_breaker_retries_and_time_out_together() -> None:
    read = {name: options_of(profile=name) for name in PROFILES}

    assert {
        name: (
            one.destination.limits.breaker.failures,
            one.destination.limits.breaker.open_for,
            one.terms.retry.max_attempts,
            one.terms.retry.base,
            one.terms.timeout,
        )
        for name, one in read.items()
    } == {
        "high_traffic": (
            10,
            timedelta(seconds=60),
            3,
            timedelta(seconds=1),
            timedelta(seconds=3),
        ),
        "development": (
            3,
            timedelta(seconds=10),
            4,
            timedelta(seconds=1),
            timedelta(seconds=10),
        ),
        "critical": (
            20,
            timedelta(seconds=120),
            6,
            timedelta(seconds=2),
            timedelta(seconds=30),
        ),
    }


async def test_a_profile_is_felt_by_its_destination(store: str) -> None:
    gateway = Gateway(store, profile="development", retry=EVERY_SECOND, concurrency=1)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(9)
        await gateway.kit.run_for("9s")

        assert len(gateway.calls) == 3
        assert gateway.states == ["open"]


def test_an_explicit_option_wins_over_the_profile() -> None:
    plain = options_of(profile="critical", timeout="7s", breaker=None)
    way = http("https://api.example.com")
    web = declare_destination("crm", ("order.*",), way, {"profile": "high_traffic"})

    assert (plain.terms.timeout, plain.destination.limits.breaker) == (timedelta(seconds=7), None)
    assert plain.terms.retry.max_attempts == 6
    assert web.destination.limits.breaker == Breaker(failures=10, open_for="60s")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"profile": "hightraffic"}, "no profile 'hightraffic'; did you mean 'high_traffic'?"),
        ({"over_retry_rate": "drop"}, "nothing that was published is ever dropped"),
        ({"over_retry_rate": "wait"}, "over_retry_rate is 'wait'; it is one of delay, dead_letter"),
        ({"health": print}, "pass a HealthCheck"),
        ({"health": HealthCheck(print)}, "this destination has no breaker"),
        ({"health": HealthCheck("/health"), "breaker": Breaker()}, "only http(...) can do"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: Any, complaint: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(ConfigurationError) as refused:
        options_of(**options)

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Breaker(on_open="drop"), "on_open is 'drop'; it is one of hold, dead_letter"),  # type: ignore[arg-type]
        (lambda: Breaker(ramp="soon"), "ramp is 'soon'"),
        (lambda: HealthCheck(7), "A health check asks 7"),  # type: ignore[arg-type]
        (lambda: HealthCheck(""), "A health check asks ''"),
        (lambda: HealthCheck(print, every="0s"), "every of a health check is 0s"),
        (lambda: HealthCheck("/", method="POST"), "method is 'POST'; it is GET or HEAD"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_makes_no_sense_is_refused(make: Any, complaint: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(ConfigurationError) as refused:
        make()

    assert complaint in str(refused.value)


async def test_outages_survive_a_restart(sqlite: str) -> None:
    """A new process neither resets the breaker nor begins the ramp anew."""
    gateway = Gateway(sqlite, breaker=Breaker(failures=1, successes=1, open_for="1m"))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        await gateway.publish(60)
        await gateway.kit.run_for("60s")
        await gateway.kit.drain()
        before = (await gateway.gate()).gate
        await gateway.app.close()
        await gateway.app.open()

        assert before.ramp.at is not None
        assert (await gateway.gate()).gate == before


async def test_a_held_replay_is_slowed_by_the_ramp_too(store: str) -> None:
    gateway = Gateway(
        store,
        breaker=Breaker(failures=100, successes=1),
        replay_rate=None,
        retry=Retry(max_attempts=1),
    )
    gateway.script = [DOWN] * 50
    async with gateway.kit:
        await gateway.publish(50)
        await gateway.kit.drain()
        await gateway.operations.open_breaker("gateway", by="ada")
        await gateway.operations.replay([one.id for one in gateway.kit.dead_letters()], by="ada")
        await gateway.operations.reset_breaker("gateway", by="ada")
        await gateway.kit.drain()

        page = await gateway.operations.deliveries(Query(status=Status.PENDING))
        assert len(gateway.calls) == 50 + 10
        assert {one.kind for one in page.deliveries} == {Kind.REPLAY}


async def test_an_exhausted_delivery_is_a_failure_of_its_destination(store: str) -> None:
    """It ends its way in good order, and must not pass for a success."""
    gateway = Gateway(
        store, breaker=Breaker(failures=3), retry=Retry(max_attempts=1), concurrency=1
    )
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(5)
        await gateway.kit.drain()

        assert len(gateway.calls) == 3
        assert gateway.states == ["open"]
        assert {one.reason for one in gateway.kit.dead_letters()} == {FailureReason.EXHAUSTED}


async def test_a_worker_whose_clock_is_wrong_keeps_to_that_of_the_store() -> None:
    app, theirs, ours = Redrive("memory://"), FakeClock(), FakeClock()
    ours.advance("3h")
    store = MemoryStore(theirs)

    @app.handler("order.*", name="billing", retry=Retry(base="1s", jitter="none"))
    async def bill(event: Event[Any]) -> None:
        raise ConnectionError("refused")

    with app.rewired(Ports(clock=ours, executor=InlineExecutor()), lambda: store):
        await app.publish("order.paid")
        await app.drain()
        [waiting] = (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries
        await app.close()

    assert waiting.due == theirs.now() + timedelta(seconds=1)
    assert (waiting.attempts, waiting.crashes) == (1, 0)
