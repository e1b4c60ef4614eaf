"""The OpenAPI document describes the API that there is, and a page shows it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.clock import SystemClock
from redrive.store import Figures
from redrive.web.live import Live
from redrive.web.openapi import document
from redrive.web.problem import ProblemError
from redrive.web.table import ROUTES
from tests.web.client import Client
from tests.web.conftest import Served


def references(value: Any) -> list[str]:  # noqa: ANN401 - any JSON
    match value:
        case {"$ref": str(reference)}:
            return [reference]
        case dict():
            return [one for inner in value.values() for one in references(inner)]
        case list():
            return [one for inner in value for one in references(inner)]
    return []


def dictionaries(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    match value:
        case dict():
            return [value, *(one for inner in value.values() for one in dictionaries(inner))]
        case list():
            return [one for inner in value for one in dictionaries(inner)]
    return []


def test_the_document_describes_each_route_by_types_that_it_holds() -> None:
    told = document(version="1", root="/below")

    operations = [one for methods in told["paths"].values() for one in methods.values()]
    names = {one.rpartition("/")[2] for one in references(told)}
    assert told["openapi"] == "3.1.0"
    assert len(operations) == len(ROUTES)
    assert len({one["operationId"] for one in operations}) == len(ROUTES)
    assert names <= set(told["components"]["schemas"])
    assert all(one["summary"].endswith((".", ":")) or one["summary"] for one in operations)
    assert told["servers"] == [{"url": "/below"}]


@pytest.mark.parametrize(
    "span",
    [
        timedelta(0),
        timedelta(milliseconds=3.218),
        timedelta(days=1, seconds=1.25),
        timedelta(days=3),
        timedelta(hours=2),
        -timedelta(microseconds=1),
    ],
    ids=str,
)
def test_the_document_says_how_a_duration_is_written(span: timedelta) -> None:
    """The `duration` of JSON Schema has no fractions, and latencies have."""
    schemas = document(version="1")["components"]["schemas"]

    latency = schemas["LoggedRequest"]["properties"]["latency"]

    assert re.search(latency["pattern"], msgspec.to_builtins(span))
    assert "duration" not in {one.get("format") for one in dictionaries(schemas)}


async def test_the_page_needs_neither_a_login_nor_a_script(served: Served) -> None:
    page = await served.open.send("GET", "/docs", root_path="/below")
    style = await served.open.get("/docs/style.css")
    listed = await served.open.get("/openapi.json")

    text = page.body.decode()
    assert (page.status, style.status, listed.status) == (200, 200, 200)
    assert all(f"{one.path.partition('{')[0]}" in text for one in ROUTES)
    assert "<script" not in text
    assert "//" not in text.replace("://", "")
    assert "/below/docs/style.css" in text
    assert "script-src" not in page.headers["content-security-policy"]


async def test_the_server_tells_its_health_and_its_metrics(served: Served) -> None:
    alive, ready = await served.open.get("/healthz"), await served.open.get("/readyz")
    metrics = await served.open.get("/metrics")
    leaving = served.app.asgi(login=False, hindrances=lambda: ["the server is stopping"])

    assert (alive.json, ready.json) == ({"alive": True}, {"ready": True, "reasons": []})
    assert b'redrive_http_requests_total{method="GET",route="/readyz",status="200"} 1' in (
        metrics.body
    )
    assert b"redrive_events" in metrics.body
    stopping = await Client(leaving).get("/readyz")
    assert (stopping.status, stopping.json["reasons"]) == (503, ["the server is stopping"])


async def test_to_be_ready_costs_no_more_for_many_destinations(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it has looked at every gate")

    monkeypatch.setattr(served.app.operations, "gates", refuse)

    assert (await served.open.get("/readyz")).status == 200


async def test_a_store_that_does_not_answer_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("redrive.web.application._READY_SECONDS", 0.01)
    monkeypatch.setattr(type(served.app.log), "end", never)

    answer = await served.open.get("/readyz")

    assert (answer.status, answer.json["ready"]) == (503, False)
    assert "has not answered" in answer.json["reasons"][0]


async def test_all_who_listen_share_one_look_at_the_store(served: Served) -> None:
    looks = 0

    async def read() -> Figures:
        nonlocal looks
        looks += 1
        return await served.app.operations.status()

    live = Live(read, clock=SystemClock(), is_over=lambda: looks >= 5, every=0.001, most=2)
    streams = [aiter(live.frames()) for _ in range(2)]

    async def rest_of(stream: AsyncIterator[bytes]) -> list[bytes]:
        return [one async for one in stream]

    first = [await anext(one) for one in streams]
    with pytest.raises(ProblemError, match="2 streams are open"):
        live.check()
    rest = await asyncio.gather(*map(rest_of, streams))

    assert first[0].startswith(b'event: figures\ndata: {"now":')
    assert looks <= 6
    assert sum(map(len, rest)) > looks - 2
    live.check()


async def test_figures_are_streamed_to_who_may_see_all(served: Served) -> None:
    over: list[str] = []
    asgi = served.app.asgi(hindrances=lambda: over)
    viewer = await served.client("view", tenant="acme")
    over.append("the server is stopping")

    ended = await Client(served.app.asgi(login=False, hindrances=lambda: over)).get("/api/v1/live")

    assert (ended.status, ended.headers["content-type"]) == (
        *(200, "text/event-stream; charset=utf-8"),
    )
    assert (await viewer.get("/api/v1/live")).status == 403
    assert (await Client(asgi).get("/api/v1/live")).status == 401
