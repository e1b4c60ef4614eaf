"""The OpenAPI document describes the API that there is, and a page shows it."""

from __future__ import annotations

from typing import Any

from redrive.web.openapi import document
from redrive.web.table import ROUTES
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
    stopping = await type(served.open)(leaving).get("/readyz")
    assert (stopping.status, stopping.json["reasons"]) == (503, ["the server is stopping"])
