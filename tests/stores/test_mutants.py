"""The conformance suite is worth something: it rejects every broken store, and no sound one."""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import product
from typing import Any

import pytest

from redrive.stores.memory import MemoryStore
from tests.conformance import MakeStore, StoreConformance, World
from tests.stores.mutants import MUTANTS

PROMISES = sorted(name for name in dir(StoreConformance) if name.startswith("test_"))
_STEM = 5


def cases_of(promise: str) -> Iterator[dict[str, Any]]:
    """Go through the arguments that a promise takes besides a world, as its marks name them."""
    marks = getattr(getattr(StoreConformance, promise), "pytestmark", ())
    choices = [
        [(mark.args[0], value) for value in mark.args[1]]
        for mark in marks
        if mark.name == "parametrize"
    ]
    for chosen in product(*choices):
        arguments: dict[str, Any] = {}
        for names, value in chosen:
            several = names.replace(" ", "").split(",") if isinstance(names, str) else names
            arguments |= zip(several, [value] if len(several) == 1 else value, strict=True)
        yield arguments


def likeliest(mutant: type[MemoryStore]) -> Sequence[str]:
    """Return all promises, those first that speak of what the mutant is called for."""
    words = {one[:_STEM].lower() for one in re.findall("[A-Z][a-z]+", mutant.__name__)}

    def shared(promise: str) -> int:
        return len(words.intersection(one[:_STEM] for one in promise.split("_")))

    return sorted(PROMISES, key=shared, reverse=True)


async def broken_promises(
    make_store: MakeStore, promises: Sequence[str] = PROMISES
) -> AsyncGenerator[tuple[str, Exception]]:
    suite = StoreConformance()
    for promise in promises:
        for arguments in cases_of(promise):
            async with World.opened(make_store, history=suite.history) as world:
                try:
                    await getattr(suite, promise)(world, **arguments)
                except pytest.fail.Exception as failed:
                    yield promise, AssertionError(failed)
                except Exception as failed:  # noqa: BLE001 - the caller judges it
                    yield promise, failed


async def test_the_unbroken_store_keeps_every_promise() -> None:
    assert [broken async for broken in broken_promises(MemoryStore)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_the_suite_rejects(mutant: type[MemoryStore]) -> None:
    """Only an assertion counts: a test that merely stumbles tells an author nothing."""
    async with aclosing(broken_promises(mutant, likeliest(mutant))) as broken:
        async for _, failed in broken:
            if isinstance(failed, AssertionError):
                return

    pytest.fail(f"{mutant.__name__} keeps every promise that the suite checks")
