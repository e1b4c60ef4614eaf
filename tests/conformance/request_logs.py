"""What a store promises about the log of requests."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.request_log import LoggedRequest
from redrive.store import RequestBatch
from tests.conformance.world import World

__all__ = ["RequestLogConformance"]


class RequestLogConformance:
    """`RequestLogs`."""

    async def test_requests_are_kept_as_they_were_the_latest_first(self, world: World) -> None:
        await world.version()
        first, second, third = (_request(world, number) for number in range(3))

        await world.store.log_requests({"billing": RequestBatch([first, second], 10)})
        await world.store.log_requests({"billing": RequestBatch([third], 10)})

        assert list(await _log(world)) == [third, second, first]
        assert list(await _log(world, limit=2)) == [third, second]

    async def test_of_requests_only_the_last_are_kept(self, world: World) -> None:
        await world.version()
        for number in range(0, 30, 3):
            batch = [_request(world, number + more) for more in range(3)]
            await world.store.log_requests({"billing": RequestBatch(batch, 6)})

        found = [one.delivery for one in await _log(world)]

        assert found[:6] == [29, 28, 27, 26, 25, 24]
        assert len(found) <= 8

    async def test_each_destination_has_requests_of_its_own(self, world: World) -> None:
        await world.version()
        one, other = _request(world, 1), _request(world, 2)

        await world.store.log_requests(
            {
                "billing": RequestBatch([one], 5),
                "mailing": RequestBatch([other], 5),
                "nobody": RequestBatch([other], 5),
            }
        )

        assert list(await _log(world)) == [one]
        assert list(await _log(world, "mailing")) == [other]
        assert list(await _log(world, "nobody")) == []


def _request(world: World, number: int) -> LoggedRequest:
    return LoggedRequest(
        at=world.now,
        delivery=number,
        event_id=f"event-{number}",
        event_type="order.paid",
        result="delivered",
        attempt=1,
        latency=timedelta(milliseconds=12),
        status="204",
        rule="orders@3",
        tenant="acmé",
        error="it hurts\N{REPLACEMENT CHARACTER}",
    )


async def _log(
    world: World, destination: str = "billing", *, limit: int = 100
) -> list[LoggedRequest]:
    return list(await world.store.logged_requests(destination, limit=limit))
