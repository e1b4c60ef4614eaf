"""The server within another application: below a path of it, with the other's pages beside it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from tests.web.client import Client
from tests.web.conftest import Served

_DJANGO = """
import asyncio
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["localhost"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    SECRET_KEY="of nobody",
)
urlpatterns = [path("shop", lambda request: HttpResponse("the shop"))]

from django.core.asgi import get_asgi_application
from starlette.applications import Starlette
from starlette.routing import Mount
from redrive import Redrive
from tests.web.client import Client

app = Redrive("sqlite:///shop.db")
application = Starlette(
    routes=[Mount("/redrive", app.asgi(login=False)), Mount("/", get_asgi_application())]
)


async def staying(scope, receive, send):
    # A caller who stays on the line: Django does nothing for one who has hung up.
    told = asyncio.Event()

    async def once():
        if told.is_set():
            await asyncio.Event().wait()
        told.set()
        return await receive()

    await application(scope, once, send)


async def main():
    async with app:
        client = Client(staying)
        published = await client.post("/redrive/api/v1/events", {"type": "order.paid"})
        for answer in (published, await client.get("/shop"), await client.get("/redrive/docs")):
            print(answer.status)


asyncio.run(main())
"""


def _fastapi(inner: ASGIApp) -> ASGIApp:
    around = FastAPI()
    around.mount("/redrive", inner)
    around.add_api_route("/shop", lambda: "the shop")
    return around


def _starlette(inner: ASGIApp) -> ASGIApp:
    def shop(_: object) -> PlainTextResponse:
        return PlainTextResponse("the shop")

    return Starlette(routes=[Mount("/redrive", inner), Route("/shop", shop)])


@pytest.mark.parametrize("around", [_fastapi, _starlette], ids=["fastapi", "starlette"])
async def test_it_is_mounted_below_a_path_of_another_application(
    served: Served, around: Callable[[ASGIApp], ASGIApp]
) -> None:
    client = Client(around(served.app.asgi(login=False)))

    status, page = await client.get("/redrive/api/v1/status"), await client.get("/redrive/docs")
    published = await client.post("/redrive/api/v1/events", {"type": "order.paid"})
    shown, nothing = await client.get("/redrive/"), await client.get("/redrive/nowhere")
    shop = await client.get("/shop")

    assert (status.status, status.json["events"]) == (200, 2)
    assert b"/redrive/docs/style.css" in page.body
    assert b'href="/redrive/dead-letters' in shown.body
    assert (published.status, nothing.status, nothing.json["type"]) == (200, 404, "not-found")
    assert b"the shop" in shop.body


async def test_a_login_leads_back_below_the_path(served: Served) -> None:
    await served.app.operations.add_user(
        "ann", "correct horse battery", role="view", by="test", why="to look"
    )
    client = Client(_starlette(served.app.asgi()))

    asked, refused = await client.get("/redrive/audit"), await client.get("/redrive/api/v1/status")

    assert asked.headers["location"] == "/redrive/login?to=%2Faudit"
    assert refused.status == 401


async def test_it_is_mounted_beside_a_django_project(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{_DJANGO}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout.split(), done.returncode) == (["200", "200", "200"], 0), done.stderr
