"""Live pages: a script of ours keeps them up to date; however many look, one asks the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message

from redrive.clock import SystemClock
from redrive.testing.clock import FakeClock
from redrive.web.pages.live import LivePages
from redrive.web.problem import ProblemError
from tests.web.client import Client
from tests.web.pages.browser import Browser
from tests.web.pages.conftest import Shop


class Listener:
    """Somebody who reads a stream as it comes."""

    def __init__(self, shop: Shop, path: str, headers: dict[str, str]) -> None:
        route, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": route,
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "headers": [
                (name.encode(), value.encode())
                for name, value in {
                    "host": "localhost",
                    "accept": "text/event-stream",
                    **headers,
                }.items()
            ],
        }
        self._asgi = shop.asgi
        self._came: asyncio.Queue[Message] = asyncio.Queue()
        self._gone = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        task = asyncio.create_task(self._asgi(self._scope, self._receive, self._came.put))
        try:
            begun = await self._came.get()
            assert begun["status"] == 200, begun
            yield self
        finally:
            self._gone.set()
            await task

    async def next(self) -> dict[str, Any]:
        frame = (await self._came.get())["body"].decode()
        event, data = frame.strip().split("\n")
        assert event == "event: page", frame
        told: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return told

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}


async def test_a_page_that_is_listened_to_comes_without_anybodys_token(broken: Shop) -> None:
    async with Listener(broken, "/?over=day", {}).listening() as listener:
        told = await listener.next()

    assert "3 dead letters wait for you." in told["html"]
    assert 'id="trends" data-live' in told["html"]
    assert 'name="token" value=""' in told["html"] or "<form" not in told["html"]
    assert told["is_live"] is True
    assert "<script" not in told["html"]


async def test_however_many_look_the_store_is_asked_once() -> None:
    reads, clock = 0, SystemClock()

    async def read() -> dict[str, int]:
        nonlocal reads
        reads += 1
        return {"read": reads}

    pages = LivePages(clock, is_over=lambda: False)
    streams = [pages.answer(("/", "view"), read).body_iterator for _ in range(200)]  # type: ignore[attr-defined]
    frames = await asyncio.gather(*(anext(one) for one in streams))

    assert reads == 1
    assert set(frames) == {b'event: page\ndata: {"read":1}\n\n'}
    for one in streams:
        await one.aclose()
    assert pages.streams == 0


async def test_who_comes_after_an_act_is_not_sent_what_was_before() -> None:
    reads = 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        return reads

    pages = LivePages(FakeClock(), is_over=lambda: False)
    before, same, after = (pages.answer("/", read).body_iterator for _ in range(3))  # type: ignore[attr-defined]
    frames = [await anext(before), await anext(same)]
    pages.forget()
    frames.append(await anext(after))

    assert frames == [b"event: page\ndata: %d\n\n" % number for number in (1, 1, 2)]
    for one in (before, same, after):
        await one.aclose()


async def test_pages_of_other_roles_are_read_on_their_own() -> None:
    read_by: list[str] = []

    def reading(role: str) -> Any:  # noqa: ANN401 - a read of that role
        async def read() -> str:
            read_by.append(role)
            return role

        return read

    pages = LivePages(FakeClock(), is_over=lambda: False)
    streams = [
        pages.answer(("/", role), reading(role)).body_iterator  # type: ignore[attr-defined]
        for role in ("view", "admin", "view")
    ]
    frames = [await anext(one) for one in streams]

    assert read_by == ["view", "admin"]
    assert [b"admin" in one for one in frames] == [False, True, False]
    for one in streams:
        await one.aclose()


async def test_what_takes_long_to_read_is_read_less_often() -> None:
    clock, reads = FakeClock(), 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        clock.advance("2s")
        return reads

    stream = LivePages(clock, is_over=lambda: False).answer("a", read).body_iterator  # type: ignore[attr-defined]
    await anext(stream)
    following = asyncio.ensure_future(anext(stream))
    await clock.sleep(0)
    clock.advance("17s")
    for _ in range(10):
        await clock.sleep(0)
    assert reads == 1

    clock.advance("1s")

    assert await following == b"event: page\ndata: 2\n\n"
    await stream.aclose()


async def test_more_than_there_is_room_for_are_refused() -> None:
    pages = LivePages(FakeClock(), is_over=lambda: False, most=1)

    async def read() -> str:
        return ""

    first = pages.answer("a", read).body_iterator  # type: ignore[attr-defined]
    await anext(first)

    with pytest.raises(ProblemError) as refused:
        pages.answer("b", read)

    assert refused.value.status == 503
    await first.aclose()


async def test_who_may_see_a_part_only_is_not_streamed_to(broken: Shop) -> None:
    made = await broken.operations.create_token(
        "v", role="view", tenant="acme", by="test", why="to look"
    )
    client = Client(broken.app.asgi(), token=made.secret)

    answer = await client.get("/dead-letters", accept="text/event-stream")

    assert answer.status == 204


async def test_the_module_is_ours_and_the_policy_allows_nothing_inline(shop: Shop) -> None:
    browser = Browser(shop.asgi)
    await browser.open("/")
    html, policy = browser.answer.body.decode(), browser.answer.headers["content-security-policy"]

    assert "unsafe" not in policy
    assert "script-src 'self'; connect-src 'self'" in policy
    assert html.count("<script") == 1
    assert '<script type="module" src="/assets/live.js?v=' in html
    assert '<main id="main" data-live' in html
    script = await Client(shop.asgi).get("/assets/live.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert b"eval(" not in script.body
    assert b"innerHTML" not in script.body
