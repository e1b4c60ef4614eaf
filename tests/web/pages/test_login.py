"""People log in by name and password, act as themselves, and are gone when they log out."""

from __future__ import annotations

import logging
from urllib.parse import urlencode

import pytest

from redrive.operations.context import OperationContext
from redrive.policies.password import Cost
from redrive.web.caller import LOCAL
from redrive.web.pages.login import safe_path
from redrive.web.server import BehindProxy
from tests.web.client import Client
from tests.web.pages.browser import Browser
from tests.web.pages.conftest import Shop

PASSWORD = "correct horse battery"  # noqa: S105 - of nobody
SESSION, FORM = "redrive-session", "redrive-form"


@pytest.fixture
async def guarded(broken: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop with dead letters, whose pages need a login, and ann who has one."""
    usual = OperationContext.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(usual, "password_cost", Cost(n=2, r=1, p=1))
    broken.operations = broken.app.operations
    broken.asgi = broken.app.asgi()
    await broken.operations.add_user("ann", PASSWORD, role="operate", by="test", why="to act")
    return broken


async def log_in(shop: Shop, path: str = "/", **options: str) -> Browser:
    browser = Browser(shop.asgi, **options)
    await browser.open(path)
    await browser.submit("/login", name="ann", password=PASSWORD)
    assert browser.answer.status == 200, browser.document.text
    return browser


async def test_who_logs_in_comes_to_the_page_they_asked_for(guarded: Shop) -> None:
    browser = await log_in(guarded, "/destinations?name=bil&show=attention")

    assert browser.document.form("/destinations").fields["name"] == "bil"
    assert browser.document.form("/logout")


async def test_what_somebody_does_is_written_down_with_their_session(guarded: Shop) -> None:
    browser = await log_in(guarded, "/destinations/billing")

    await browser.submit("/destinations/pause", why="they asked")
    await browser.submit("/logout")

    entries = await guarded.operations.audit(limit=3)
    assert [one.action for one in entries] == ["log_out", "pause", "log_in"]
    [by] = {one.by for one in entries}
    assert by.startswith("user:ann:")


async def test_a_stolen_cookie_is_worth_nothing_after_the_logout(guarded: Shop) -> None:
    browser = await log_in(guarded)
    thief = Browser(guarded.asgi)
    thief.cookies = dict(browser.cookies)
    await thief.open("/destinations")
    assert "billing" in thief.document.text

    await browser.submit("/logout")
    await thief.open("/destinations")

    assert thief.document.form("/login")
    assert SESSION not in browser.cookies


@pytest.mark.parametrize("ending", ["password", "removed", "idle", "for good"])
async def test_a_session_ends(guarded: Shop, ending: str) -> None:
    browser = await log_in(guarded, "/destinations/billing")
    match ending:
        case "password":
            await guarded.operations.set_password("ann", PASSWORD + "!", by="test", why="leaked")
        case "removed":
            await guarded.operations.remove_user("ann", by="test", why="has left")
        case "idle":
            guarded.kit.clock.advance("31m")
        case _:
            for _ in range(25):
                guarded.kit.clock.advance("29m")
                await browser.open("/destinations/billing")

    shown = browser.answer
    await browser.open("/destinations/billing")
    assert browser.document.form("/login")

    if ending != "for good":
        browser.answer = shown
        await browser.submit("/destinations/pause", why="too late")
        assert browser.answer.status == 401
        assert "not logged in any more" in browser.document.text
    assert not (await guarded.operations.gates())[0].gate.pause


async def test_a_session_is_new_at_each_login(guarded: Shop) -> None:
    """Nobody can have planted it, and the one before it ends."""
    browser = Browser(guarded.asgi)
    browser.cookies[SESSION] = "rds_" + "a" * 59
    await browser.open("/")
    await browser.submit("/login", name="ann", password=PASSWORD)
    first = browser.cookies[SESSION]
    user = await guarded.operations.check_password("ann", PASSWORD)
    assert user is not None

    other = Browser(guarded.asgi)
    await other.open("/login")
    other.cookies[SESSION] = first
    await other.submit("/login", name="ann", password=PASSWORD)

    assert first != "rds_" + "a" * 59
    assert other.cookies[SESSION] != first
    assert await guarded.operations.session(first) is None
    assert await guarded.operations.session(other.cookies[SESSION])


@pytest.mark.parametrize("name", ["ann", "nobody", "", "a" * 5_000, "'; --", "é\u202e"])
async def test_a_wrong_name_and_a_wrong_password_look_the_same(guarded: Shop, name: str) -> None:
    browser = Browser(guarded.asgi)
    await browser.open("/")

    await browser.submit("/login", name=name, password="wrong horse")  # noqa: S106 - as above

    assert browser.answer.status == 403
    assert "do not belong together" in browser.document.text
    assert SESSION not in browser.cookies


async def test_guessing_is_slowed_down_for_who_guesses_alone(
    guarded: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guesser = Browser(guarded.asgi, address="203.0.113.9")
    await guesser.open("/login")
    statuses = []
    for _ in range(7):
        await guesser.submit("/login", name="ann", password="a guess")  # noqa: S106 - as above
        statuses.append(guesser.answer.status)
    await guesser.submit("/login", name="ann", password=PASSWORD)

    assert statuses == [403] * 5 + [429] * 2
    assert guesser.answer.status == 429
    assert 0 < int(guesser.answer.headers["retry-after"]) <= 901
    assert "a guess" not in caplog.text
    await log_in(guarded, address="198.51.100.7")
    guarded.kit.clock.advance("15m")
    await log_in(guarded, address="203.0.113.9")


async def test_a_form_of_before_the_login_or_of_another_session_does_nothing(
    guarded: Shop,
) -> None:
    browser, other = (
        await log_in(guarded, "/destinations/billing"),
        await log_in(guarded, "/destinations/billing"),
    )
    theirs = other.document.form("/destinations/pause").fields["token"]

    for token in (theirs, "", "a" * 32, "a" * 64):
        await browser.open("/destinations/billing")
        await browser.submit("/destinations/pause", token=token)

        assert browser.answer.status == 403
    browser.cookies[FORM] = "a" * 32
    await browser.open("/destinations/billing")
    await browser.submit("/destinations/pause", token="a" * 32)
    assert browser.answer.status == 403
    assert not (await guarded.operations.gates())[0].gate.pause


async def test_nobody_is_logged_in_or_out_by_another_site(guarded: Shop) -> None:
    browser = await log_in(guarded)
    cookie = "; ".join(f"{k}={v}" for k, v in browser.cookies.items())
    form = {"content-type": "application/x-www-form-urlencoded", "cookie": cookie}
    client = Client(guarded.asgi)

    for path in ("/logout", "/login"):
        bare = await client.send("POST", path, body=b"name=eve&password=x", headers=form)
        foreign = await client.send(
            "POST", path, body=b"x=1", headers={**form, "origin": "https://evil.example"}
        )
        assert (bare.status, foreign.status) == (403, 403)
    assert await guarded.operations.session(browser.cookies[SESSION])


@pytest.mark.parametrize(
    "to",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example"),
        *("javascript:alert(1)", "/\t/evil.example", "/a\r\nset-cookie: x=1", "", "evil", "/é"),
        *("/login?to=/login", "/logout", "/" + "a" * 5_000),
    ],
)
async def test_a_login_leads_to_no_other_site(guarded: Shop, to: str) -> None:
    browser = Browser(guarded.asgi)
    await browser.open("/login")
    await browser.submit("/login", to=to, name="ann", password=PASSWORD)

    assert safe_path(to) == "/"
    assert browser.answer.status == 200
    assert "3 dead letters" in browser.document.text


async def test_with_tls_the_cookies_are_this_hosts_alone(guarded: Shop) -> None:
    browser = Browser(guarded.asgi, scheme="https")
    await browser.open("/login")
    [before] = browser.answer.cookies
    form = browser.document.form("/login")
    answer = await Client(guarded.asgi, scheme="https").send(
        "POST",
        "/login",
        body=urlencode({**form.fields, "name": "ann", "password": PASSWORD}).encode(),
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "cookie": before.partition(";")[0],
        },
    )

    assert answer.status == 303
    for cookie in (before, *answer.cookies):
        assert cookie.startswith("__Host-redrive-")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
    plain = await Client(guarded.asgi).get("/", cookie=answer.cookies[0].replace("__Host-", ""))
    assert plain.status == 200


async def test_a_session_of_one_path_is_none_below_another(guarded: Shop) -> None:
    client = Client(guarded.asgi, scheme="https")

    one = await client.send("GET", "/login", root_path="/one")
    other = await client.send("GET", "/login", root_path="/other")

    assert one.cookies[0].partition("=")[0] != other.cookies[0].partition("=")[0]


async def test_a_cookie_lets_people_look_at_the_api_and_never_act(guarded: Shop) -> None:
    browser = await log_in(guarded)
    cookie = f"{SESSION}={browser.cookies[SESSION]}"
    client = Client(guarded.asgi)

    looked = await client.get("/api/v1/gates", cookie=cookie)
    acted = await client.post("/api/v1/destinations/billing/pause", {}, cookie=cookie)
    both = await client.get("/api/v1/gates", cookie=cookie, authorization="Bearer nonsense")

    assert (looked.status, acted.status, both.status) == (200, 401, 401)


@pytest.mark.parametrize("role", ["view", "publish", "admin"])
async def test_what_is_offered_depends_on_the_role(guarded: Shop, role: str) -> None:
    await guarded.operations.add_user("bob", PASSWORD, role=role, by="test", why="to look")
    browser = Browser(guarded.asgi)
    await browser.open("/destinations")
    document = await browser.submit("/login", name="bob", password=PASSWORD)

    acts = [one.action for one in document.forms if one.method == "post"]
    match role:
        case "publish":
            assert browser.answer.status == 403
            assert set(document.links) <= {"Skip to the content", "Redrive", "Overview"}
        case "view":
            assert acts == ["/logout"]
            assert "Audit" in document.links
        case _:
            assert acts == ["/logout", "/destinations/all/pause"]


async def test_without_tls_the_page_says_what_is_missing(guarded: Shop) -> None:
    here = await Client(guarded.asgi).get("/login")
    outside = await Client(guarded.asgi, host="redrive.example.com").get("/login")
    secure = await Client(guarded.asgi, host="redrive.example.com", scheme="https").get("/login")

    assert b"not encrypted" in outside.body
    assert b"not encrypted" not in here.body + secure.body


async def test_who_needs_no_login_is_led_on(broken: Shop) -> None:
    answer = await Client(broken.asgi).get("/login?to=/audit")

    assert (answer.status, answer.headers["location"]) == (303, "/audit")
    assert not LOCAL.has_session


async def test_the_first_user_closes_an_open_server(broken: Shop) -> None:
    stranger = Client(broken.app.asgi(is_open_without_tokens=True))
    before = await stranger.get("/api/v1/gates")
    await broken.operations.add_user("ann", PASSWORD, role="view", by="test", why="to look")

    broken.kit.clock.advance("1s")

    assert (before.status, (await stranger.get("/api/v1/gates")).status) == (200, 401)


async def test_a_named_proxy_says_who_asks_and_nobody_else(guarded: Shop) -> None:
    asgi = BehindProxy(guarded.asgi, proxies=["10.0.0.0/24"], user_header="X-Forwarded-User")
    proxy, stranger = Client(asgi, address="10.0.0.1"), Client(asgi, address="10.9.0.1")

    known = await proxy.get("/destinations", x_forwarded_user="ann")
    unknown = await proxy.get("/destinations", x_forwarded_user="eve")
    silent = await proxy.get("/destinations")
    forged = await stranger.get("/destinations", x_forwarded_user="ann")
    routed = await stranger.get("/destinations", x_forwarded_user="ann", x_forwarded_for="10.0.0.1")
    twice = await proxy.send(
        "GET",
        "/destinations",
        raw=((b"x-forwarded-user", b"ann"), (b"X-Forwarded-User", b"eve")),
    )

    assert known.status == 200
    assert b"seen by user:ann:proxy" in known.body
    assert (unknown.status, twice.status) == (403, 400)
    assert {one.status for one in (silent, forged, routed)} == {303}


async def test_what_a_proxy_asks_for_itself_is_no_token_of_ours(guarded: Shop) -> None:
    """Such as the password of its own login, which many proxies pass on."""
    asgi = BehindProxy(guarded.asgi, proxies=["10.0.0.1"], user_header="X-Forwarded-User")
    basic = {"authorization": "Basic YW5uOnNlY3JldA=="}

    known = await Client(asgi, address="10.0.0.1").get(
        "/destinations", x_forwarded_user="ann", **basic
    )
    stranger = await Client(asgi).get("/destinations", **basic)
    program = await Client(asgi).post("/api/v1/events", {"type": "a"}, **basic)

    assert (known.status, stranger.status, program.status) == (200, 303, 401)


async def test_a_proxys_user_acts_by_forms_as_others_do(guarded: Shop) -> None:
    asgi = BehindProxy(guarded.asgi, proxies=["127.0.0.1"], user_header="x-user")
    client = Client(asgi)
    form = {"content-type": "application/x-www-form-urlencoded", "x_user": "ann"}

    shown = await client.get("/destinations", x_user="ann")
    cookie = shown.cookies[0].partition(";")[0]
    token = cookie.partition("=")[2]
    body = f"name=billing&token={token}".encode()
    without = await client.send("POST", "/destinations/pause", body=body, headers=form)
    done = await client.send(
        "POST", "/destinations/pause", body=body, headers={**form, "cookie": cookie}
    )

    assert (without.status, done.status) == (403, 303)
    assert (await guarded.operations.audit(limit=1))[0].by == "user:ann:proxy"
