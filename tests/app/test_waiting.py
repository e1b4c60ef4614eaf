"""Why a delivery waits is always answerable, by its own story."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive import Breaker, Event, Fairness, NewEvent, Query, Redrive, Retry, Snooze
from redrive.model.delivery import Status
from redrive.model.outcome import Faulted, Nature
from redrive.model.settlement import Requeued
from redrive.operations.explain.waiting import Waiting, WaitReason
from redrive.store import Allowance, ClaimRequest, Rescue
from redrive.testing import Kit
from tests.app.test_limits import BUSY, DOWN, FAULT, OK, Gateway
from tests.waiting import PATIENCE_SECONDS

GONE = Faulted(fault=FAULT, nature=Nature.TERMINAL, pause="410 Gone")


async def waiting(app: Redrive) -> list[tuple[Waiting, ...]]:
    """Return what each pending delivery waits for, in the order of their ids."""
    page = await app.operations.deliveries(Query(status=Status.PENDING), limit=1_000)
    ids = sorted(one.id for one in page.deliveries)
    return [(await app.operations.show(one)).waiting for one in ids]


async def reasons(app: Redrive, number: int = 0) -> list[WaitReason]:
    """Return the reasons of one pending delivery, without that no worker runs beside the kit."""
    found = await waiting(app)
    return [one.reason for one in found[number] if one.reason is not WaitReason.WORKER]


async def test_a_delivery_that_nobody_takes_waits_for_a_worker(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()

        [[only]] = await waiting(gateway.app)
        assert (only.reason, only.what) == (WaitReason.WORKER, "No worker is alive.")


async def test_a_delayed_delivery_waits_for_its_due_time(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.app.publish("order.paid", due="1h")

        [[first, *_]] = await waiting(gateway.app)
        assert first.reason is WaitReason.DUE
        assert first.until == gateway.kit.clock.now() + timedelta(hours=1)


async def test_a_failed_delivery_waits_for_its_backoff(store: str) -> None:
    gateway = Gateway(store)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()

        [[first, *_]] = await waiting(gateway.app)
        assert (first.reason, first.what) == (
            WaitReason.BACKOFF,
            "Try 1 failed; the next one waits.",
        )
        assert first.until == gateway.kit.clock.now() + timedelta(seconds=1)


async def test_a_snoozed_delivery_says_so(store: str) -> None:
    app = Redrive("memory://")

    @app.handler("order.*")
    async def later(event: Event[Any]) -> Snooze:
        return Snooze("1h")

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()

        assert (await reasons(app))[0] is WaitReason.SNOOZE


async def test_an_open_breaker_is_named_with_its_end(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1), concurrency=1)
    gateway.answer = DOWN
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.drain()

        [_, [first, *_]] = await waiting(gateway.app)
        assert first.reason is WaitReason.BREAKER
        assert first.until == gateway.kit.clock.now() + timedelta(seconds=2)


async def test_probes_are_what_a_half_open_breaker_lets_through(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, open_for="10s"))
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()
        gateway.kit.clock.advance("10s")

        assert WaitReason.PROBING in await reasons(gateway.app)


async def test_a_pause_is_named_with_who_and_why(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()
        await gateway.operations.pause("gateway", by="ada", why="they migrate")

        [[first, *_]] = await waiting(gateway.app)
        assert (first.reason, first.what) == (WaitReason.PAUSE, "Paused by ada: they migrate.")


@pytest.mark.parametrize("destination", [None, "gateway"])
async def test_the_pause_of_its_tenant_is_named_with_who_and_why(
    store: str, destination: str | None
) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.app.publish("order.paid", tenant="acme")
        await gateway.app.publish("order.paid", tenant="other")
        await gateway.operations.pause_tenant(
            "acme", destination=destination, by="ada", why="they do not pay"
        )

        [[first, *_], others] = await waiting(gateway.app)

    where = "" if destination else " at all destinations"
    assert first.reason is WaitReason.TENANT_PAUSE
    assert first.what == f"The tenant acme is paused{where} by ada: they do not pay."
    assert WaitReason.TENANT_PAUSE not in [one.reason for one in others]


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_the_rate_of_its_tenant_is_named_with_its_next_token(
    store: str, tenant: str | None
) -> None:
    gateway = Gateway(store, fairness=Fairness(rate="1/m"))
    async with gateway.kit:
        for _ in range(2):
            await gateway.app.publish("order.paid", tenant=tenant)
        await gateway.kit.drain()

        [[first, *_]] = await waiting(gateway.app)

    who = "The tenant acme has" if tenant else "Events without a tenant have"
    assert first.reason is WaitReason.TENANT_RATE
    assert first.what == f"{who} used up the rate that a tenant has."
    assert first.until is not None


async def test_a_pause_of_our_own_is_named_too(store: str) -> None:
    gateway = Gateway(store, concurrency=1)
    gateway.answer = GONE
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.drain()

        [[first, *_]] = await waiting(gateway.app)
        assert first.what == "Paused by redrive: 410 Gone."


async def test_a_destination_that_asked_for_less_is_waited_for(store: str) -> None:
    gateway = Gateway(store, concurrency=1)
    gateway.script = [BUSY]
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.drain()

        assert WaitReason.SLOWED in await reasons(gateway.app, 1)


async def test_first_attempts_wait_for_their_rate(store: str) -> None:
    gateway = Gateway(store, rate="30/m")
    async with gateway.kit:
        await gateway.publish(2)
        await gateway.kit.drain()

        [[first, *_]] = await waiting(gateway.app)
        assert first.reason is WaitReason.RATE
        assert first.until == gateway.kit.clock.now() + timedelta(seconds=2)


async def test_retries_wait_for_their_rate(store: str) -> None:
    gateway = Gateway(store, retry_rate="1/m")
    gateway.script = [DOWN] * 3
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.run_for("1s")
        await gateway.kit.drain()

        assert (await reasons(gateway.app))[0] is WaitReason.RETRY_RATE


async def test_retries_wait_for_their_budget(store: str) -> None:
    gateway = Gateway(store, retry_budget=0.0, retry_rate=None)
    gateway.script = [DOWN] * 101
    async with gateway.kit:
        await gateway.publish(101)
        await gateway.kit.run_for("1s")
        await gateway.kit.drain()

        assert (await reasons(gateway.app))[0] is WaitReason.RETRY_BUDGET


async def test_replays_wait_for_their_rate(store: str) -> None:
    gateway = Gateway(store, replay_rate="1/m", retry=Retry(max_attempts=1))
    gateway.script = [DOWN] * 3
    async with gateway.kit:
        await gateway.publish(3)
        await gateway.kit.drain()
        await gateway.operations.replay([one.id for one in gateway.kit.dead_letters()], by="ada")
        await gateway.kit.drain()

        assert (await reasons(gateway.app))[0] is WaitReason.REPLAY_RATE


async def test_what_has_waited_for_an_outage_waits_for_the_ramp(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1, successes=1), retry_rate=None)
    async with gateway.kit:
        await gateway.operations.open_breaker("gateway", by="ada")
        await gateway.publish(20)
        await gateway.operations.reset_breaker("gateway", by="ada")
        await gateway.kit.drain()

        assert (await reasons(gateway.app))[0] is WaitReason.RAMP


async def test_order_names_what_goes_first(store: str) -> None:
    gateway = Gateway(store, order="park")
    gateway.answer = DOWN
    async with gateway.kit:
        for number in range(2):
            await gateway.app.publish("order.paid", number, key="order-42")
        await gateway.kit.drain()

        [_, [only]] = await waiting(gateway.app)
        assert (only.reason, only.behind) == (WaitReason.ORDER, 1)
        assert only.what == "Delivery 1 of the same key goes first."


async def test_a_blocked_destination_says_so(store: str) -> None:
    gateway = Gateway(store, order="block", retry=Retry(max_attempts=1), concurrency=1)
    gateway.script = [DOWN]
    async with gateway.kit:
        for number in range(2):
            await gateway.app.publish("order.paid", number, key=f"order-{number}")
        await gateway.kit.drain()

        assert WaitReason.BLOCKED in await reasons(gateway.app)


async def test_a_generation_that_no_worker_claims_is_named(store: str) -> None:
    gateway = Gateway(store)
    gateway.script = [OK]
    async with gateway.kit, gateway.app.worker():
        await gateway.app.publish("order.paid", generation="green")
        await _heard_of(gateway)

        [[only]] = await waiting(gateway.app)
        assert (only.reason, only.what) == (
            WaitReason.GENERATION,
            "No live worker claims the generation green.",
        )


async def test_a_destination_that_no_worker_declares_is_named(store: str) -> None:
    gateway, other = Gateway(store), Redrive("memory://")
    other.handler("user.*", name="other")(print)
    async with gateway.kit:
        gateway.kit.connect(other)
        await gateway.publish()
        async with other, other.worker():
            await _heard_of(gateway)

            [[only]] = await waiting(gateway.app)
            assert only.what == "No live worker declares the destination gateway."


async def test_concurrency_is_named_while_others_run(store: str) -> None:
    app = Redrive("memory://", poll="10ms")
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("order.*", concurrency=1)
    async def bill(event: Event[Any]) -> None:
        begun.set()
        await may_end.wait()

    async with Kit(app, store=store) as kit, app.worker():
        await app.publish_many([NewEvent(type="order.paid") for _ in range(2)])
        await begun.wait()
        for _ in range(50):
            await kit.clock.sleep(0)

        assert (await reasons(app))[0] is WaitReason.CONCURRENCY
        may_end.set()


async def test_what_is_due_and_free_waits_for_its_turn(store: str) -> None:
    app = Redrive("memory://", poll="10ms", concurrency=1)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        begun.set()
        await may_end.wait()

    async with Kit(app, store=store) as kit, app.worker():
        await app.publish_many([NewEvent(type="order.paid") for _ in range(2)])
        await begun.wait()
        for _ in range(50):
            await kit.clock.sleep(0)

        assert await reasons(app) == [WaitReason.TURN]
        may_end.set()


async def test_only_what_is_pending_waits(store: str) -> None:
    gateway = Gateway(store)
    async with gateway.kit:
        await gateway.publish()
        await gateway.kit.drain()

        assert (await gateway.operations.show(1)).waiting == ()


async def test_status_counts_what_waits_for_what(store: str) -> None:
    gateway = Gateway(store, breaker=Breaker(failures=1), concurrency=1)
    gateway.script = [DOWN]
    async with gateway.kit:
        await gateway.app.publish("order.paid", due="1h")
        await gateway.publish(3)
        await gateway.kit.drain()

        [figures] = (await gateway.operations.status()).destinations
        assert (figures.pending, figures.waiting, figures.retrying, figures.due) == (4, 2, 1, 2)


async def test_a_suspect_and_a_crashed_delivery_say_so(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        found = []
        for crashes in (1, 2):
            await _crash(app, kit, crashes=crashes)
            found.append((await reasons(app))[0])
            kit.clock.advance("1m")
        found += await reasons(app)

    assert found == [WaitReason.RECOVERY, WaitReason.RECOVERY, WaitReason.SUSPECT]


async def _crash(app: Redrive, kit: Kit, *, crashes: int) -> None:
    """Let the delivery be claimed by a worker that dies with it, and be taken back."""
    session = await app._session()  # noqa: SLF001 - no public act crashes a worker
    request = ClaimRequest(
        worker="doomed",
        allowances=(Allowance(destination="billing", total=1),),
        generations=("default",),
        limit=1_000,
        lease=timedelta(seconds=15),
    )
    [leased] = (await session.store.claim(request)).deliveries
    kit.clock.advance("15s")
    when = kit.clock.now() + timedelta(seconds=30)
    requeued = Requeued(when=when, crashes=crashes, last_crash_at=kit.clock.now())
    assert list(await session.store.rescue([Rescue(leased.lease, requeued)])) == []


async def _heard_of(gateway: Gateway) -> None:
    """Let the worker tell what it serves, from its own thread or task."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(one.serving for one in (await gateway.operations.status()).workers):
            gateway.kit.clock.advance("100ms")
            await gateway.kit.clock.sleep(0)
