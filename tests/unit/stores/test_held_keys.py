"""What is appended together is divided when somebody holds a key of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from redrive.clock import SystemClock, SystemIds
from redrive.errors import StoreUnavailableError
from redrive.model.event import EventAttributes, Receipt
from redrive.observer import Observers
from redrive.pipeline.publish import Preparer, Publisher
from redrive.store import Append, Entry
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres.held_keys import HeldKeys, KeyHeldError

clock = SystemClock()


class Held(MemoryStore):
    """Whose keys are held until `free`; who shares a call does not wait for that."""

    def __init__(self, *keys: str | None) -> None:
        super().__init__(clock)
        self._keys = keys
        self._waiting = HeldKeys(self.store)
        self.free = asyncio.Event()
        self.error: Exception | None = None
        self.calls: list[list[str | None]] = []

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        assert not all_or_nothing
        assert within is None
        if not self._waiting.queues:
            with suppress(KeyHeldError):
                return await self.store(entries, routes_version=routes_version, is_patient=False)
        return await self._waiting.append(entries, routes_version=routes_version)

    async def store(
        self, entries: Sequence[Entry], *, routes_version: int, is_patient: bool
    ) -> Append:
        keys = [entry.event.key for entry in entries]
        self.calls.append(keys)
        await clock.sleep(0)
        if not self.free.is_set() and any(key in self._keys for key in keys):
            if not is_patient:
                raise KeyHeldError
            await self.free.wait()
            if self.error is not None:
                raise self.error
        return await super().append(
            entries, routes_version=routes_version, all_or_nothing=is_patient
        )


class Stumbling(Held):
    """Which cannot store two together, and whose key is free as soon as somebody has met it."""

    async def store(
        self, entries: Sequence[Entry], *, routes_version: int, is_patient: bool
    ) -> Append:
        if len(entries) > 1:
            raise ValueError("not together")
        try:
            return await super().store(
                entries, routes_version=routes_version, is_patient=is_patient
            )
        except KeyHeldError:
            self.free.set()
            raise


class Desk:
    """Publishes numbers, each to a key or to none."""

    def __init__(self, store: MemoryStore) -> None:
        self._publisher = Publisher(
            store,
            preparer=Preparer(clock=clock, ids=SystemIds(), payload_limit=1_000, generation=""),
            observer=Observers(),
        )

    def publish(self, *keys: str | None) -> list[asyncio.Task[Receipt]]:
        attributes = [EventAttributes(key=key) for key in keys]
        return [
            asyncio.create_task(
                self._publisher.publish(self._publisher.new_event("order.paid", number, one))
            )
            for number, one in enumerate(attributes)
        ]


@pytest.mark.timeout(20)
async def test_what_needs_no_held_key_is_stored_before_it_is_free() -> None:
    store = Held("held", "too")
    tasks = Desk(store).publish(*(f"key {n}" for n in range(500)), "held", None, "too", "other")
    waiting = [tasks[500], tasks[502]]

    await asyncio.gather(*(one for one in tasks if one not in waiting))

    assert not [one for one in waiting if one.done()]
    store.free.set()
    assert [one.version for one in await asyncio.gather(*waiting)] == [1, 1]
    assert len(store.calls) < 80


@pytest.mark.timeout(20)
async def test_who_comes_for_a_key_that_is_waited_for_stays_behind() -> None:
    store = Held("held")
    desk = Desk(store)
    first = desk.publish("held", "other")
    await first[1]
    later = desk.publish("held", "other", "held")
    await later[1]
    calls = [keys for keys in store.calls if "held" in keys]

    store.free.set()
    receipts = await asyncio.gather(first[0], later[0], later[2])

    assert [one.version for one in receipts] == [1, 2, 3]
    assert all(len(keys) == 1 for keys in calls[1:])


@pytest.mark.timeout(20)
async def test_events_that_are_stored_one_by_one_do_not_pass_one_that_waits() -> None:
    _, *of_a_key = Desk(Stumbling("held")).publish(None, "held", "held")

    receipts = await asyncio.gather(*of_a_key)

    assert [one.version for one in receipts] == [1, 2]


@pytest.mark.timeout(20)
async def test_all_who_wait_for_a_key_hear_that_it_was_in_vain() -> None:
    store = Held("held")
    desk = Desk(store)
    store.error = StoreUnavailableError("It was held for too long.")
    tasks = desk.publish("other", "held", "held", "another")
    await asyncio.gather(tasks[0], tasks[3])

    store.free.set()

    for one in tasks[1:3]:
        with pytest.raises(StoreUnavailableError, match="too long"):
            await one
    assert (await desk.publish("held")[0]).version == 1


@pytest.mark.timeout(20)
async def test_events_without_a_key_wait_too_when_they_are_in_their_own_way() -> None:
    """One whose connection was lost may still be on its way to the store."""
    store = Held(None)
    desk = Desk(store)
    tasks = desk.publish(None, None, "other")
    await tasks[2]

    store.free.set()

    assert not [one for one in await asyncio.gather(*tasks) if one.is_duplicate]


@pytest.mark.timeout(20)
async def test_the_first_who_is_cancelled_takes_nobody_with_it() -> None:
    store = Held()
    first, *others = Desk(store).publish(None, None, "other")
    await clock.sleep(0)

    first.cancel()

    assert len(await asyncio.gather(*others)) == 2
    assert first.cancelled()


@pytest.mark.timeout(20)
async def test_who_came_meanwhile_does_not_wait_as_long_again() -> None:
    store = Held("held")
    store.error = StoreUnavailableError("held for too long")
    desk = Desk(store)
    [first] = desk.publish("held")
    while store.calls.count(["held"]) < 2:  # together with others, and then alone
        await clock.sleep(0)
    later = desk.publish("held", "held")
    await clock.sleep(0)

    store.free.set()
    results = await asyncio.gather(first, *later, return_exceptions=True)

    assert results == [store.error] * 3
    assert store.calls.count(["held"]) == 2
