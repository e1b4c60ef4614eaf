"""The conformance suite is worth something: it rejects every broken store, and no sound one."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from redrive.stores.memory import MemoryStore
from redrive.testing.conformance import MakeStore, StoreConformance, World
from tests.stores.mutants import MUTANTS

PROMISES = sorted(name for name in dir(StoreConformance) if name.startswith("test_"))


async def broken_promises(make_store: MakeStore) -> AsyncGenerator[tuple[str, Exception]]:
    suite = StoreConformance()
    for promise in PROMISES:
        async with World.opened(make_store, history=suite.history) as world:
            try:
                await getattr(suite, promise)(world)
            except pytest.fail.Exception as failed:
                yield promise, AssertionError(failed)
            except Exception as failed:  # noqa: BLE001 - the caller judges it
                yield promise, failed


async def test_the_unbroken_store_keeps_every_promise() -> None:
    assert [broken async for broken in broken_promises(MemoryStore)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_the_suite_rejects(mutant: type[MemoryStore]) -> None:
    """Only an assertion counts: a test that merely stumbles tells an author nothing."""
    async with aclosing(broken_promises(mutant)) as broken:
        async for _, failed in broken:
            if isinstance(failed, AssertionError):
                return

    pytest.fail(f"{mutant.__name__} keeps every promise that the suite checks")
