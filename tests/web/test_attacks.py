"""Who attacks the server gets nothing: no data, no act, and no word about what is there."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from datetime import timedelta

import msgspec
import pytest
from fastapi import FastAPI

from redrive.model.access import Grant, Role
from redrive.policies.access import NEEDS
from redrive.testing import FakeClock
from redrive.web.caller import OpenDoor
from redrive.web.server import HttpServer
from redrive.web.table import ROUTES
from tests.web.client import Client
from tests.web.conftest import Served

_PLACE = re.compile(r"{(\w+)(?::\w+)?}")


def path_of(path: str, **names: str) -> str:
    return "/api/v1" + _PLACE.sub(lambda found: names.get(found[1], "1"), path)


async def test_nothing_is_told_without_a_token(served: Served) -> None:
    for token in (None, "", "nonsense", "rdt_aaaaaaaaaaaa_" + "a" * 59, "x" * 5000):
        client = Client(served.asgi, token=token)
        for route in ROUTES:
            answer = await client.send(route.method, path_of(route.path))

            assert answer.status == 401, route.path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Bearer token" in answer.json["detail"]
        assert (await client.get("/metrics")).status == 401


async def test_a_revoked_token_opens_nothing(served: Served) -> None:
    viewer = await served.client("view")
    before = await viewer.get("/api/v1/status")
    [token] = await served.app.operations.tokens()

    await served.app.operations.revoke_token(token.id, by="test", why="stolen")

    assert (before.status, (await viewer.get("/api/v1/status")).status) == (200, 401)


async def test_the_first_token_closes_an_open_server(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.web.caller._LOOK_EVERY_SECONDS", 0.0)
    stranger = Client(served.app.asgi(is_open_without_tokens=True))
    paths = ("/api/v1/status", "/metrics")
    before = [(await stranger.get(path)).status for path in paths]

    made = await served.app.operations.create_token("ann", role="view", by="test", why="to ask")

    assert before == [200, 200]
    assert [(await stranger.get(path)).status for path in paths] == [401, 401]
    await served.app.operations.revoke_token(made.token.id, by="test", why="no longer")
    assert (await stranger.get("/api/v1/status")).status == 401


async def test_an_open_server_looks_for_tokens_once_a_second() -> None:
    clock, looks = FakeClock(), 0

    async def has_tokens() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    door = OpenDoor(has_tokens, clock)

    at_once = await asyncio.gather(*(door.is_open() for _ in range(10)))
    clock.advance(timedelta(seconds=0.9))
    soon = (await door.is_open(), looks)
    clock.advance(timedelta(seconds=0.1))
    later = (await door.is_open(), looks)
    clock.advance(timedelta(seconds=60))
    for_good = (await door.is_open(), looks)

    assert (all(at_once), soon, later, for_good) == (True, (True, 1), (False, 2), (False, 2))


async def test_each_role_may_what_the_table_says_and_nothing_else(served: Served) -> None:
    for role in Role:
        client = await served.client(role)
        for route in ROUTES:
            answer = await client.send(route.method, path_of(route.path), body=b'{"x')
            is_allowed = Grant(role=role).role.includes(NEEDS[route.operation].role)

            assert (answer.status == 403) is not is_allowed, (role, route.path, answer)


async def test_of_another_tenant_nothing_is_seen_anywhere(served: Served) -> None:
    """In lists, groups, counts, stories, logs and errors: not a name, not a number."""
    letters = await served.letters()
    theirs = letters["globex"]
    event = (await served.app.operations.show(theirs)).event.id
    admin = await served.client("admin", tenant="acme")
    bodies = {
        "publish": {"type": "order.paid"},
        "publish_many": {"events": [{"type": "order.paid"}]},
        "edit": {"payload": 1, "why": "y"},
        "preview_edit": {"payload": 1},
        "reschedule": {"ids": [theirs], "due": "1h"},
        "prioritise": {"ids": [theirs], "priority": 1},
        "plan_replay": {"ids": [theirs]},
        "create_token": {"name": "more", "role": "view", "why": "y", "tenant": "globex"},
    }
    with_reason = ("delete", "resolve", "reopen", "fail_pending", "delete_pending", "revoke_token")
    for route in ROUTES:
        body = bodies.get(route.operation)
        if body is None and route.is_unsafe:
            reason = {"why": "y"} if route.operation in with_reason else {}
            ids = {"ids": [theirs]} if "ids" in route.given.__struct_fields__ else {}
            body = {**reason, **ids}
        named = {"id": str(theirs), "name": event if "/events/" in route.path else "globex"}
        path = path_of(route.path, **named, destination="billing")
        path += f"?id={theirs}" if route.operation == "conditions" else ""
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = await admin.send(route.method, path, body=sent)

        if b"globex" in path.encode() + sent:
            assert answer.status in (403, 404), (path, answer)
        else:
            assert b"globex" not in answer.body, (path, answer)
            assert answer.status < 500, (path, answer)

    story = (await served.app.operations.show(theirs)).delivery
    assert story.is_dead_letter
    assert not story.edits
    listed = (await admin.get("/api/v1/dead-letters")).json["deliveries"]
    assert {one["tenant"] for one in listed} == {"acme"}
    groups = (await admin.get("/api/v1/dead-letters/groups")).json["groups"]
    assert {one["count"] for one in groups} == {1}
    mine = await admin.get(f"/api/v1/deliveries/{letters['acme']}")
    assert mine.json["group"]["count"] == 1
    assert (await admin.get("/api/v1/dead-letters?tenant=globex")).status == 403


async def test_what_is_anothers_and_what_is_not_there_look_the_same(served: Served) -> None:
    theirs = (await served.letters())["globex"]
    admin = await served.client("admin", tenant="acme")

    there = await admin.get(f"/api/v1/deliveries/{theirs}")
    nowhere = await admin.get("/api/v1/deliveries/123456")

    assert (there.status, there.body) == (404, nowhere.body)


async def test_of_another_destination_nothing_is_seen(served: Served) -> None:
    viewer = await served.client("operate", destinations=["mail"])
    billing = (await served.letters())["acme"]

    listed = await viewer.get("/api/v1/dead-letters")
    gates = await viewer.get("/api/v1/gates")
    paused = await viewer.post("/api/v1/destinations/billing/pause", {})
    own = await viewer.post("/api/v1/destinations/mail/pause", {})

    assert {one["destination"] for one in listed.json["deliveries"]} == {"mail"}
    assert [one["destination"] for one in gates.json["gates"]] == ["mail"]
    assert (await viewer.get(f"/api/v1/deliveries/{billing}")).status == 404
    assert (await viewer.get("/api/v1/status")).status == 403
    assert (paused.status, own.status, own.json) == (403, 200, {"changed": True})


async def test_a_publisher_of_one_tenant_publishes_for_no_other(served: Served) -> None:
    publisher = await served.client("publish", tenant="acme", name="shop")

    own = await publisher.post("/api/v1/events", {"type": "order.paid"})
    others = [
        await publisher.post("/api/v1/events", {"type": "order.paid", **more})
        for more in (
            {"tenant": "globex"},
            {"source": "globex/shop"},
            {"key": "globex-1", "expected_version": 1},
            {"unique_for": "1m", "unique_by": "x"},
        )
    ]

    told = await served.app.operations.show_event(own.json["event_id"])
    assert (told.event.tenant, told.event.source) == ("acme", "acme/shop")
    assert own.json["version"] is None
    assert [one.status for one in others] == [403] * 4


async def test_nobody_gives_more_than_they_have(served: Served) -> None:
    admin = await served.client("admin", tenant="acme")

    given = await admin.post(
        "/api/v1/tokens", {"name": "mine", "role": "view", "why": "y", "tenant": "acme"}
    )
    more = await admin.post("/api/v1/tokens", {"name": "all", "role": "admin", "why": "y"})
    assigned = await admin.post(
        "/api/v1/tokens",
        {"name": "x", "role": "view", "tenant": "acme", "why": "y", "created_by": "root"},
    )

    assert (given.status, more.status, assigned.status) == (200, 403, 400)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_page_of_another_site_cannot_act_or_look(
    served: Served, headers: dict[str, str]
) -> None:
    """Also where no login is needed: that port belongs to every page in the browser else."""
    letter = (await served.letters())["acme"]

    acted = await served.open.post(
        "/api/v1/dead-letters/delete", {"ids": [letter], "why": "x"}, **headers
    )
    looked = await served.open.get("/api/v1/dead-letters", **headers)

    assert (acted.status, looked.status, acted.json["type"]) == (403, 403, "cross-site")
    assert "access-control-allow-origin" not in acted.headers
    assert letter in (await served.letters()).values()


async def test_the_servers_own_pages_may(served: Served) -> None:
    answer = await served.open.post(
        "/api/v1/destinations/mail/pause",
        {},
        origin="http://localhost",
        sec_fetch_site="same-origin",
    )

    assert answer.status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil", ""])
async def test_a_name_that_was_rebound_is_not_answered(served: Served, host: str) -> None:
    asgi = served.app.asgi(login=False, hosts=["localhost", "127.0.0.1", "[::1]"])

    assert (await Client(asgi, host=host).get("/api/v1/status")).status == 421
    for good in ("localhost:8321", "127.0.0.1", "[::1]:8321", "LOCALHOST"):
        assert (await Client(asgi, host=good).get("/api/v1/status")).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        ((b"host", b"evil.example"),),
        ((b"content-length", b"5"), (b"content-length", b"6")),
        ((b"content-length", b"5"), (b"transfer-encoding", b"chunked")),
        ((b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")),
    ],
    ids=["host", "length", "encoding", "authorization"],
)
async def test_headers_with_two_meanings_are_refused(
    served: Served, raw: tuple[tuple[bytes, bytes], ...]
) -> None:
    assert (await served.open.send("GET", "/api/v1/status", raw=raw)).status == 400


async def test_a_body_is_bounded_and_says_that_it_is_json(served: Served) -> None:
    huge = await served.open.post("/api/v1/events", {}, content_length=str(10**10))
    long = await served.open.send("POST", "/api/v1/events", body=b" " * (9 * 2**20))
    form = await served.open.post(
        "/api/v1/events", {"type": "order.paid"}, content_type="text/plain"
    )

    assert (huge.status, long.status, form.status) == (413, 413, 415)


async def test_paths_lead_nowhere_else(served: Served) -> None:
    for path in ("/api/v1/../../etc/passwd", "/docs/../../pyproject.toml", "//api/v1/status"):
        assert (await served.open.get(path)).status == 404
    assert (await served.open.send("DELETE", "/api/v1/status")).status == 405
    assert (await served.open.send("TRACE", "/api/v1/status")).status == 405


async def test_a_token_is_neither_taken_from_a_url_nor_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    made = await served.app.operations.create_token("ann", role="admin", by="test", why="to ask")
    caplog.set_level(logging.DEBUG)

    in_url = await Client(served.asgi).get(f"/api/v1/status?token={made.secret}")
    in_path = await Client(served.asgi).get(f"/api/v1/{made.secret}")
    by_header = await Client(served.asgi, token=made.secret).get("/api/v1/status")

    assert (in_url.status, in_path.status, by_header.status) == (401, 404, 200)
    assert made.secret not in caplog.text
    assert "GET /api/v1/status 200" in caplog.text


async def test_who_asks_too_often_is_told_to_wait(served: Served) -> None:
    client = Client(served.app.asgi(login=False, rate="1/m"))

    first, second = await client.get("/api/v1/gates"), await client.get("/api/v1/gates")

    assert (first.status, second.status) == (200, 429)
    assert int(second.headers["retry-after"]) > 1


async def test_answers_carry_the_headers_that_browsers_heed(served: Served) -> None:
    for path in ("/api/v1/status", "/docs", "/healthz", "/nowhere"):
        headers = (await served.open.get(path)).headers

        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


async def test_a_body_that_comes_too_slowly_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.web.api._BODY_SECONDS", 0.01)
    client = Client(served.app.asgi(login=False), is_slow=True)

    answer = await client.post("/api/v1/events", {"type": "order.paid"})

    assert (answer.status, answer.json["type"]) == (408, "body-too-slow")


@pytest.mark.parametrize(("proxies", "seen"), [([], "127.0.0.1"), (["127.0.0.1"], "203.0.113.9")])
async def test_only_named_proxies_say_who_asks(
    served: Served,
    proxies: list[str],
    seen: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    config = HttpServer(served.app.asgi(login=False), proxies=proxies, root_path="", grace=1).config
    config.load()

    client = Client(config.loaded_app)
    answer = await client.get("/healthz", x_forwarded_for="203.0.113.9", x_forwarded_proto="https")

    [record] = [one for one in caplog.records if one.name == "redrive.web"]
    assert getattr(record, "client", None) == seen
    assert ("strict-transport-security" in answer.headers) is bool(proxies)


async def test_it_is_mounted_in_another_application_below_a_path(served: Served) -> None:
    around = FastAPI()
    around.mount("/redrive", served.app.asgi(login=False))
    client = Client(around)

    status, page = await client.get("/redrive/api/v1/status"), await client.get("/redrive/docs")

    assert (status.status, status.json["events"]) == (200, 2)
    assert b"/redrive/docs/style.css" in page.body


def test_who_does_not_serve_pays_nothing_for_it() -> None:
    program = (
        "import sys; from redrive import Redrive; Redrive('memory://').operations; "
        "sys.exit(any(one in sys.modules for one in ('starlette', 'uvicorn', 'redrive.web')))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
