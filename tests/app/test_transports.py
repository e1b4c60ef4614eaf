"""Transports of your own: handed deliveries, made for each worker, closed when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from redrive import Query, Redrive, Retry, Terminal, Throttled
from redrive.app.declaration import Declaration
from redrive.clock import Clock
from redrive.model.delivery import Leased, Status
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.testing import Kit


class Plain:
    """The least a transport must be."""

    batch = 1

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [Succeeded()] * len(deliveries)


class Line(Plain):
    """A transport that holds a connection."""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.story.append("sent")
        return await super().send(deliveries)

    async def close(self) -> None:
        self.story.append("closed")


class Plan:
    """A blueprint that remembers what it was given and what it has made."""

    def __init__(self) -> None:
        self.built: list[Line] = []
        self.clocks: list[Clock] = []
        self.terms: list[Terms] = []

    def build(self, *, terms: Terms, clock: Clock) -> Line:
        self.terms.append(terms)
        self.clocks.append(clock)
        self.built.append(Line())
        return self.built[-1]


async def test_a_transport_that_holds_nothing_open_needs_no_close() -> None:
    app = Redrive("memory://")
    app.destination("plain", "order.*", transport=Plain())

    async with app:
        await app.publish("order.paid")

        assert (await app.drain()).delivered == 1


async def test_a_transport_is_closed_when_its_worker_ends_and_used_again_by_the_next() -> None:
    app, line = Redrive("memory://"), Line()
    app.destination("line", "order.*", transport=line)

    async with app:
        for _ in range(2):
            await app.publish("order.paid")
            await app.drain()

    assert line.story == ["sent", "closed", "sent", "closed"]


async def test_a_transport_that_cannot_be_closed_is_no_secret_and_costs_no_delivery() -> None:
    class Jammed(Line):
        async def close(self) -> None:
            raise OSError("the line is jammed")

    app, beside = Redrive("memory://"), Line()
    app.destination("jammed", "order.*", transport=Jammed())
    app.destination("beside", "order.*", transport=beside)

    async with app:
        await app.publish("order.paid")
        with pytest.raises(OSError, match="the line is jammed"):
            await app.drain()
        status = await app.operations.status()

    assert [one.delivered for one in status.destinations] == [1, 1]
    assert beside.story == ["sent", "closed"]


async def test_every_worker_has_a_transport_of_its_own_from_a_blueprint() -> None:
    app, plan = Redrive("memory://"), Plan()
    app.destination("line", "order.*", transport=plan, timeout="7s")
    declared = len(plan.built)

    async with app:
        for _ in range(2):
            await app.publish("order.paid")
            await app.drain()

    assert declared == 0
    assert [one.story for one in plan.built] == [["sent", "closed"]] * 2
    assert {one.timeout.total_seconds() for one in plan.terms} == {7}


async def test_a_blueprint_is_built_with_the_clock_of_the_app() -> None:
    app, plan = Redrive("memory://"), Plan()
    app.destination("line", "order.*", transport=plan)

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        assert plan.clocks == [kit.clock]


class Raising(Plain):
    """A transport that raises what it was given."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (KeyError("iban"), "destination says terminal: LookupError"),
        (Terminal("no"), "raised Terminal"),
    ],
)
async def test_what_a_transport_raises_is_classified_as_from_a_handler(
    error: Exception, rule: str
) -> None:
    app = Redrive("memory://")
    app.destination("line", "order.*", transport=Raising(error), terminal=(LookupError,))

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        [letter] = (await kit.operations.dead_letters()).deliveries
    assert (letter.reason, letter.fault and letter.fault.rule) == ("terminal", rule)


@pytest.mark.parametrize("nature", list(Nature))
async def test_a_pause_that_a_transport_asks_for_counts_whatever_the_failure(
    nature: Nature, store: str
) -> None:
    class Gone(Plain):
        async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
            fault = Fault(error_class="Gone", message="moved", rule="test")
            return [Faulted(fault=fault, nature=nature, pause="moved away") for _ in deliveries]

    app = Redrive("memory://")
    app.destination("line", "order.*", transport=Gone(), retry=Retry(max_attempts=3))

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()

        [gate] = await kit.operations.gates()
    assert gate.gate.pause is not None
    assert (gate.gate.pause.by, gate.gate.pause.why) == ("redrive", "moved away")


async def test_a_handler_that_is_throttled_holds_its_destination_and_spends_no_attempt(
    store: str,
) -> None:
    app, calls = Redrive("memory://"), 0

    @app.handler("order.*", name="billing", concurrency=1)
    async def bill(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Throttled("too many", retry_after="30s")

    async with Kit(app, store=store) as kit:
        for _ in range(3):
            await app.publish("order.paid")
        await kit.drain()
        held = await kit.operations.deliveries(Query(status=Status.PENDING))
        until = kit.clock.now()
        tally = await kit.drain(until="1m")

    assert calls == 4
    assert len(held.deliveries) == 3
    assert {one.attempts for one in held.deliveries} == {0}
    assert (tally.delivered, tally.failed) == (3, 0)
    assert (kit.clock.now() - until).total_seconds() >= 30


class Wrong(Plain):
    """A transport that answers what it is told to."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def send(self, deliveries: Sequence[Leased]) -> Any:  # noqa: ANN401 - that is what is wrong
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Nothing:
    """An object that has nothing of a transport, and says so loudly."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - it never answers
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise LookupError(f"no {name} here")


_FAULT = Faulted(fault=cast("Fault", None), nature=Nature.TRANSIENT)


@pytest.mark.parametrize(
    ("transport", "says"),
    [
        (Wrong(None), "send answered None; it must return one outcome for each of 1"),
        (Wrong([]), "send answered 0 of them"),
        (Wrong([Succeeded(), Succeeded()]), "send answered 2 of them"),
        (Wrong(["fine"]), "send answered 'fine' for a delivery"),
        (Wrong([_FAULT]), "Expected `object`, got `null`"),
        (Wrong(LookupError("lost")), "lost"),
        (Wrong(SystemExit("bye")), "bye"),
        (Nothing(), "no send here"),
    ],
)
async def test_a_mistake_of_one_transport_fails_its_deliveries_and_no_others(
    transport: Any,  # noqa: ANN401 - none of them is one
    says: str,
) -> None:
    app = Redrive("memory://")
    app.destination("sound", "order.*", transport=Plain())
    app.destination("broken", "order.*", transport=Plain(), retry=Retry(max_attempts=1))
    declared = app._declared["broken"]  # noqa: SLF001 - no declaration would take it
    app._declared["broken"] = Declaration(  # noqa: SLF001
        declared.destination, declared.terms, lambda _: transport
    )

    async with app:
        await app.publish("order.paid", 1)
        await app.publish("order.paid", 2)
        tally = await app.drain()
        letters = (await app.operations.dead_letters()).deliveries

    assert (tally.delivered, tally.failed) == (2, 2)
    assert [one.destination for one in letters] == ["broken"] * 2
    assert all(one.fault is not None and says in one.fault.message for one in letters)
