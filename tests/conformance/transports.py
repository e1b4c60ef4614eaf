"""The behaviour every way must show, ours and yours, as tests that its author subclasses."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from redrive.clock import SystemClock
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.event import Event, EventId
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Blueprint, Closing, Transport, Way, checked_outcomes
from tests.servers.daemon import free_port
from tests.servers.proxy import Proxy, proxying
from tests.waiting import eventually, spend

__all__ = ["LocalWayConformance", "RemoteWayConformance", "Site", "WayWorld", "a_delivery"]

_A_MOMENT = 0.25
"""When a try is given up that nothing will ever answer."""
_NAME = "service.example"


class Site(ABC):
    """The other end of a way: where it leads, and what has arrived there."""

    port = 0
    """Where the server listens on loopback, if there is one."""
    secrets: tuple[str, ...] = ()
    """What the way is declared with and must never show."""
    lost_after = 1
    """How many bytes the server says before those that acknowledge an event, and one."""
    bad: bytes | None = None
    """A payload that the other end refuses for good, if it looks at payloads."""

    @abstractmethod
    def way(self, host: str, port: int, allow_networks: Sequence[str]) -> Way:
        """Return the way to it, declared anew, by another host and port than its own."""

    @abstractmethod
    async def arrived(self) -> list[str]:
        """Return the ids of the events that have arrived, in order, each as often as it has."""


class WayWorld:
    """A way, a proxy on it, and short words for what happens there.

    `patience` is how many seconds a try may take that must be answered.
    """

    def __init__(self, site: Site, proxy: Proxy, *, patience: float) -> None:
        self.site = site
        self.patience = patience
        self.proxy = proxy
        self._built: list[Transport] = []
        self.transport = self.build()

    def build(
        self,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        allow_networks: Sequence[str] = ("127.0.0.0/8",),
    ) -> Transport:
        """Return a transport as a worker has it."""
        way = self.site.way(host, self.proxy.port if port is None else port, allow_networks)
        transport = (
            way.build(terms=Terms(), clock=SystemClock()) if isinstance(way, Blueprint) else way
        )
        self._built.append(transport)
        return transport

    async def send(
        self, *deliveries: Leased, by: Transport | None = None, within: float | None = None
    ) -> Sequence[Outcome]:
        """Try these once, as a worker does: what takes too long is cancelled."""
        transport = self.transport if by is None else by
        async with asyncio.timeout(within or self.patience):
            return checked_outcomes(await transport.send(deliveries), len(deliveries))

    async def deliver(self, *deliveries: Leased) -> None:
        """Send what must arrive."""
        assert [one for one in await self.send(*deliveries) if not isinstance(one, Succeeded)] == []

    async def fail(self, delivery: Leased, *, by: Transport | None = None) -> Faulted:
        """Send what cannot arrive."""
        [outcome] = await self.send(delivery, by=by)
        assert isinstance(outcome, Faulted)
        self.check(outcome)
        return outcome

    async def give_up(self, delivery: Leased) -> None:
        """Send what nobody answers, until its time is over."""
        with pytest.raises(TimeoutError):
            await self.send(delivery, within=_A_MOMENT)

    async def deliver_in_time(self, delivery: Leased) -> None:
        """Send until it arrives, as a worker does: what is broken may be found out by a try."""
        for _ in range(2):
            with suppress(TimeoutError):
                [outcome] = await self.send(delivery, within=self.patience / 4)
                if isinstance(outcome, Succeeded):
                    return
                assert isinstance(outcome, Faulted)
                assert outcome.nature is not Nature.TERMINAL
                self.check(outcome)
        await self.deliver(delivery)

    def check(self, outcome: Faulted) -> None:
        """Look at what a failure says, and what it does not."""
        assert outcome.fault.rule
        assert outcome.fault.rule != "default"
        told = msgspec.json.encode(outcome).decode()
        for secret in self.site.secrets:
            assert secret not in told

    async def close(self) -> None:
        """Let go of every connection, as a worker does that ends."""
        for one in self._built:
            if isinstance(one, Closing):
                await one.close()


class LocalWayConformance:
    """What holds of every way, also of one that leads to no server."""

    @pytest.fixture
    def site(self) -> Site:
        """The other end; a subclass says which."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def world(self, site: Site) -> AsyncIterator[WayWorld]:
        async with a_world(site) as world:
            yield world

    async def test_each_event_arrives_once_and_in_order(self, world: WayWorld) -> None:
        deliveries = [a_delivery(number) for number in range(1, 4)]

        for one in deliveries:
            await world.deliver(one)

        assert await world.site.arrived() == [one.event.id for one in deliveries]

    async def test_a_batch_has_an_outcome_for_each_and_arrives_in_order(
        self, world: WayWorld
    ) -> None:
        deliveries = [a_delivery(number) for number in range(1, 1 + min(world.transport.batch, 5))]

        await world.deliver(*deliveries)

        assert await world.site.arrived() == [one.event.id for one in deliveries]

    async def test_many_at_once_do_not_mix_up_their_outcomes(self, world: WayWorld) -> None:
        bad = world.site.bad
        sound = [a_delivery(number) for number in range(1, 21)]
        unsound = [] if bad is None else [a_delivery(number, bad) for number in range(21, 24)]

        async with asyncio.TaskGroup() as group:
            good = [group.create_task(world.send(one)) for one in sound[:10]]
            poor = [group.create_task(world.send(one)) for one in unsound]
            good += [group.create_task(world.send(one)) for one in sound[10:]]

        assert {type(task.result()[0]) for task in good} == {Succeeded}
        assert all(type(task.result()[0]) is Faulted for task in poor)
        assert sorted(await world.site.arrived()) == [one.event.id for one in sound]

    async def test_one_bad_event_does_not_condemn_those_beside_it(self, world: WayWorld) -> None:
        if world.site.bad is None:
            return  # nothing that JSON can say is bad there
        good, bad, best = a_delivery(1), a_delivery(2, world.site.bad), a_delivery(3)
        together = [good, bad, best]
        size = world.transport.batch

        outcomes: list[Outcome] = []
        for begin in range(0, 3, size):
            outcomes += await world.send(*together[begin : begin + size])

        assert [type(one) for one in outcomes] == [Succeeded, Faulted, Succeeded]
        assert isinstance(outcomes[1], Faulted)
        assert outcomes[1].nature is Nature.TERMINAL
        world.check(outcomes[1])
        assert await world.site.arrived() == [good.event.id, best.event.id]

    async def test_it_may_be_closed_at_any_time_and_used_again(self, world: WayWorld) -> None:
        await world.close()
        await world.deliver(a_delivery(1))
        await world.close()
        await world.close()
        await world.deliver(a_delivery(2))

        assert await world.site.arrived() == [a_delivery(1).event.id, a_delivery(2).event.id]

    async def test_the_declaration_shows_no_secret(self, world: WayWorld) -> None:
        shown = repr(world.site.way("127.0.0.1", world.proxy.port, ("127.0.0.1",)))

        for secret in world.site.secrets:
            assert secret not in shown


class RemoteWayConformance(LocalWayConformance):
    """What holds of a way to a server: it may be away, silent, slow or back at any moment."""

    async def test_what_is_not_answered_in_time_can_be_ended_and_sent_again(
        self, world: WayWorld
    ) -> None:
        await world.deliver(a_delivery(1))
        world.proxy.stall()
        await world.give_up(a_delivery(2))
        world.proxy.resume()
        await world.deliver_in_time(a_delivery(2))

        arrived = await world.site.arrived()
        assert list(dict.fromkeys(arrived)) == [a_delivery(1).event.id, a_delivery(2).event.id]
        assert len(arrived) in {2, 3}

    async def test_a_server_that_never_greets_holds_nobody_up_for_longer(
        self, world: WayWorld
    ) -> None:
        world.proxy.stall()
        for _ in range(3):
            await world.give_up(a_delivery(1))
        world.proxy.resume()

        await world.deliver_in_time(a_delivery(1))

    async def test_one_that_is_cancelled_leaves_the_others_alone(self, world: WayWorld) -> None:
        await world.deliver(a_delivery(1))
        world.proxy.delay(0.1)
        tasks = [asyncio.create_task(world.send(a_delivery(number))) for number in range(2, 8)]
        await spend(0)
        tasks[2].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        world.proxy.delay(0)

        assert isinstance(ends.pop(2), asyncio.CancelledError)
        assert all(isinstance(end, list | tuple) and type(end[0]) is Succeeded for end in ends)
        arrived = set(await world.site.arrived())
        assert {a_delivery(number).event.id for number in (1, 2, 3, 5, 6, 7)} <= arrived

    async def test_who_is_not_there_is_tried_again(self, world: WayWorld) -> None:
        nowhere = world.build(port=free_port())

        outcome = await world.fail(a_delivery(1), by=nowhere)

        assert outcome.nature is Nature.TRANSIENT
        assert outcome.fault.rule.startswith("network: ")
        assert outcome.fault.stack == ""

    async def test_a_connection_that_fell_silent_is_not_used_again(self, world: WayWorld) -> None:
        await world.deliver(a_delivery(1))
        world.proxy.freeze()
        with suppress(TimeoutError):
            await world.send(a_delivery(2), within=_A_MOMENT)

        await world.deliver_in_time(a_delivery(3))

        assert (await world.site.arrived())[-1] == a_delivery(3).event.id

    async def test_a_server_that_restarts_is_found_again(self, world: WayWorld) -> None:
        await world.deliver(a_delivery(1))
        world.proxy.reset()
        await eventually(lambda: world.proxy.carried == 0, what="the connections are gone")

        await world.deliver_in_time(a_delivery(2))

        assert (await world.site.arrived())[-1] == a_delivery(2).event.id

    async def test_a_slow_answer_is_an_answer(self, world: WayWorld) -> None:
        world.proxy.delay(0.05)

        await world.deliver(a_delivery(1))

        assert await world.site.arrived() == [a_delivery(1).event.id]

    async def test_an_answer_that_is_lost_is_no_success_and_a_repeat_has_the_same_id(
        self, world: WayWorld
    ) -> None:
        await world.deliver(a_delivery(1))
        world.proxy.cut_after(world.site.lost_after)
        lost = await world.fail(a_delivery(2))
        await world.deliver_in_time(a_delivery(2))

        assert lost.nature is Nature.TRANSIENT
        arrived = await world.site.arrived()
        assert list(dict.fromkeys(arrived)) == [a_delivery(1).event.id, a_delivery(2).event.id]
        assert len(arrived) in {2, 3}

    async def test_a_close_closes_its_connections(self, world: WayWorld) -> None:
        await world.deliver(a_delivery(1))
        connected = world.proxy.carried

        await world.close()

        assert connected >= 1
        await eventually(
            lambda: world.proxy.carried == 0,
            what="no connection is left",
            within=world.patience,
        )

    async def test_connections_are_used_again(self, world: WayWorld) -> None:
        for number in range(1, 6):
            await world.deliver(a_delivery(number))

        assert world.proxy.accepted == 1

    async def test_an_address_that_is_not_allowed_is_never_connected_to(
        self, world: WayWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The name is a public one when it is declared, and leads inside when it is used."""
        loop = asyncio.get_running_loop()

        async def inside(host: object, port: int, **_: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", inside)
        transport = world.build(host=_NAME, allow_networks=())

        outcome = await world.fail(a_delivery(1), by=transport)

        assert outcome.nature is Nature.TERMINAL
        assert outcome.fault.rule == "address not allowed"
        assert world.proxy.accepted == 0


@asynccontextmanager
async def a_world(site: Site, *, patience: float = 20.0) -> AsyncIterator[WayWorld]:
    """Put a proxy before the other end, and let go of everything afterwards."""
    async with proxying("127.0.0.1", site.port) as proxy:
        world = WayWorld(site, proxy, patience=patience)
        try:
            yield world
        finally:
            proxy.resume()
            await world.close()


def a_delivery(number: int, payload: bytes = b'{"order":42}') -> Leased:
    """Return a delivery that is the same each time."""
    now = SystemClock().now()
    return Leased(
        lease=Lease(DeliveryId(number), 1),
        destination="there",
        event=Event(
            id=EventId(f"01890000-0000-7000-8000-{number:012x}"),
            type="order.paid",
            payload=msgspec.Raw(payload),
            published_at=now,
            occurred_at=now,
        ),
        attempt=1,
        kind=Kind.FIRST,
        claimed_at=now,
        enqueued_at=now,
    )
