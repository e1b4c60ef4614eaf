"""What a worker brings of its declarations, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from redrive.model.audit import Actor
from redrive.model.destination import Destination
from redrive.model.limits import Limits
from redrive.observer import DeclarationsDiffer
from redrive.policies.terms import Terms
from redrive.store import PUBLISHER, Declarer, Registered
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.transport import Endpoint
from redrive.worker.declarant import Declarant
from tests.app.recorder import Recorder
from tests.unit.nowhere import Nowhere
from tests.waiting import eventually

OTHER = Declarer(worker="other")


class Registering(MemoryStore):
    """A store that remembers which destinations were brought."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.brought: list[list[str]] = []

    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        if by.worker == "own":
            self.brought.append([one.name for one in destinations])
        return await super().register(destinations, by=by, again=again)


class Following:
    """A declarant with three destinations, and a store that others change."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.store = Registering(clock)
        self.recorder = Recorder()
        self.declared = [
            Destination(name=name, patterns=(f"{name}.*",)) for name in ("a", "b", "c")
        ]
        self.declarant = Declarant(
            store=self.store,
            by=Declarer(worker="own"),
            endpoints=[
                Endpoint(destination=one, terms=Terms(), transport=Nowhere())
                for one in self.declared
            ],
            clock=clock,
            observer=self.recorder,
            on_store_lost=lambda _: None,
        )

    async def change(self, destination: Destination) -> None:
        """Have another worker change a destination, and this one hear of it."""
        registered = await self.store.register([destination], by=OTHER)
        self.declarant.hear(registered.version)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.declarant.begin()
        running = asyncio.create_task(self.declarant.run())
        yield
        running.cancel()


async def test_it_brings_only_what_others_have_changed() -> None:
    following = Following()
    store, declarant = following.store, following.declarant
    async with following.running():
        changed = Destination(name="b", patterns=("b.*",), limits=Limits(concurrency=7))
        await following.change(changed)
        await eventually(lambda: len(store.brought) == 3, what="it has brought something again")

    assert store.brought == [["a", "b", "c"], [], ["b"]]
    assert declarant.serving["b"].destination == changed
    assert declarant.serving["b"].terms.concurrency == 7
    assert list(declarant.serving) == ["a", "b", "c"]
    assert [one.destinations for one in following.recorder.of(DeclarationsDiffer)] == [("b",)]


async def test_what_others_change_of_destinations_that_are_not_its_own_is_nothing_to_bring() -> (
    None
):
    following = Following()
    async with following.running():
        await following.change(Destination(name="theirs", patterns=("x.*",)))
        await eventually(lambda: len(following.store.brought) > 1, what="it has looked")

    assert following.store.brought == [["a", "b", "c"], []]


async def test_what_was_removed_before_it_began_is_not_served() -> None:
    following = Following()
    await following.store.register(following.declared, by=OTHER)
    await following.store.unregister("b", actor=Actor("ops", "gone"))
    await following.declarant.begin()

    assert list(following.declarant.serving) == ["a", "c"]


async def test_it_has_places_for_what_an_override_allows_until_that_is_over() -> None:
    following = Following()
    following.declared[1] = limited = Destination(
        name="b", patterns=("b.*",), limits=Limits(concurrency=2)
    )
    store, declarant = following.store, following.declarant
    places: list[int | None] = []
    async with following.running():
        await following.change(limited)
        await eventually(lambda: declarant.serving["b"].terms.concurrency == 2, what="it follows")
        for concurrency in (7, 1):
            await store.override(
                "b",
                Limits(concurrency=concurrency),
                lasts=timedelta(hours=1),
                actor=Actor("ann", "they asked"),
            )
            count = len(store.brought)
            declarant.hear((await store.routes()).version)
            await eventually(lambda: len(store.brought) > count, what="it has looked")  # noqa: B023
            places.append(declarant.serving["b"].terms.concurrency)
        assert await store.end_override("b", actor=Actor("ann"))
        declarant.hear((await store.routes()).version)
        await eventually(lambda: len(store.brought) > count + 1, what="it has looked")
        places.append(declarant.serving["b"].terms.concurrency)

    assert places == [7, 2, 2]
