"""Transports of your own: handed deliveries, made for each worker, closed when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from redrive import Redrive
from redrive.clock import Clock
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded
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
