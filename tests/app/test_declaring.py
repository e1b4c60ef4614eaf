"""Declarations in force: releases of an app that are rolled out and back, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Unpack

from redrive import Breaker, Redrive, Transient
from redrive.declaration import DestinationOptions
from redrive.model.audit import AuditEntry
from redrive.observer import DeclarationChanged, DeclarationsAgree, DeclarationsDiffer
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

        @self.app.handler(*patterns, name="shop", **options)
        async def shop(event: object) -> None:
            if self.fails:
                raise Transient("down")


@asynccontextmanager
async def deployed(store: str, *releases: Release) -> AsyncIterator[Kit]:
    first, *others = releases
    async with Kit(first.app, store=store) as kit:
        for one in others:
            kit.connect(one.app)
        yield kit


async def passes(kit: Kit, release: Release, kind: type[Told]) -> None:
    """Let time pass until a worker of a release has told a fact of a kind."""
    async with asyncio.timeout(PATIENCE):
        while not any(one.worker for one in release.recorder.of(kind)):
            kit.clock.advance("100ms")
            await kit.clock.sleep(0)
            await kit.operations.audit(limit=1)  # as long as the workers need for theirs


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
    async with deployed(store, old, new) as kit, AsyncExitStack() as stack:
        await stack.enter_async_context(old.app.worker())
        await stack.enter_async_context(new.app.worker())
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
    async with deployed(store, old, new) as kit, old.app.worker():
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
    async with deployed(store, old, new) as kit, old.app.worker(), new.app.worker():
        await passes(kit, old, DeclarationsDiffer)

        for _ in range(4):
            await new.app.publish("order.paid")
        async with asyncio.timeout(PATIENCE):
            while (await kit.operations.gates())[0].gate.breaker.generation == 0:
                kit.clock.advance("50ms")
                await kit.clock.sleep(0)


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
