"""The projector: what its readers ask of the store, and when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.model.audit import Actor
from redrive.model.delivery import Leased
from redrive.model.destination import NOTHING, Destination, Order
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.model.position import LOG_START, LogPosition
from redrive.observer import Observers
from redrive.pipeline.settle import Settler
from redrive.policies.terms import Terms
from redrive.store import Checkpoint, LogNews, LogPage
from redrive.stores.memory import MemoryStore
from redrive.transport import Endpoint
from redrive.worker import projector
from redrive.worker.projector import Projector
from tests.conformance.world import an_event, entries
from tests.waiting import eventually

_LEASE = timedelta(seconds=30)


class Watched(MemoryStore):
    """A store that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.asked: list[str] = []
        self.limits: list[int] = []

    async def log_news(self, after: LogPosition) -> LogNews:
        self.asked.append("news")
        return await super().log_news(after)

    async def read_events(self, *, limit: int = 100, **options: Any) -> LogPage:  # noqa: ANN401 - as it comes
        self.asked.append("read")
        self.limits.append(limit)
        return await super().read_events(limit=limit, **options)

    async def project(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as it comes
        self.asked.append("project")
        return await super().project(*args, **options)

    async def add(self, *types: str) -> None:
        """Append events."""
        await self.append(
            entries(*(an_event(type=one) for one in types), to=[]),
            routes_version=(await self.routes()).version,
            all_or_nothing=True,
        )

    async def checkpoint(self) -> Checkpoint:
        return (await self.projections())[0].checkpoint

    def is_quiet(self) -> bool:
        """Tell whether the last four things asked were the look for all readers."""
        return self.asked[-4:] == ["news"] * 4


class Into:
    """A transport to a projection that keeps what it is given."""

    batch = 1
    types = ("order.*",)
    begin: LogPosition | None = LOG_START
    truncate: Callable[[object], Any] | None = None
    create: Callable[[object], Any] | None = None
    version = partitions = 1
    tables: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.given: list[str] = []

    def together(self, deliveries: Sequence[Leased]) -> Sequence[Sequence[Leased]]:
        return [[one] for one in deliveries]

    def calls(self, connection: object) -> AbstractContextManager[Into]:
        assert connection is None
        return nullcontext(self)

    async def apply(self, deliveries: Sequence[Leased]) -> Outcome:
        self.given += [one.event.type for one in deliveries]
        return Succeeded()

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [await self.apply([one]) for one in deliveries]

    def fault(self, error: BaseException) -> Faulted:
        fault = Fault(error_class="Error", message=str(error), rule="test")
        return Faulted(fault=fault, nature=Nature.TERMINAL)


@asynccontextmanager
async def reading(store: Watched, **models: Into) -> AsyncIterator[None]:
    """Have a projector read for some projections."""
    endpoints = [
        Endpoint(
            destination=Destination(name=name, patterns=NOTHING, order=Order.PARK),
            terms=Terms(),
            transport=model,
        )
        for name, model in models.items()
    ]
    await store.register([one.destination for one in endpoints])
    await store.heartbeat("reader", [], lease=_LEASE)
    running = Projector(
        store=store,
        worker="reader",
        endpoints=endpoints,
        settler=Settler(
            store=store,
            worker="reader",
            rng=random.Random(1),  # noqa: S311 - nothing secret
            observer=Observers(),
            is_reported=lambda _: False,
        ),
        lease=_LEASE,
        poll=timedelta(milliseconds=40),
        generation="default",
        clock=SystemClock(),
        on_store_lost=lambda _: None,
    )
    task = asyncio.create_task(running.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_rebuild_keeps_to_its_rate() -> None:
    store, orders = Watched(), Into()
    await store.add(*["order.paid"] * 6)
    async with reading(store, orders=orders):
        await eventually(lambda: len(orders.given) == 6, what="all is applied")
    actor = Actor("ada", "")
    await store.reset_projection("orders", to=LOG_START, actor=actor, rate=8.0)
    store.limits.clear()

    async with reading(store, orders=orders):
        await eventually(lambda: len(orders.given) == 12, what="all is applied again")

    assert store.limits[:3] == [2, 2, 2]
    checkpoint = await store.checkpoint()
    assert checkpoint.rebuild is not None
    assert checkpoint.applied_at is not None
    # Two at once, then a quarter of a second: the last two come after half a second.
    assert checkpoint.applied_at - checkpoint.rebuild.begun_at >= timedelta(seconds=0.4)


async def test_when_nothing_happens_one_look_serves_all_readers() -> None:
    store, models = Watched(), {name: Into() for name in ("orders", "sales", "totals")}
    await store.add("order.paid")

    async with reading(store, **models):
        await eventually(store.is_quiet, what="one look for three readers")

    assert [one.given for one in models.values()] == [["order.paid"]] * 3


async def test_what_is_not_wanted_is_read_without_a_write() -> None:
    store, orders = Watched(), Into()
    await store.add("order.paid")
    async with reading(store, orders=orders):
        await eventually(store.is_quiet, what="the end of the log")
        before = await store.checkpoint()
        store.asked.clear()

        await store.add("mail.sent", "mail.sent")
        await eventually(lambda: "read" in store.asked and store.is_quiet(), what="mail was read")
        unwritten = await store.checkpoint()
        is_written = "project" in store.asked
        await store.add("order.sent")
        await eventually(lambda: len(orders.given) > 1, what="an order was applied")

    assert (unwritten, is_written) == (before, False)
    assert (await store.checkpoint()).position == await store.end_of_log()


async def test_a_checkpoint_follows_what_is_not_wanted_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(projector, "_CHECKPOINT_SECONDS", 0.0)
    store, orders = Watched(), Into()
    async with reading(store, orders=orders):
        await store.add("mail.sent", "mail.sent")

        async def is_past() -> bool:
            return (
                bool(await store.projections())
                and (await store.checkpoint()).position == await store.end_of_log()
            )

        await eventually(is_past, what="a checkpoint behind the mail")

    assert orders.given == []


async def test_a_reset_is_noticed_when_nothing_else_happens() -> None:
    store, orders = Watched(), Into()
    await store.add("order.paid")
    async with reading(store, orders=orders):
        await eventually(store.is_quiet, what="the end of the log")

        await store.reset_projection("orders", to=LOG_START, actor=Actor("ada", ""))

        await eventually(lambda: len(orders.given) > 1, what="it was read anew")
