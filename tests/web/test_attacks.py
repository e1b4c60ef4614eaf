"""Who attacks the server gets nothing: no data, no act, and no word about what is there."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive.cli.main import main
from redrive.model.access import Grant, Role
from redrive.policies.access import NEEDS
from redrive.testing import FakeClock
from redrive.web.caller import OpenDoor
from redrive.web.live import Live
from redrive.web.server import HttpServer
from redrive.web.table import ROUTES
from tests.web.client import Client
from tests.web.conftest import Served
from tests.web.pages.browser import Browser

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


async def test_how_often_others_published_to_a_key_is_not_told(served: Served) -> None:
    """Its versions are counted over all tenants."""
    await served.app.publish("order.paid", 1, tenant="globex", key="acme-1")
    receipt = await served.app.publish("order.paid", 1, tenant="acme", key="acme-1")
    everybody = await served.client("view")
    viewer = await served.client("view", tenant="acme")
    paths = ("events", f"events/{receipt.event_id}", "log", "events?key=acme-1")

    told = [await everybody.get(f"/api/v1/{path}") for path in paths]
    hidden = [await viewer.get(f"/api/v1/{path}") for path in paths]

    assert all(b'"version":3' in one.body for one in told)
    assert {one.status for one in hidden} == {200}
    assert not [one for one in hidden if re.search(rb'"version":\d', one.body)]


async def test_who_may_act_for_one_tenant_acts_on_as_many_as_anybody(served: Served) -> None:
    theirs = (await served.letters())["globex"]
    for number in range(120):
        payload = {"error": "boom", "number": number}
        await served.app.publish("order.paid", payload, tenant="acme", to="billing")
    await served.app.drain()
    mine = [
        one.id
        for one in (await served.app.operations.dead_letters(limit=1000)).deliveries
        if one.tenant == "acme"
    ]
    operator = await served.client("operate", tenant="acme")

    done = await operator.post("/api/v1/dead-letters/resolve", {"ids": [theirs, *mine], "why": "x"})

    assert done.json == {"changed": sorted(mine), "left_alone": {"not there": [theirs]}}
    assert len(mine) > 120


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
        {"origin": "http://["},
        {"origin": "http://evil.example@localhost"},
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


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_fetch_mode": "navigate"}, 200),
        ({"sec_fetch_mode": "cors", "accept": "text/event-stream"}, 403),
        ({"sec_fetch_mode": "no-cors"}, 403),
        ({"sec_fetch_mode": "navigate", "origin": "https://evil.example"}, 403),
    ],
    ids=["link", "stream", "image", "fetch"],
)
async def test_another_site_may_link_to_a_page_and_nothing_else(
    served: Served, headers: dict[str, str], status: int
) -> None:
    """Streams above all: a page elsewhere could hold all that there is room for."""
    answer = await served.open.get("/destinations", sec_fetch_site="cross-site", **headers)

    assert answer.status == status


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


async def test_numbers_and_paths_are_bounded(served: Served) -> None:
    digits = "9" * 5_000
    number = digits[:1_500]

    long = [
        (await served.open.get(f"{path}/{digits}")).status
        for path in ("/api/v1/deliveries", "/deliveries", "/api/v1/replays", "/nowhere")
    ]
    unknown = [
        (await served.open.get(f"{path}/{number}")).status
        for path in ("/api/v1/deliveries", "/deliveries", "/api/v1/replays")
    ]
    asked = [
        (await served.open.get(f"{path}={digits}")).status
        for path in ("/audit?before", "/api/v1/audit?cursor", "/api/v1/dead-letters?limit")
    ]
    declared = [
        (await served.open.post("/api/v1/events", {}, content_length=one)).status
        for one in (digits, "\xb2", "-1", "5,5", "")
    ]

    assert (set(long), set(unknown), set(asked), set(declared)) == ({414}, {404}, {400}, {413})


async def test_what_a_header_cannot_spell_is_no_key(served: Served) -> None:
    answer = await served.open.post("/api/v1/events", {"type": "a"}, idempotency_key="\xfc")

    assert (answer.status, "write the key into the body" in answer.json["detail"]) == (400, True)


async def test_a_body_is_bounded_and_says_that_it_is_json(served: Served) -> None:
    huge = await served.open.post("/api/v1/events", {}, content_length=str(10**10))
    long = await served.open.send("POST", "/api/v1/events", body=b" " * (9 * 2**20))
    form = await served.open.post(
        "/api/v1/events", {"type": "order.paid"}, content_type="text/plain"
    )

    assert (huge.status, long.status, form.status) == (413, 413, 415)
    assert long.headers["connection"] == "close"


async def test_a_body_without_end_is_not_heard_to_its_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.web.api._MOST_UNREAD", 2**20)

    endless = await Client(served.app.asgi(login=False), is_endless=True).post("/api/v1/events", {})

    assert endless.status == 413


async def test_paths_lead_nowhere_else(served: Served) -> None:
    for path in (
        *("/api/v1/../../etc/passwd", "/docs/../../pyproject.toml", "//api/v1/status"),
        *("/assets/../site.py", "/assets/%2e%2e/site.py", "/assets/..%2fsite.py"),
        *("/assets/%2e%2e%5csite.py", "/assets/style.css%00.py", "/assets//etc/passwd"),
    ):
        assert (await served.open.get(path)).status == 404
    for path in ("/api/v1/status/", "/destinations/", "//evil.example/"):
        answer = await served.open.get(path)
        assert (answer.status, answer.headers.get("location")) == (404, None)
    for method in ("DELETE", "TRACE"):
        answer = await served.open.send(method, "/api/v1/events")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


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


async def test_neither_passwords_nor_sessions_are_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    password = "correct horse battery"  # noqa: S105 - of nobody
    caplog.set_level(logging.DEBUG)
    await served.app.operations.add_user("ann", password, role="view", by="test", why="to look")
    browser = Browser(served.asgi)
    await browser.open("/destinations?secret=1")
    await browser.submit("/login", name=password, password=password)
    await browser.submit("/login", name="ann", password=password)

    secret = browser.cookies["redrive-session"]
    assert browser.answer.status == 200
    assert "POST /login 303" in caplog.text
    assert not [one for one in (password, secret, "secret=1") if one in caplog.text]


async def test_an_export_holds_nothing_that_a_terminal_or_a_spreadsheet_obeys(
    served: Served, tmp_path: Path
) -> None:
    evil = "=cmd|'/c calc'!A1 \x1b[31m \x9b2J \x7f @SUM(1) +1 -1"
    await served.app.publish("order.paid", {"error": evil}, key=evil, tenant=evil, source=evil)
    await served.app.drain()

    file = tmp_path / "letters.jsonl"
    store = f"sqlite:///{tmp_path / 'shop.db'}"
    command = ["dlq", "export", "--file", str(file), "--store", store]
    assert await asyncio.to_thread(main, command) == 0
    answers = [
        (await served.open.get(f"/api/v1/{path}"))
        for path in ("dead-letters/export", "dead-letters", "dead-letters/groups", "log")
    ]

    for line in [*file.read_bytes().splitlines(), *(one.body for one in answers)]:
        assert line.startswith(b"{")
        assert not re.search(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]", line)
    letters = answers[0].json["letters"]
    assert evil in [one["event"]["payload"]["error"] for one in letters]
    assert {one.headers["content-type"] for one in answers} == {"application/json"}


async def test_more_streams_than_there_is_room_for_are_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = {**(Live.__init__.__kwdefaults__ or {}), "most": 0}
    monkeypatch.setattr(Live.__init__, "__kwdefaults__", room)

    answer = await Client(served.app.asgi(login=False)).get("/api/v1/live")

    assert (answer.status, answer.json["type"]) == (503, "too-many-streams")
    assert answer.headers["retry-after"] == "10"


async def test_a_stream_tells_nothing_to_who_may_see_a_part_only(served: Served) -> None:
    for limits in ({"tenant": "acme"}, {"destinations": ["billing"]}):
        caller = await served.client("admin", **limits)

        answer = await caller.get("/api/v1/live")

        assert answer.status == 403
        assert b"globex" not in answer.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("events", {"type": "order.paid", "id": "00000000-0000-7000-8000-000000000000"}),
        ("events", {"type": "order.paid", "published_at": "2020-01-01T00:00:00Z"}),
        ("tokens", {"name": "x", "role": "view", "why": "y", "digest": "0" * 64}),
        ("tokens", {"name": "x", "role": "view", "why": "y", "id": "aaaaaaaaaaaa"}),
        ("dead-letters/resolve", {"ids": [1], "why": "y", "by": "somebody else"}),
        ("destinations/mail/pause", {"by": "somebody else"}),
        ("replays", {"why": "y", "state": "done"}),
    ],
)
async def test_what_callers_may_not_set_they_cannot(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    answer = await served.open.post(f"/api/v1/{path}", body)

    assert (answer.status, answer.json["type"]) == (400, "bad-request")
    assert "unknown field" in answer.json["detail"]
    assert not await served.app.operations.audit()


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


def test_who_does_not_serve_pays_nothing_for_it() -> None:
    program = (
        "import sys; from redrive import Redrive; Redrive('memory://').operations; "
        "sys.exit(any(one in sys.modules for one in ('starlette', 'uvicorn', 'redrive.web')))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
