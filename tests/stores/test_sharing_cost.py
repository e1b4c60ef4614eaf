"""What a claim costs is bounded: by what it takes, not by who else waits or how much.

Cost is counted in steps of SQLite's virtual machine, so a busy machine does not change the figures.
With `REDRIVE_TEST_LONG=1` everything has its full size.
"""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from redrive.model.delivery import DeliveryId
from redrive.model.settlement import Delivered
from redrive.store import Allowance, Claim, ClaimRequest, Settled
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.leases import settle
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.claiming import claim
from redrive.stores.sqlite.connection import connect
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.testing.clock import FakeClock
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR
from tests.scale import IS_LONG

BACKLOG = 100_000 if IS_LONG else 3_000
MANY_TENANTS = 10_000 if IS_LONG else 600
EVENTS, KEYS = (5_000, 500) if IS_LONG else (500, 50)
PER_BATCH = 1_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as world:
        yield world


def opened(folder: Path) -> Any:  # noqa: ANN401 - an open world
    folder.mkdir(exist_ok=True)
    path = folder / "redrive.db"
    return World.opened(lambda clock: SqliteStore(path, clock=clock), history=20)


async def fill(
    world: World, count: int, attributes: Callable[[int], dict[str, Any]], to: str = "billing"
) -> None:
    for begin in range(0, count, PER_BATCH):
        numbers = range(begin, min(begin + PER_BATCH, count))
        await world.append(entries(*[an_event(**attributes(n)) for n in numbers], to=[to]))


def one_of(tenants: int) -> Callable[[int], dict[str, Any]]:
    return lambda number: {"tenant": f"t{number % tenants:05}"}


class Meter:
    """Claims and settles on a connection of its own, and counts the steps."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self._connection = connect(folder / "redrive.db")
        self._clock = clock

    def claim(self, total: int, destination: str = "billing") -> tuple[Claim, int]:
        request = ClaimRequest(
            worker="worker-1",
            allowances=(Allowance(destination=destination, total=total),),
            generations=("default",),
            limit=1_000,
            lease=timedelta(hours=1),
        )
        return self._count(
            lambda c: finish(claim(SqliteSession(c, self._clock.now(), PLAIN), request))
        )

    def settle(self, claim: Claim) -> int:
        batch = [Settled(lease=one.lease, settlement=Delivered()) for one in claim.deliveries]
        _, steps = self._count(
            lambda c: finish(settle(SqliteSession(c, self._clock.now(), PLAIN), batch, history=20))
        )
        return steps

    def drain(self, destination: str) -> tuple[int, int]:
        """Claim and settle until nothing is left; return how many that were, and the steps."""
        count = steps = 0
        while True:
            claim, some = self.claim(100, destination)
            steps += some
            if not claim.deliveries:
                return count, steps
            count += len(claim.deliveries)
            steps += self.settle(claim)

    def close(self) -> None:
        self._connection.close()

    def _count(self, work: Callable[[apsw.Connection], Any]) -> tuple[Any, int]:
        steps = 0

        def step() -> bool:
            nonlocal steps
            steps += 1
            return False

        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.set_progress_handler(step, 1)
        result = work(self._connection)
        self._connection.set_progress_handler(None)
        self._connection.execute("COMMIT")
        return result, steps


async def test_one_event_starts_within_one_round_whatever_another_has_queued(world: World) -> None:
    await fill(world, BACKLOG, lambda _: {"tenant": "large"})
    await world.claim(total=100)

    await fill(world, 1, lambda _: {"tenant": "small"})

    claims = [await world.claim(total=1, worker=f"worker-{number}") for number in range(4)]
    assert "small" in [one.event.tenant for claim in claims for one in claim.deliveries]


async def test_a_claim_costs_the_same_with_few_tenants_and_with_many(tmp_path: Path) -> None:
    steps = []
    for tenants in (10, MANY_TENANTS):
        async with opened(tmp_path / str(tenants)) as world:
            await fill(world, BACKLOG, one_of(tenants))
            meter = Meter(tmp_path / str(tenants), world.clock)
            claims = [meter.claim(100) for _ in range(5)]
            meter.close()
        assert [len(claim.deliveries) for claim, _ in claims] == [100] * 5
        steps.append(max(cost for _, cost in claims))

    few, many = steps
    assert many < 2 * few


async def test_a_claim_costs_the_same_whatever_a_tenant_has_queued(tmp_path: Path) -> None:
    steps = []
    for backlog in (200, BACKLOG):
        async with opened(tmp_path / str(backlog)) as world:
            await fill(world, backlog, lambda _: {"tenant": "large"})
            await fill(world, 100, lambda n: {"tenant": f"t{n}"})
            meter = Meter(tmp_path / str(backlog), world.clock)
            steps.append(meter.claim(100)[1])
            meter.close()

    little, much = steps
    assert much < 1.1 * little


async def test_paused_tenants_without_number_bound_the_cost_and_starve_nobody(
    world: World, tmp_path: Path
) -> None:
    count = 3_000
    await fill(world, count, lambda n: {"tenant": f"paused-{n:05}"})
    for number in range(count):
        await world.store.pause_tenant(f"paused-{number:05}", destination="billing", actor=OPERATOR)
    await fill(world, 1, lambda _: {"tenant": "zzz"})
    meter = Meter(tmp_path, world.clock)

    served: list[Any] = []
    looks = 0
    while not served:
        claim, steps = meter.claim(100)
        served, looks = [one.event.tenant for one in claim.deliveries], looks + 1
        assert steps < 500_000
        assert served or claim.next_due == world.after("100ms")
    meter.close()

    assert served == ["zzz"]
    assert looks <= 4


async def test_a_flood_that_comes_due_at_once_does_not_hide_others(world: World) -> None:
    """What comes due is made ready bit by bit, and each tenant's next must be among it."""
    due = world.after("1s")
    await fill(world, 5_000, lambda _: {"tenant": "large", "due": due})
    await fill(world, 1, lambda _: {"tenant": "small", "due": world.after("2s")})
    world.clock.advance("3s")

    claim = await world.claim(total=4)

    assert [one.event.tenant for one in claim.deliveries] == ["large", "large", "large", "small"]


async def test_a_long_lane_costs_other_keys_nothing(tmp_path: Path) -> None:
    steps = []
    for hot in (0, BACKLOG):
        async with opened(tmp_path / str(hot)) as world:
            meter = Meter(tmp_path / str(hot), world.clock)
            if hot:
                await fill(world, hot, lambda _: {"key": "hot"}, to="ledger")
                assert len(meter.claim(1, "ledger")[0].deliveries) == 1
            await fill(world, EVENTS, lambda n: {"key": f"k{n % KEYS}"}, to="ledger")
            count, cost = meter.drain("ledger")
            meter.close()
        assert count == EVENTS
        steps.append(cost)

    without, beside = steps
    assert beside < 1.1 * without


async def test_a_long_lane_is_as_quick_at_its_head_as_a_short_one(tmp_path: Path) -> None:
    steps = []
    for length in (20, BACKLOG):
        async with opened(tmp_path / str(length)) as world:
            await fill(world, length, lambda _: {"key": "hot"}, to="ledger")
            meter = Meter(tmp_path / str(length), world.clock)
            claim, cost = meter.claim(1, "ledger")
            cost += meter.settle(claim)
            following, more = meter.claim(1, "ledger")
            meter.close()
        assert [one.lease.delivery_id for one in following.deliveries] == [DeliveryId(2)]
        steps.append(cost + more)

    short, long = steps
    assert long < 1.1 * short
