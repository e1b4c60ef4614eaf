"""The dashboard shows how the system is, and mends it by forms alone."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from redrive import Breaker, Event, Redrive, Retry
from redrive.model.instant import from_micros
from redrive.operations import GatewayDocument, Operations
from redrive.policies.access import NEEDS
from redrive.store import Finding, Level, Topic
from redrive.testing import Kit
from redrive.web.caller import LOCAL
from redrive.web.pages.delivery import DeliveryView
from redrive.web.pages.destinations import DestinationRow, Destinations
from redrive.web.pages.overview import Overview, needs_of, show_overview
from redrive.web.pages.page import Page, Visit
from redrive.web.pages.readings import Readings
from redrive.web.pages.records import WorkerRow, Workers
from redrive.web.pages.rendering import Renderer
from redrive.web.pages.table import LEFT_OUT, NAVIGATION, PAGES
from redrive.web.pages.timeline import timeline
from tests.web.client import Client
from tests.web.pages.browser import Browser, Document
from tests.web.pages.conftest import Shop

NOW = from_micros(0)
GATEWAY = GatewayDocument(
    services={"crm": {"url": "https://crm.example.com/hooks"}},
    rules={"orders": {"service": "crm", "event": "order.*", "condition": "payload.order > 1"}},
    sources={"lamp": {"kind": "open", "event": "lamp.lit"}},
)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'"
LISTS = (
    *("/", "/destinations", "/dead-letters", "/replays", "/search", "/projections", "/schedules"),
    *("/tenants", "/audit", "/workers", "/settings", "/journal", "/services", "/rules"),
    "/sources",
)


async def test_every_page_shows_on_an_empty_store(shop: Shop) -> None:
    browser = shop.browser()
    for path in (*LISTS, "/access", "/erase"):
        document = await browser.open(path)

        assert browser.answer.status == 200, path
        assert document.tags.count("h1") == 1
        assert document.tags.count("main") == 1


async def test_every_page_shows_what_there_is(broken: Shop) -> None:
    group, letter = await broken.group(), await broken.letter()
    replay = await broken.operations.start_replay(by="ann", why="fixed")
    await broken.operations.pause("billing", by="ann", why="they asked")
    event = (await broken.operations.find_events(limit=1)).events[0]
    await broken.operations.apply_gateway(GATEWAY, by="ann", why="they asked for it")
    shown = {
        "/": "billing",
        "/destinations": "they asked",
        "/destinations/billing": "Paused by ann: they asked",
        "/search": "order-2",
        f"/events/{event.id}": "Given to",
        "/services": "crm.example.com",
        "/services/crm": "Rules to it",
        "/rules": "payload.order > 1",
        "/rules/orders": "they asked for it",
        "/projections": "There is no projection",
        "/schedules": "No worker has declared a schedule",
        "/journal": "The journal is empty",
        "/tenants": "acme",
        "/access": "There is no token",
        "/settings": "keep_delivered",
        "/dead-letters": "the certificate has expired",
        group: "It grows, and began within the last hour.",
        f"{group}/replay": "Replay 3 dead letters",
        f"/deliveries/{letter}": "Failed for good after 1 try",
        "/replays": "fixed",
        f"/replays/{replay.id}": "0 of 3",
        "/audit": "they asked",
        "/workers": "No worker was heard of",
        "/sources": "lamp.lit",
        "/sources/lamp": "None of the last 2,000 events is from it.",
        "/erase": "Count first",
    }
    places = {_fitting(path) for path in shown}
    assert places == {one.path for one in PAGES if one.method == "GET"}

    browser = broken.browser()
    for path, text in shown.items():
        document = await browser.open(path)

        assert browser.answer.status == 200, path
        assert text in document.text, path


async def test_from_red_to_redelivered_in_five_clicks(broken: Shop) -> None:
    browser = broken.browser()

    overview = await browser.open("/")
    assert "3 dead letters wait for you." in overview.text
    await browser.click("Look into it")
    broken.down.clear()
    await browser.click("Plan a replay")
    await browser.submit("/replay", why="the certificate was renewed")
    assert "It goes on" in browser.document.text
    await broken.kit.drain()
    done = await browser.open("/replays/1")

    assert browser.clicks <= 5
    assert "All redelivered." in done.text
    assert "the certificate was renewed" in done.text
    assert "All is well." in (await browser.open("/")).text


async def test_a_replay_that_goes_on_is_looked_at_again_without_a_script(broken: Shop) -> None:
    await broken.operations.start_replay(by="ann")
    browser = broken.browser()

    await browser.open("/replays/1")
    moving = browser.answer.body
    await browser.submit("/replays/1/cancel")

    assert b'http-equiv="refresh"' in moving
    assert b'http-equiv="refresh"' not in browser.answer.body
    assert "It was cancelled" in browser.document.text


async def test_a_replay_can_be_paused_and_resumed(broken: Shop) -> None:
    await broken.operations.start_replay(by="ann")
    browser = broken.browser()
    await browser.open("/replays/1")

    paused = await browser.submit("/pause")
    resumed = await browser.submit("/resume")

    assert "It is paused." in paused.text
    assert "It goes on" in resumed.text


async def test_the_pace_of_a_replay_is_the_one_that_was_typed(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open(f"{await broken.group()}/replay")

    await browser.submit("/replay", canary="2", rate="5/s")

    replay = await broken.operations.show_replay(1)
    assert replay.pace.canary == 2
    assert replay.pace.rate is not None
    assert replay.pace.rate.per_second == 5


async def test_a_pace_that_is_none_is_refused_in_a_sentence(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open(f"{await broken.group()}/replay")

    document = await browser.submit("/replay", canary="many")

    assert browser.answer.status == 400
    assert "write a number" in document.text


@pytest.mark.parametrize("act", ["resolve", "delete"])
async def test_a_group_is_ended_with_a_reason_as_far_as_it_was_seen(broken: Shop, act: str) -> None:
    browser, group = broken.browser(), await broken.group()
    await browser.open(group)
    broken.kit.clock.advance("1s")
    await broken.app.publish("order.paid", {}, key="later")
    await broken.kit.drain()

    await browser.submit(f"/{act}", why="handled by phone")

    [left] = (await broken.operations.dead_letters()).deliveries
    assert left.key == "later"
    [entry] = await broken.operations.audit(limit=1)
    assert (entry.action, entry.why, entry.count) == (act, "handled by phone", 3)


async def test_ending_a_group_without_a_reason_is_refused(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open(await broken.group())

    document = await browser.submit("/delete", why=" ")

    assert browser.answer.status == 400
    assert "A reason is needed" in document.text
    assert len((await broken.operations.dead_letters()).deliveries) == 3


async def test_a_delivery_is_replayed_and_its_story_tells_it(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")
    broken.down.clear()

    waiting = await browser.submit("/replay")
    await broken.kit.drain()
    told = await browser.open(f"/deliveries/{letter}")

    assert "Why it waits" in waiting.text
    story = [told.text.index(one) for one in ("Delivered", "Replayed by local", "Published")]
    assert story == sorted(story)


@pytest.mark.parametrize("act", ["resolve", "delete"])
async def test_a_delivery_is_ended_with_a_reason(broken: Shop, act: str) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")

    await browser.submit(f"/{act}", why="handled by phone")

    [entry] = await broken.operations.audit(limit=1)
    assert (entry.action, entry.deliveries, entry.why) == (act, (letter,), "handled by phone")


async def test_a_payload_is_hidden_until_it_is_shown_and_that_is_written_down(
    broken: Shop,
) -> None:
    browser, letter = broken.browser(), await broken.letter()

    hidden = await browser.open(f"/deliveries/{letter}")
    shown = await browser.submit("/reveal", why="to see the order")

    assert "visa-4111" not in hidden.text
    assert "visa-4111" in shown.text
    [entry] = await broken.operations.audit(limit=1)
    assert (entry.action, entry.by, entry.why) == ("reveal", "local", "to see the order")


async def test_a_destination_is_paused_and_resumed(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/destinations")

    paused = await browser.submit("/pause", why="they asked")
    assert "paused by local" in " ".join(paused.text.split())
    await browser.open("/")
    overview = await browser.submit("/resume")

    assert "paused" not in overview.text
    assert [one.action for one in await broken.operations.audit()] == ["resume", "pause"]


async def test_an_open_breaker_is_closed_from_the_overview(broken: Shop) -> None:
    await broken.operations.open_breaker("billing", by="ann")
    browser = broken.browser()
    before = await browser.open("/")

    after = await browser.submit("/breakers/reset")

    assert "breaker open" in before.text
    assert "breaker open" not in after.text


async def test_an_outage_is_told_with_its_cause_and_where_more_of_it_stands() -> None:
    app = Redrive()

    @app.handler("*", name="crm", breaker=Breaker(failures=1))
    async def crm(event: Event[Any]) -> None:
        raise ConnectionError("crm.example refused")

    async with Kit(app) as kit:
        await app.publish("order.paid", {})
        await kit.drain()
        browser = Shop(kit, app, []).browser()
        overview = await browser.open("/")
        await browser.click(next(one for one in overview.links if "breaker of crm" in one))

    assert "The breaker of crm is open; the next try is in" in overview.text
    assert "ConnectionError: crm.example refused" in browser.document.text
    assert "Its last failure: ConnectionError: crm.example refused" in overview.text


async def test_destinations_are_sought_by_name_and_need(broken: Shop) -> None:
    browser = broken.browser()

    assert "billing" in (await browser.open("/destinations?name=BILL&show=attention")).text
    assert "No destination fits." in (await browser.open("/destinations?name=mail")).text


async def test_what_waits_behind_its_key_is_not_said_to_be_held_by_nothing() -> None:
    app = Redrive()

    @app.handler("*", name="stock", order="park", retry=Retry(max_attempts=1))
    async def stock(event: Event[Any]) -> None:
        raise ConnectionError(str(event.payload["order"]))

    async with Kit(app) as kit:
        for number in (41, 42, 43):
            await app.publish("order.paid", {"order": number}, key="customer-1")
        await kit.drain()
        browser = Shop(kit, app, []).browser()

        assert "order: 2 behind others of their key" in (await browser.open("/destinations")).text
        await browser.open("/")
        group = await browser.click("Look into it")

    assert "ConnectionError: #" in group.text


async def test_dead_letters_and_audit_are_narrowed_by_the_address(broken: Shop) -> None:
    browser = broken.browser()
    await broken.operations.pause("billing", by="ann", why="they asked")

    assert "expired" in (await browser.open("/dead-letters?tenant=acme&text=expired")).text
    assert "No dead letter fits." in (await browser.open("/dead-letters?tenant=globex")).text
    assert "they asked" in (await browser.open("/audit?by=ann&action=pause")).text
    assert "they asked" not in (await browser.open("/audit?by=bob")).text
    assert (await browser.open("/audit?before=x")).text.count("whole number") == 1


async def test_what_is_not_there_is_said_in_a_page(broken: Shop) -> None:
    browser = broken.browser()
    for path in ("/deliveries/999", "/replays/999", "/dead-letters/groups/none"):
        document = await browser.open(path)

        assert browser.answer.status == 404, path
        assert "There is no" in document.text


async def test_the_overview_is_plain_data(broken: Shop) -> None:
    await broken.operations.pause("billing", by="ann")
    now = broken.kit.clock.now()
    look = Readings(broken.kit.clock).look()
    visit = Visit(
        operations=broken.operations, look=look, caller=LOCAL, path={}, query={}, form={}, now=now
    )

    model = (await show_overview(visit)).model

    assert isinstance(model, Overview)
    assert model.level is Level.ERROR
    assert [one.level for one in model.needs] == [Level.ERROR, Level.WARNING]
    assert [one.step.label for one in model.needs if one.step] == ["Look into it", "Resume"]
    assert [one.name for one in model.rows] == ["billing"]


@pytest.mark.parametrize(
    ("topic", "label", "to", "is_act"),
    [
        (Topic.PAUSE, "Resume", "/destinations/resume", True),
        (Topic.BREAKER, "Close breaker", "/breakers/reset", True),
        (Topic.DESTINATION, "See it", "/destinations/billing", False),
        (Topic.WORKERS, "See workers", "/workers", False),
        (Topic.SCHEDULE, "See schedules", "/schedules", False),
        (Topic.PROJECTION, "See projections", "/projections", False),
    ],
)
def test_each_topic_leads_to_its_next_step(
    topic: Topic,
    label: str,
    to: str,
    is_act: bool,  # noqa: FBT001 - a column of the table
) -> None:
    finding = Finding(
        level=Level.WARNING, what="x", advice="by redrive", topic=topic, name="billing"
    )

    [need] = needs_of([finding], [])

    assert need.step is not None
    assert (need.step.label, need.step.to, bool(need.step.operation)) == (label, to, is_act)
    assert need.detail == ("" if is_act else "by redrive")
    assert need.place == ("/destinations/billing" if topic is Topic.BREAKER else "")


@pytest.mark.parametrize(("topic", "detail"), [(Topic.SCHEDULE, ""), (None, "with: redrive x")])
def test_no_command_is_named_where_a_page_does_the_same(topic: Topic | None, detail: str) -> None:
    finding = Finding(
        level=Level.WARNING, what="x", advice="with: redrive x", topic=topic, name="nightly"
    )

    [need] = needs_of([finding], [])

    assert need.detail == detail


def test_errors_come_first_and_what_is_well_needs_nobody() -> None:
    found = [Finding(level=one, what=one) for one in (Level.OK, Level.WARNING, Level.ERROR)]

    assert [one.what for one in needs_of(found, [])] == ["error", "warning"]


async def test_what_others_wrote_never_becomes_markup(shop: Shop) -> None:
    shop.down[:] = [EVIL]
    await shop.app.publish(
        "order.paid", {"order": EVIL}, key=EVIL, tenant=EVIL, headers={"x": EVIL}
    )
    await shop.kit.drain()
    letter, group = await shop.letter(), await shop.group()
    await shop.operations.pause("billing", by=EVIL, why=EVIL)
    await shop.operations.pause_tenant(EVIL, by=EVIL, why=EVIL)
    browser = shop.browser()
    clean = {"img"}
    pages = [*LISTS, group, f"{group}/replay", f"/deliveries/{letter}"]
    pages += [f"/dead-letters?text={EVIL}&tenant={EVIL}", f"/destinations?name={EVIL}"]
    pages += [f"/search?key={EVIL}&type={EVIL}", f"/search?text={EVIL}", f"/search?any={EVIL}"]
    pages += [f"/tenants?tenant={EVIL}", "/access", "/destinations/billing"]
    pages += [f"/audit?by={EVIL}", f"/replays?before={EVIL}", f"/deliveries/9?{EVIL}"]
    seen = ""
    for path in pages:
        document = await browser.open(path.replace("#", ""))
        _check(document.tags, document.attributes, clean, path)
        seen += document.text
    await browser.open(f"/deliveries/{letter}")
    revealed = await browser.submit("/reveal", why=EVIL)
    _check(revealed.tags, revealed.attributes, clean, "reveal")
    await browser.open(f"{group}/replay")
    replayed = await browser.submit("/replay", why=EVIL)
    _check(replayed.tags, replayed.attributes, clean, "replay")

    assert EVIL in seen
    assert EVIL in replayed.text


def _check(tags: list[str], attributes: list[str], foreign: set[str], path: str) -> None:
    assert not foreign.intersection(tags), path
    assert tags.count("script") == 1, path  # ours
    assert not [one for one in attributes if one.startswith("on") or one == "style"], path


async def test_names_that_no_store_should_hold_are_escaped_as_well(broken: Shop) -> None:
    """Types and names of destinations are checked when they come in; a page trusts nobody."""
    operations, replace = broken.operations, msgspec.structs.replace
    story = await operations.show(await broken.letter())
    figures = await operations.status()
    evil_story = replace(
        story,
        delivery=replace(story.delivery, event_type=EVIL, destination=EVIL, worker=EVIL),
        event=replace(story.event, type=EVIL, source=EVIL),
    )
    row = DestinationRow(
        figures=replace(figures.destinations[0], name=EVIL), holds=(EVIL,), last_error=EVIL
    )
    delivery = DeliveryView(
        story=evil_story, sentence=EVIL, level="error", moments=timeline(evil_story)
    )
    for template, model in (
        ("delivery.html", delivery),
        ("destinations.html", Destinations(rows=(row,), sought=EVIL)),
        ("workers.html", Workers(workers=(_worker(EVIL),))),
    ):
        html = _rendered(template, model)
        document = Document(html)

        assert EVIL in document.text
        _check(document.tags, document.attributes, {"img"}, template)


def _worker(name: str) -> WorkerRow:
    return WorkerRow(
        id=name, is_alive=True, seen_at=NOW, in_flight=0, destinations=(name,), generations=(name,)
    )


def _rendered(template: str, model: object) -> str:
    return Renderer().render(
        template,
        page=Page(template=template, title=EVIL, model=model),
        model=model,
        now=NOW,
        as_of=NOW,
        age="",
        may=lambda _: True,
        has_session=True,
        nav=NAVIGATION,
        by=EVIL,
        root="",
        place="/",
        token="",
        said="",
        is_live=False,
    )


def test_characters_that_nobody_sees_are_spelled_out() -> None:
    html = _rendered("workers.html", Workers(workers=(_worker("a\u202eb"),)))

    assert "alive" in html
    assert "\u202e" not in html
    assert r"a\u202eb" in html


async def test_the_policy_allows_nothing_inline_and_no_frame(broken: Shop) -> None:
    browser = broken.browser()
    for path in (*LISTS, "/deliveries/999"):
        await browser.open(path)
        policy = browser.answer.headers["content-security-policy"]

        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert "unsafe" not in policy
        assert browser.answer.headers["cache-control"] == "no-store"
        html = browser.answer.body.decode()
        html = re.sub(r'<script type="module" src="/assets/live.js\?v=\w+"></script>', "", html)
        assert not re.search(r"<script|<style|\sstyle=|https?://", html), path


@pytest.mark.parametrize("token", ["", "0" * 32, "é"])
async def test_a_form_without_the_token_of_the_page_does_nothing(broken: Shop, token: str) -> None:
    browser = broken.browser()
    await browser.open("/destinations")

    document = await browser.submit("/pause", token=token)

    assert browser.answer.status == 403
    assert "Nothing was done" in document.text
    assert await broken.operations.audit() == []


async def test_a_form_without_a_cookie_does_nothing(broken: Shop) -> None:
    answer = await Client(broken.asgi).send(
        "POST",
        "/destinations/pause",
        body=b"name=billing&token=",
        headers={"content-type": "application/x-www-form-urlencoded"},
    )

    assert answer.status == 403
    assert await broken.operations.audit() == []


async def test_a_form_from_another_site_does_nothing(broken: Shop) -> None:
    token = "a" * 32
    answer = await Client(broken.asgi).send(
        "POST",
        "/destinations/pause",
        body=f"name=billing&token={token}".encode(),
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "cookie": f"redrive-form={token}",
            "origin": "https://evil.example",
        },
    )

    assert answer.status == 403
    assert await broken.operations.audit() == []


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_an_act_takes_nothing_but_a_form(broken: Shop, kind: str) -> None:
    answer = await Client(broken.asgi).send(
        "POST", "/destinations/pause", body=b"{}", headers={"content-type": kind}
    )

    assert answer.status == 415
    assert await broken.operations.audit() == []


async def test_without_a_login_nothing_is_shown_where_one_is_needed(broken: Shop) -> None:
    browser = Browser(broken.app.asgi())
    for path in (*LISTS, await broken.group()):
        document = await browser.open(path)

        assert document.form("/login").fields["to"] == path
        assert "billing" not in document.text
    with_token = Browser(broken.app.asgi(), token="nonsense")  # noqa: S106 - of nobody
    await with_token.open("/")
    assert with_token.answer.status == 401


async def test_who_may_only_look_is_offered_no_act_and_can_do_none(broken: Shop) -> None:
    made = await broken.operations.create_token("v", role="view", by="test", why="to look")
    browser, group = Browser(broken.app.asgi(), token=made.secret), await broken.group()
    for path in (*LISTS, group, f"{group}/replay", f"/deliveries/{await broken.letter()}"):
        document = await browser.open(path)

        assert browser.answer.status == 200, path
        assert all(one.method == "get" for one in document.forms), path
    for route in PAGES:
        if route.method == "POST":
            path = re.sub(r"\{\w+\}", "g", route.path.replace("{id:int}", "1"))
            answer = await Client(broken.app.asgi(), token=made.secret).send("POST", path)
            assert answer.status == 403, path


async def test_below_a_path_links_and_forms_stay_below_it(broken: Shop) -> None:
    client = Client(broken.asgi)

    answer = await client.send("GET", "/destinations", root_path="/ops")

    html = answer.body.decode()
    assert not re.search(r'(href|action)="/(?!ops/)', html)
    assert "Path=/ops;" in answer.headers["set-cookie"]


def test_every_page_names_an_operation_that_says_who_may() -> None:
    assert {one.operation for one in PAGES} <= set(NEEDS)


def test_every_operation_has_a_page_or_a_reason_why_not() -> None:
    known = {name for name in dir(Operations) if not name.startswith("_")}
    shown = {one.operation for one in PAGES}

    assert known - shown == set(LEFT_OUT)


async def test_style_and_icon_are_our_own(shop: Shop) -> None:
    browser = shop.browser()
    await browser.open("/assets/style.css")
    style = browser.answer
    await browser.open("/assets/icon.svg")

    assert style.headers["content-type"].startswith("text/css")
    assert b"prefers-color-scheme: dark" in style.body
    assert b"url(" not in style.body
    assert browser.answer.headers["content-type"].startswith("image/svg")


def _fitting(path: str) -> str:
    path = re.sub(r"^/(deliveries|replays)/\d+", r"/\1/{id:int}", path)
    path = re.sub(r"^/(destinations|events|services|rules|sources)/[^/]+$", r"/\1/{name}", path)
    return re.sub(r"/groups/[^/]+", "/groups/{group}", path)
