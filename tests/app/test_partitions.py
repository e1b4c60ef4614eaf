"""Partitions of a projection, as an app declares them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from redrive import ConfigurationError, Event, ReadModel, Redrive, Retry
from redrive.observer import ProjectionFailed
from redrive.observers.prometheus import PrometheusObserver
from tests.app.recorder import Recorder

FIRST, SECOND = "order-2", "order-1"
"""Keys of the first and the second of two partitions."""


@pytest.fixture
def shop(tmp_path: Path) -> Callable[..., Redrive]:
    """Return what makes an app whose projection fails for bad events, in one file."""

    def make(partitions: int, *, on_failure: Literal["park", "halt"] = "park") -> Redrive:
        app = Redrive(f"sqlite:///{tmp_path}/shop.db")

        @app.projection(
            "order.*",
            name="orders",
            partitions=partitions,
            on_failure=on_failure,
            retry=Retry(max_attempts=1),
        )
        async def apply(event: Event[Any], _: ReadModel) -> None:
            if event.payload == "bad":
                raise ValueError("bad")

        return app

    return make


async def test_metrics_tell_of_each_partition(shop: Callable[..., Redrive]) -> None:
    async with shop(2) as app:
        receipt = await app.publish("order.paid", "fine", key=FIRST)
        await app.drain()
        await app.projections.reached(receipt, "orders", timeout="0s")
        await app.publish("order.paid", "fine", key=SECOND)

        told = PrometheusObserver().render(projections=await app.projections.list()).decode()

    lag = "redrive_projection_partition_lag"
    assert f'{lag}{{destination="orders",partition="0"}} 0.0' in told
    assert f'{lag}{{destination="orders",partition="1"}} 1.0' in told
    assert f'{lag}_seconds{{destination="orders",partition="0"}} 0.0' in told
    assert 'redrive_projection_lag{destination="orders"} 1.0' in told


async def test_what_is_behind_in_one_partition_is_not_reached(
    shop: Callable[..., Redrive],
) -> None:
    async with shop(2, on_failure="halt") as app:
        await app.publish("order.paid", "bad", key=FIRST)
        await app.drain()
        receipt = await app.publish("order.paid", "fine", key=SECOND)
        await app.drain()

        with pytest.raises(TimeoutError, match="1 events behind"):
            await app.projections.reached(receipt, "orders", timeout="0s")


async def test_another_number_goes_on_where_all_partitions_are_equally_far(
    shop: Callable[..., Redrive],
) -> None:
    counts: list[int] = []
    for partitions in (1, 3, 2):
        async with shop(partitions) as app:
            for key in "abcdef":
                await app.publish("order.paid", "fine", key=key)
            await app.drain()
            [orders] = await app.projections.list()
            assert (len(orders.parts) or 1, orders.is_caught_up) == (partitions, True)
            counts.append(orders.checkpoint.count)

    assert counts == [6, 12, 18]


async def test_another_number_is_refused_where_they_are_not_until_a_reset(
    shop: Callable[..., Redrive],
) -> None:
    async with shop(2, on_failure="halt") as app:
        await app.publish("order.paid", "bad", key=FIRST)
        await app.publish("order.paid", "fine", key=SECOND)
        await app.drain()
    told = Recorder()
    app = shop(3)
    app.observe(told)

    async with app:
        await app.drain()
        refused = [one.error for one in told.of(ProjectionFailed)]
        before = (await app.projections.list())[0].parts
        await app.projections.reset("orders", by="ada")
        await app.drain()
        [after] = await app.projections.list()

    assert len(before) == 2
    said = (
        "The projection 'orders' has 2 partitions, which have not read equally far, so that it "
        "cannot go on with 3: declare a new version with 3, or have it begin anew with: redrive "
        "projection reset orders --version 1"
    )
    assert set(refused) == {said}
    assert (len(after.parts), after.is_caught_up, after.checkpoint.count) == (3, True, 1)


@pytest.mark.parametrize("partitions", [0, 65, True, "4"])
def test_a_number_that_cannot_be_is_refused(partitions: Any) -> None:  # noqa: ANN401 - what a user may write
    with pytest.raises(ConfigurationError, match="whole number from 1 to 64"):
        Redrive().projection("order.*", name="orders", partitions=partitions)
