"""What sharing costs: `python -m benchmarks.fairness`, or with `--quick` for a first impression.

Figures that must not grow: the time of a claim with the number of tenants, the wait of a tenant
with one event with what another has queued, and the time of other keys with the length of one
lane. What is compared takes turns, and the best of several rounds counts. Publishing and draining
are timed by the processor: what else the machine does must not decide about a few percent.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from redrive import Event, NewEvent, Redrive
from redrive.clock import SystemClock
from redrive.model.destination import Order
from redrive.model.settlement import Delivered
from redrive.store import Allowance, Claim, ClaimRequest, Settled
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.leases import settle
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.claiming import claim
from redrive.stores.sqlite.connection import connect
from redrive.stores.sqlite.session import SqliteSession, finish

__all__ = ["main"]

RESULTS = Path(__file__).with_name("results")
_TYPE = "order.paid"
_PER_CALL = 1_000
_LEASE = timedelta(minutes=5)

Figures = Mapping[str, float]
Measure = Callable[[Path], Awaitable[Figures]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large it is, and how often it is done."""

    rounds: int
    backlog: int
    claims: int
    events: int
    keys: int


FULL = Plan(rounds=5, backlog=100_000, claims=100, events=5_000, keys=500)
QUICK = Plan(rounds=2, backlog=10_000, claims=20, events=1_000, keys=100)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit code is 0 whatever the figures are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small: a first impression")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the files are made")
    given = parser.parse_args(arguments)
    plan = QUICK if given.quick else FULL
    given.folder.mkdir(parents=True, exist_ok=True)
    table = Table(header_style="bold")
    for column in ("what", "small", "large", "large / small"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for small, large in (
        (_claims(plan, tenants=10), _claims(plan, tenants=10_000)),
        (_one_event(100), _one_event(plan.backlog)),
        (_lanes(plan, hot=0), _lanes(plan, hot=plan.backlog)),
    ):
        _compare(small, large, plan, given.folder, table)
    Console(highlight=False).print(table)
    return 0


def _compare(small: Measure, large: Measure, plan: Plan, folder: Path, table: Table) -> None:
    best: list[dict[str, float]] = [{}, {}]
    for number in range(plan.rounds):
        pairs = list(zip((small, large), best, strict=True))
        for measure, figures in pairs if number % 2 else reversed(pairs):
            with TemporaryDirectory(prefix="bench-", dir=folder) as own:
                for name, value in asyncio.run(_run(measure, Path(own))).items():
                    figures[name] = min(value, figures.get(name, value))
    for name, value in best[0].items():
        ratio = best[1][name] / value if value else 0.0
        table.add_row(name, f"{value:,.1f}", f"{best[1][name]:,.1f}", f"{ratio:.2f}")


async def _run(measure: Measure, folder: Path) -> Figures:
    return await measure(folder)


def _claims(plan: Plan, *, tenants: int) -> Measure:
    """Time claims of 100 of a backlog that so many tenants share; each is settled between them."""

    async def measure(folder: Path) -> Figures:
        await _publish(_app(folder), plan.backlog, lambda n: {"tenant": f"t{n % tenants:05}"})
        connection, clock, taken = connect(folder / "redrive.db"), SystemClock(), []
        for _ in range(plan.claims):
            connection.execute("BEGIN IMMEDIATE")
            began = time.perf_counter()
            claimed = finish(claim(SqliteSession(connection, clock.now(), PLAIN), _request(100)))
            taken.append(time.perf_counter() - began)
            session = SqliteSession(connection, clock.now(), PLAIN)
            finish(settle(session, _delivered(claimed), history=1))
            connection.execute("COMMIT")
            assert len(claimed.deliveries) == 100
        connection.close()
        return {"a claim of 100, 10 or 10,000 tenants (us)": min(taken) * 1e6}

    return measure


def _one_event(backlog: int) -> Measure:
    """Count how many of a large tenant's deliveries start before the one of a small tenant."""

    async def measure(folder: Path) -> Figures:
        app = _app(folder)
        await _publish(app, backlog, lambda _: {"tenant": "large"})
        store = SqliteStore(folder / "redrive.db", clock=SystemClock())
        await store.open()
        await _settle(store, await store.claim(_request(50)))
        await _publish(app, 1, lambda _: {"tenant": "small"})
        before = 0
        while True:
            claimed = await store.claim(_request(1))
            if claimed.deliveries[0].event.tenant == "small":
                break
            before += 1
        await store.close()
        return {"deliveries before one of a small tenant": float(before)}

    return measure


def _lanes(plan: Plan, *, hot: int) -> Measure:
    """Time the events of many keys beside one key with a long lane whose head never ends."""

    async def measure(folder: Path) -> Figures:
        app = _app(folder, order="park")
        if hot:
            await _publish(app, hot, lambda _: {"key": "hot"})
            store = SqliteStore(folder / "redrive.db", clock=SystemClock())
            await store.open()
            assert len((await store.claim(_request(1))).deliveries) == 1
            await store.close()
        published = await _publish(app, plan.events, lambda n: {"key": f"k{n % plan.keys}"})
        async with app:
            began = time.process_time()
            tally = await app.drain()
            drained = time.process_time() - began
            assert tally.delivered == plan.events
        return {
            "publish beside a hot lane (us an event)": published / plan.events * 1e6,
            "drain beside a hot lane (us an event)": drained / plan.events * 1e6,
            **await _lane_itself(folder, hot=max(hot, 1_000)),
        }

    return measure


async def _lane_itself(folder: Path, *, hot: int) -> Figures:
    """Time publishing into a lane of this length, and settling its head."""
    own = folder / "lane"
    own.mkdir()
    app = _app(own, order="park")
    await _publish(app, hot, lambda _: {"key": "hot"})
    published = await _publish(app, _PER_CALL, lambda _: {"key": "hot"})
    connection, clock, taken = connect(own / "redrive.db"), SystemClock(), []
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(200):
        head = finish(claim(SqliteSession(connection, clock.now(), PLAIN), _request(1)))
        began = time.perf_counter()
        session = SqliteSession(connection, clock.now(), PLAIN)
        finish(settle(session, _delivered(head), history=1))
        taken.append(time.perf_counter() - began)
    connection.execute("COMMIT")
    connection.close()
    return {
        "publish into a lane of 1,000 or the backlog (us an event)": published / _PER_CALL * 1e6,
        "settle its head (us)": min(taken) * 1e6,
    }


def _app(folder: Path, *, order: str = "none") -> Redrive:
    app = Redrive(f"sqlite:///{folder}/redrive.db")

    @app.handler("order.*", name="noop", order=Order(order))
    async def handle(event: Event[Any]) -> None: ...

    return app


async def _publish(
    app: Redrive, count: int, attributes: Callable[[int], Mapping[str, Any]]
) -> float:
    """Publish so many, and return the seconds of the processor it took."""
    seconds = 0.0
    async with app:
        await app.open()
        for begin in range(0, count, _PER_CALL):
            numbers = range(begin, min(begin + _PER_CALL, count))
            events = [NewEvent(type=_TYPE, payload={"n": n}, **attributes(n)) for n in numbers]
            began = time.process_time()
            await app.publish_many(events)
            seconds += time.process_time() - began
    return seconds


def _request(total: int) -> ClaimRequest:
    return ClaimRequest(
        worker="bench",
        allowances=(Allowance(destination="noop", total=total),),
        generations=("default",),
        limit=1_000,
        lease=_LEASE,
    )


async def _settle(store: SqliteStore, claim: Claim) -> None:
    await store.settle(_delivered(claim))


def _delivered(claim: Claim) -> list[Settled]:
    return [Settled(lease=one.lease, settlement=Delivered()) for one in claim.deliveries]


if __name__ == "__main__":
    sys.exit(main())
