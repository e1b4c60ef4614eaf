"""Thousands of dead letters of three causes are three groups."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.model.delivery import Leased
from redrive.model.outcome import Fault
from redrive.model.settlement import Failed, FailureReason
from redrive.policies.fingerprint import grouped
from redrive.store import Claim, Settled
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres import PostgresStore
from redrive.stores.sqlite import SqliteStore
from tests.conformance import MakeStore, World, an_event, entries

MANY = 2_000


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    match request.param:
        case "memory":
            return MemoryStore
        case "sqlite":
            return lambda clock: SqliteStore(tmp_path / "redrive.db", clock=clock)
        case _:
            url = str(request.getfixturevalue("postgres_url"))
            return lambda clock: PostgresStore(url, clock=clock)


@pytest.fixture
async def world(make_store: MakeStore) -> AsyncIterator[World]:
    async with World.opened(make_store, history=20) as world:
        yield world


def in_publish_order(claim: Claim) -> list[Leased]:
    return sorted(claim.deliveries, key=lambda one: one.lease.delivery_id)


def a_fault(number: int) -> Fault:
    """Return a failure of one of three causes, with numbers of its own."""
    causes = (
        ("KeyError", "'total'"),
        ("ValueError", f"could not convert string to float: '{number},90'"),
        ("ConnectionError", f"10.0.{number % 7}.{number % 251}:5432 refused order-{number}"),
        ("KeyError", "'total'"),
    )
    error_class, message = causes[number % len(causes)]
    return Fault(error_class=error_class, message=message, rule="default")


async def test_thousands_of_dead_letters_of_three_causes_are_three_groups(world: World) -> None:
    events = [an_event(tenant=f"tenant-{number % 5}") for number in range(MANY)]
    await world.append(entries(*events))
    claim = await world.claim(total=MANY)
    await world.store.settle(
        [
            Settled(
                lease=leased.lease,
                settlement=Failed(
                    reason=FailureReason.TERMINAL, fault=grouped(a_fault(number), "billing")
                ),
            )
            for number, leased in enumerate(in_publish_order(claim))
        ]
    )

    groups = await world.groups()

    assert {one.title: one.count for one in groups} == {
        "KeyError: 'total'": MANY // 2,
        "ConnectionError: # refused order-#": MANY // 4,
        "ValueError: could not convert string to float: '#'": MANY // 4,
    }
    assert groups[0].title == "KeyError: 'total'"
    assert groups[0].top_tenants == tuple((f"tenant-{number}", MANY // 10) for number in range(3))
