"""Fairness between tenants, as it is felt by a destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Unpack

import pytest

from redrive import ConfigurationError, Event, Fairness, NewEvent, NotFoundError, Redrive
from redrive.app.config import AppOptions
from redrive.errors import UsageError
from redrive.model.delivery import Leased
from redrive.model.gate import Hold
from redrive.model.outcome import Outcome, Succeeded
from redrive.observer import Operated
from redrive.operations import Operations
from redrive.testing import Kit
from tests.app.recorder import Recorder


class Gateway:
    """A service for many tenants that takes one call at a time, and remembers whose they were."""

    batch = 1

    def __init__(
        self,
        store: str = "memory://",
        fairness: Fairness | None = None,
        **settings: Unpack[AppOptions],
    ) -> None:
        self.calls: list[tuple[str | None, float]] = []
        self.app = Redrive("memory://", **settings)
        self.app.destination(
            "gateway",
            "order.*",
            transport=self,
            concurrency=1,
            fairness=fairness or Fairness(),
        )
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        now = self.kit.clock.monotonic()
        self.calls += [(one.event.tenant, now) for one in deliveries]
        return [Succeeded() for _ in deliveries]

    async def publish(self, **tenants: int) -> None:
        for tenant, count in tenants.items():
            await self.app.publish_many(
                [NewEvent(type="order.paid", tenant=tenant) for _ in range(count)]
            )

    @property
    def served(self) -> str:
        return "".join(tenant or "-" for tenant, _ in self.calls)

    def seconds(self, tenant: str) -> list[float]:
        began = self.calls[0][1]
        return [round(at - began, 1) for one, at in self.calls if one == tenant]


async def test_turn_is_how_many_of_a_tenant_follow_each_other(store: str) -> None:
    gateway = Gateway(store, Fairness(turn=2))
    async with gateway.kit:
        await gateway.publish(a=6, b=3)
        await gateway.kit.drain()

    assert gateway.served == "aabbaabaa"


async def test_without_a_word_of_it_tenants_take_turns_of_three(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish(a=10, b=4)
        await gateway.app.publish("order.paid")
        await gateway.kit.drain()

    assert gateway.served == "-aaabbbaaabaaaa"


async def test_weights_are_how_many_turns_in_one_a_tenant_has(store: str) -> None:
    gateway = Gateway(store, Fairness(turn=1, weights={"b": 3, "*": 1}))
    async with gateway.kit:
        await gateway.publish(a=4, b=9)
        await gateway.kit.drain()

    assert gateway.served == "abbbabbbabbba"


async def test_rate_bounds_the_attempts_of_each_tenant(store: str) -> None:
    gateway = Gateway(store, Fairness(rate="2/s"))
    async with gateway.kit:
        await gateway.publish(a=3, b=4)
        await gateway.kit.run_for("5s")

    assert gateway.seconds("a") == [0.0, 0.5, 1.0]
    assert gateway.seconds("b") == [0.0, 0.5, 1.0, 1.5]


async def test_rates_bound_some_tenants_and_hold_up_nobody_else(store: str) -> None:
    gateway = Gateway(store, Fairness(rates={"noisy-*": "1/s"}))
    async with gateway.kit:
        await gateway.publish(**{"noisy-1": 3, "calm": 50})
        await gateway.kit.drain()

        [noisy] = await gateway.operations.tenants(tenant="noisy-1")
        assert (noisy.hold, noisy.pending) == (Hold.RATE, 2)
        assert noisy.until == gateway.kit.clock.now() + timedelta(seconds=1)
        await gateway.kit.run_for("5s")

    assert set(gateway.seconds("calm")) == {0.0}
    assert gateway.seconds("noisy-1") == [0.0, 1.0, 2.0]


async def test_a_worker_wakes_when_a_tenant_has_tokens_again() -> None:
    gateway = Gateway(fairness=Fairness(rate="30/m"), poll="1h")
    clock = gateway.kit.clock
    async with gateway.kit:
        await gateway.publish(a=3)
        async with gateway.app.worker():
            counts = []
            for _ in range(5):
                for _ in range(30):
                    await clock.sleep(0)
                counts.append(len(gateway.calls))
                clock.advance("1s")

    assert counts == [1, 1, 2, 2, 3]


async def test_a_paused_tenant_waits_and_the_others_go_on(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish(a=2, b=2)
        is_new = await gateway.operations.pause_tenant("a", by="ann", why="they pay late")
        again = await gateway.operations.pause_tenant("a", by="bob")
        await gateway.kit.drain()

        assert (is_new, again, gateway.served) == (True, False, "bb")
        [paused] = await gateway.operations.tenants(tenant="a")
        assert paused.pause is not None
        assert (paused.pending, paused.pause.by) == (2, "ann")

        await gateway.operations.resume_tenant("a", by="ann")
        await gateway.kit.drain()

    assert gateway.served == "bbaa"
    told = [(one.action, one.tenant, one.destination) for one in gateway.recorder.of(Operated)]
    assert told == [("pause_tenant", "a", ""), ("resume_tenant", "a", "")]


async def test_a_pause_outlives_the_app(sqlite: str) -> None:
    async with Redrive(sqlite) as app:
        await app.operations.pause_tenant("a", by="ann", why="they pay late")

    async with Redrive(sqlite) as again:
        [paused] = await again.operations.tenants()
        assert (paused.tenant, paused.hold) == ("a", Hold.PAUSED)
        assert [one.action for one in await again.operations.audit()] == ["pause_tenant"]


async def test_a_tenant_is_paused_at_one_destination_if_that_is_asked(store: str) -> None:
    app = Redrive("memory://")
    for name in ("billing", "mail"):
        app.handler("order.*", name=name)(print)
    async with Kit(app, store=store) as kit:
        billing, mail = kit.script("billing"), kit.script("mail")
        await app.publish("order.paid", tenant="a")
        await kit.operations.pause_tenant("a", destination="mail", by="ann")
        await kit.drain()

        assert (len(billing.received), len(mail.received)) == (1, 0)
        with pytest.raises(NotFoundError, match="did you mean 'mail'"):
            await kit.operations.pause_tenant("a", destination="mial", by="ann")


async def test_all_workers_agree_on_the_turns_by_what_the_store_knows(sqlite: str) -> None:
    """A worker without the options serves on the terms the last declaration left."""
    app = Redrive(sqlite)
    app.handler("order.*", name="billing", fairness=Fairness(turn=7))(print)
    async with app:
        await app.drain()

    async with Redrive(sqlite) as other:
        await other.publish("order.paid", tenant="a")
        [found] = await other.operations.tenants()
        assert found.turn == 7


async def test_a_large_backlog_delays_one_event_by_one_turn(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish(a=200)
        await gateway.publish(b=1)
        await gateway.kit.drain()

    assert gateway.served.index("b") <= 3
    assert max(len(list(run)) for _, run in groupby(gateway.served[:4])) <= 3


def test_operations_on_tenants_work_without_an_event_loop(sqlite: str) -> None:
    app = Redrive(sqlite)
    assert app.sync.operate(Operations.pause_tenant, "a", by="ann")
    assert [one.tenant for one in app.sync.operate(Operations.tenants)] == ["a"]
    assert app.sync.operate(Operations.resume_tenant, "a", by="ann")
    app.sync.close()


async def test_what_is_no_tenant_or_no_fairness_is_refused(sqlite: str) -> None:
    app = Redrive(sqlite)
    with pytest.raises(ConfigurationError, match="fairness is 3; pass a Fairness"):

        @app.handler("order.*", fairness=3)  # type: ignore[call-overload, untyped-decorator]
        async def bill(event: Event[object]) -> None: ...

    async with app:
        with pytest.raises(UsageError, match="tenant is ''; name one"):
            await app.operations.pause_tenant("", by="ann")
        with pytest.raises(ConfigurationError, match="tenant is 7; it is text"):
            await app.operations.pause_tenant(7, by="ann")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="limit is 0"):
            await app.operations.tenants(limit=0)


async def test_a_destination_of_a_tenant_gets_only_its_events() -> None:
    app = Redrive("memory://")
    got: dict[str, list[str | None]] = {"acme": [], "gold": [], "all": []}

    def take(name: str) -> Callable[[Event[object]], None]:
        return lambda event: got[name].append(event.tenant)

    app.handler("order.*", name="acme", tenant="acme")(take("acme"))
    app.handler("order.*", name="gold", tenant="gold-*")(take("gold"))
    app.handler("order.*", name="all")(take("all"))

    async with Kit(app) as kit:
        receipts = [await app.publish("order.paid", tenant=one) for one in ("acme", "gold-7", None)]
        await kit.drain()

    assert [one.destinations for one in receipts] == [("acme", "all"), ("all", "gold"), ("all",)]
    assert got == {"acme": ["acme"], "gold": ["gold-7"], "all": [None, "acme", "gold-7"]}


@pytest.mark.parametrize("tenant", ["", 7, "a\x00b"])
def test_a_tenant_that_is_no_name_is_refused(tenant: object) -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="tenant"):
        app.handler("order.*", name="acme", tenant=tenant)(print)  # type: ignore[call-overload]
