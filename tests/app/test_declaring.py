"""Declarations in force: releases of an app that are rolled out and back, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Unpack

import apsw
import asyncpg
import msgspec
import pytest

from redrive import Breaker, Event, Redrive, Retry, Transient
from redrive.app.declaration import DestinationOptions
from redrive.model.audit import AuditEntry
from redrive.model.destination import Destination
from redrive.observer import DeclarationChanged, DeclarationsAgree, DeclarationsDiffer
from redrive.stores.postgres.connection import read_address
from redrive.testing import Kit
from tests.app.recorder import Recorder

PATIENCE = 60
Told = DeclarationChanged | DeclarationsDiffer | DeclarationsAgree


class Release:
    """An app of one release, and what its workers tell."""

    def __init__(
        self, *patterns: str, carries: bool = True, **options: Unpack[DestinationOptions]
    ) -> None:
        # One of a generation that nobody publishes for declares, and carries nothing.
        generations = ("default",) if carries else ("nobody",)
        self.app = Redrive("memory://", lease="1h", generations=generations)
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.fails = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.begun: list[str | None] = []
        """The keys of the events that a handler was given, in order."""

        @self.app.handler(*patterns, name="shop", **options)
        async def shop(event: Event[Any]) -> None:
            self.begun.append(event.key)
            await self.goes_on.wait()
            if self.fails:
                raise Transient("down")


@asynccontextmanager
async def deployed(store: str, *releases: Release) -> AsyncIterator[Kit]:
    first, *others = releases
    async with Kit(first.app, store=store) as kit:
        for one in others:
            kit.connect(one.app)
        yield kit


@asynccontextmanager
async def at_work(first: Release, *others: Release) -> AsyncIterator[None]:
    """Have a worker of each release; the first has declared before the others come."""
    await first.app.drain()
    async with AsyncExitStack() as stack:
        for one in (first, *others):
            await stack.enter_async_context(one.app.worker())
        yield


async def passes(kit: Kit, release: Release, kind: type[Told]) -> None:
    """Let time pass until a worker of a release has told a fact of a kind."""
    async with asyncio.timeout(PATIENCE):
        while not any(one.worker for one in release.recorder.of(kind)):
            kit.clock.advance("100ms")
            await kit.clock.sleep(0)
            await kit.operations.audit(limit=1)  # as long as the workers need for theirs


async def lets_pass(kit: Kit, is_so: Callable[[], bool]) -> None:
    """Let time pass until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            kit.clock.advance("50ms")
            await kit.clock.sleep(0)
            await kit.operations.audit(limit=1)  # as above


async def changes(kit: Kit) -> list[AuditEntry]:
    return [one for one in await kit.operations.audit() if one.action == "declare"]


async def test_an_old_release_that_opens_the_app_changes_nothing(store: str) -> None:
    old = Release("order.*", rate="500/s")
    new = Release("order.*", "refund.*", order="park", rate="5/s")
    async with deployed(store, new, old) as kit:
        await old.app.drain()
        async with new.app.worker():
            await passes(kit, new, DeclarationChanged)
            before = await changes(kit)

            await old.app.open()
            receipt = await old.app.publish("refund.asked", key="a")

            [gate] = await kit.operations.gates()
            assert receipt.destinations == ("shop",)
            assert gate.limits.rate is not None
            assert gate.limits.rate.per_second == 5
            assert await changes(kit) == before


async def test_a_website_deployed_first_loses_nothing(store: str) -> None:
    old, new = Release("order.*"), Release("refund.*", order="park")
    async with deployed(store, old, new) as kit:
        await old.app.drain()

        both = [await new.app.publish(name, key="a") for name in ("order.paid", "refund.asked")]
        await new.app.drain()
        after = [await old.app.publish(name) for name in ("order.paid", "refund.asked")]

        assert [one.destinations for one in both] == [("shop",), ("shop",)]
        assert [one.destinations for one in after] == [(), ("shop",)]
        assert len(await changes(kit)) == 2


async def test_a_worker_of_another_release_says_so_once_and_follows(store: str) -> None:
    old, new = Release("order.*"), Release("order.*", order="park")
    async with deployed(store, old, new) as kit, at_work(old, new):
        await passes(kit, old, DeclarationsDiffer)
        for _ in range(40):  # it looks again and again meanwhile
            kit.clock.advance("500ms")
            await kit.clock.sleep(0)
            await kit.operations.status()

        [told] = old.recorder.of(DeclarationsDiffer)
        status = await kit.operations.status()
        said = [one.what for one in await kit.operations.examine()]

        assert told.destinations == ("shop",)
        assert [one.others for one in status.workers if one.id == told.worker] == [("shop",)]
        assert any(f"Worker {told.worker} declares shop otherwise" in one for one in said)
        assert new.recorder.of(DeclarationsDiffer) == []


async def test_a_rollback_needs_no_restart(store: str) -> None:
    old, new = Release("order.*"), Release("order.*", "refund.*", order="park")
    async with deployed(store, old, new) as kit, at_work(old):
        async with new.app.worker():
            await passes(kit, old, DeclarationsDiffer)
        await passes(kit, old, DeclarationsAgree)

        receipt = await new.app.publish("refund.asked")
        assert receipt.destinations == ()
        back, there, added = await changes(kit)
        assert added.detail == 'shop: patterns[1]: nothing → "refund.*"'
        assert there.detail == 'shop: order: "none" → "park"'
        assert 'order: "park" → "none"' in back.detail
        [told] = old.recorder.of(DeclarationChanged)
        assert told.change.destination == "shop"


async def test_what_is_reported_follows_what_is_in_force(store: str) -> None:
    """A worker whose code knows of no breaker reports to the one that is in force."""
    old = Release("order.*")
    new = Release("order.*", carries=False, breaker=Breaker(failures=2))
    old.fails = True
    async with deployed(store, old, new) as kit, at_work(old, new):
        await passes(kit, old, DeclarationsDiffer)

        for _ in range(4):
            await new.app.publish("order.paid")
        async with asyncio.timeout(PATIENCE):
            while (await kit.operations.gates())[0].gate.breaker.generation == 0:
                kit.clock.advance("50ms")
                await kit.clock.sleep(0)


async def test_a_worker_follows_how_many_at_once_and_in_which_order(store: str) -> None:
    """What is in force is not in its code, and it needs no restart."""
    old = Release("order.*", concurrency=1)
    new = Release("order.*", carries=False, concurrency=3, order="park")
    old.goes_on.clear()
    async with deployed(store, old, new) as kit, old.app.worker():
        for key in ("a", "a", "b", "c", "d"):
            await old.app.publish("order.paid", key=key)
        await lets_pass(kit, lambda: old.begun == ["a"])

        async with new.app.worker():
            await lets_pass(kit, lambda: len(old.begun) == 3)
            await passes(kit, old, DeclarationsDiffer)

            assert sorted(map(str, old.begun)) == ["a", "b", "c"]
            old.goes_on.set()
            await lets_pass(kit, lambda: len(old.begun) == 5)


async def test_a_worker_keeps_the_rate_in_force(store: str) -> None:
    old = Release("order.*")
    new = Release("order.*", carries=False, rate="1/h")
    async with deployed(store, old, new) as kit, at_work(old, new):
        await passes(kit, old, DeclarationsDiffer)

        for _ in range(3):
            await old.app.publish("order.paid")
        await lets_pass(kit, lambda: len(old.begun) == 1)
        kit.clock.advance("30m")
        [shop] = (await kit.operations.status()).destinations
        assert (shop.pending, len(old.begun)) == (2, 1)


async def test_retry_terms_are_the_worker_s_own(store: str) -> None:
    often, once = Retry(max_attempts=9, base="1ms"), Retry(max_attempts=2, base="1ms")
    old = Release("order.*", retry=once)
    new = Release("order.*", carries=False, order="park", retry=often)
    old.fails = True
    async with deployed(store, old, new) as kit, at_work(old, new):
        await passes(kit, old, DeclarationsDiffer)

        await old.app.publish("order.paid", key="a")
        async with asyncio.timeout(PATIENCE):
            while not (await kit.operations.status()).letters.count:
                kit.clock.advance("50ms")
                await kit.clock.sleep(0)

        assert len(old.begun) == 2


async def test_a_change_is_followed_within_a_second() -> None:
    old, new = Release("order.*"), Release("order.*", carries=False, concurrency=2)
    async with deployed("memory://", old, new) as kit, at_work(old, new):
        await lets_pass(kit, lambda: bool(new.recorder.of(DeclarationChanged)))
        since = kit.clock.now()
        await lets_pass(kit, lambda: bool(old.recorder.of(DeclarationsDiffer)))

        assert kit.clock.now() - since <= timedelta(seconds=1)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_what_a_release_without_standings_wrote_is_in_force_until_a_worker_looks(
    store: str,
) -> None:
    new = Release("order.*", "refund.*", rate="5/s")
    async with deployed(store, new) as kit:
        await new.app.drain()
        [routed] = [await new.app.publish("refund.asked")]

        await register_as_before(store, Destination(name="shop", patterns=("order.*",)))

        unwanted = await new.app.publish("refund.asked")
        [gate] = await kit.operations.gates()
        assert (routed.destinations, unwanted.destinations) == (("shop",), ())
        assert gate.limits.rate is None
        async with new.app.worker():
            await passes(kit, new, DeclarationChanged)
            wanted = await new.app.publish("refund.asked")
            [entry] = await changes(kit)

    assert wanted.destinations == ("shop",)
    assert 'patterns[1]: nothing → "refund.*"' in entry.detail


async def register_as_before(store: str, destination: Destination) -> None:
    """Write a declaration as a release does that keeps no standings: the row, and the version."""
    document = msgspec.json.encode(destination).decode()
    if store.startswith("sqlite"):
        connection = apsw.Connection(store.removeprefix("sqlite:///"))
        with connection:
            connection.execute(
                "INSERT INTO redrive_destinations (name, document) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET document = excluded.document, removed_at = NULL",
                (destination.name, document),
            )
            connection.execute(
                "UPDATE redrive_counters SET value = value + 1 WHERE name = 'routes_version'"
            )
        connection.close()
        return
    address = read_address(store)
    person = await asyncpg.connect(address.dsn)
    async with person.transaction():
        await person.execute(f"SET LOCAL search_path = {address.schema}")
        await person.execute("UPDATE counters SET value = value + 1 WHERE name = 'routes_version'")
        await person.execute(
            "INSERT INTO destinations (name, document) VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET document = excluded.document, removed_at = NULL",
            destination.name,
            document,
        )
    await person.close()


async def test_the_audit_entry_names_worker_and_host(store: str) -> None:
    old, new = Release("order.*"), Release("order.*", order="park")
    async with deployed(store, old, new) as kit:
        await old.app.drain()
        async with new.app.worker() as worker:
            await passes(kit, new, DeclarationChanged)

            [entry] = await changes(kit)
            assert (entry.by, entry.count) == ("redrive", 1)
            assert entry.why.startswith(f"declared by worker {worker.id} on ")
            assert entry.detail == 'shop: order: "none" → "park"'
