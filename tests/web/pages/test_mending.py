"""What is mended in the dashboard beyond a replay: edits, gates, schedules, tenants, who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive import Event, Redrive, Retry
from redrive.model.delivery import Attempt
from redrive.model.gate import Closed, Open
from redrive.model.outcome import Exchange, Fault
from redrive.testing import Kit
from redrive.web.pages.delivery import curl
from redrive.web.pages.timeline import timeline
from tests.web.pages.browser import Browser
from tests.web.pages.conftest import Shop


async def test_a_payload_is_checked_then_edited_and_sent_again(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")
    broken.down.clear()

    editor = await browser.submit("/editor")
    assert "It failed by: ConnectionError the certificate has expired" in editor.text
    assert '"card": "visa-4111"' in editor.form("/edit").fields["payload"]
    payload = '{"order": 7, "card": "visa-4111"}'
    checked = await browser.submit("/edit", by="/edit/check", payload=payload)
    assert "changes 1 place" in checked.text
    done = await browser.submit("/edit", payload=payload, why="seven was meant")
    await broken.kit.drain()
    told = await browser.open(f"/deliveries/{letter}")

    assert "1 place was changed, and it was sent again." in done.text
    assert "Edited by local" in told.text
    assert "order" in told.text
    assert "7" not in told.text.split("Edited by local")[1].split("Replayed")[0].split("order")[1]
    assert "Delivered after 1 try since it was replayed." in told.text
    assert "Dead letters \u203a Event order.paid" in told.text
    actions = [one.action for one in await broken.operations.audit()]
    assert actions == ["replay", "edit", "reveal"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ('{"order": }', "Expecting value, in line 1, column 11"),
        ('{"a": 1,\n "a": 2}', "the name 'a' stands twice"),
        ("[" * 100_000, "too deep"),
        ("", "Expecting value"),
    ],
)
async def test_what_is_no_json_is_said_and_stays_in_the_editor(
    broken: Shop, typed: str, said: str
) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")
    await browser.submit("/editor")

    document = await browser.submit("/edit", payload=typed, why="to see")

    assert browser.answer.status == 400
    assert said in document.text
    assert document.form("/edit").fields["payload"] == typed
    assert document.form("/edit").fields["why"] == "to see"
    assert [one.action for one in await broken.operations.audit()] == ["reveal"]


async def test_lines_and_odd_letters_survive_the_editor(broken: Shop) -> None:
    letter = await broken.letter()
    odd = {"left": "\u202e", "far": "\U000e0001", "control": "\x9b", "tab": "\t"}
    await broken.operations.edit(letter, odd, by="ann", why="odd", replay=False)
    browser = broken.browser()
    await browser.open(f"/deliveries/{letter}")

    opened = (await browser.submit("/editor")).form("/edit").fields["payload"]
    as_browsers_do = opened.replace("\n", "\r\n")
    checked = await browser.submit("/edit", by="/edit/check", payload=as_browsers_do)

    assert opened.replace("\n", "").isprintable()
    assert "says what is there already" in checked.text
    assert checked.form("/edit").fields["payload"] == opened


async def test_an_edit_that_changes_nothing_or_comes_late_is_refused(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")
    editor = await browser.submit("/editor")

    same = await browser.submit("/edit", why="to see")
    await broken.operations.edit(letter, {"order": 1}, by="ann", why="first", replay=False)
    late = await browser.submit("/edit", payload="{}", why="second")

    assert editor.form("/edit").fields["mark"]
    assert "Nothing was changed" in same.text
    assert "changed by somebody else" in late.text


async def test_an_edit_may_leave_the_letter_where_it_is(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await browser.open(f"/deliveries/{letter}")
    await browser.submit("/editor")

    done = await browser.submit("/edit", payload="{}", why="to be replayed later", then="keep")

    assert "it stays a dead letter" in done.text
    assert (await broken.operations.show(letter)).delivery.is_dead_letter


async def test_a_resolved_delivery_is_reopened(broken: Shop) -> None:
    browser, letter = broken.browser(), await broken.letter()
    await broken.operations.resolve([letter], by="ann", why="by phone")
    await browser.open(f"/deliveries/{letter}")

    done = await browser.submit("/reopen", why="it was not")

    assert "It is a dead letter again." in done.text


async def test_a_resolved_group_is_found_and_reopened(broken: Shop) -> None:
    browser, group = broken.browser(), await broken.group()
    await browser.open(group)
    resolved = await browser.submit("/resolve", why="by phone")
    assert "3 dead letters were resolved." in resolved.text
    assert "There is no dead letter" in resolved.text

    await browser.open("/dead-letters?show=resolved")
    shown = await browser.click("Look into it")
    assert "All resolved: 3 letters" in shown.text
    reopened = await browser.submit("/reopen", why="it was not")

    assert "3 dead letters were reopened." in reopened.text
    assert len((await broken.operations.dead_letters()).deliveries) == 3


async def test_a_sentence_about_what_was_done_is_said_once(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/destinations/billing")

    first = await browser.submit("/destinations/pause", why="they asked")
    again = await browser.open("/destinations/billing")

    assert "billing is paused." in first.text
    assert "billing is paused." not in again.text


async def test_what_waits_is_hurried_put_off_prioritised_and_given_up(shop: Shop) -> None:
    await shop.app.publish("order.paid", {}, due="1h")
    [waiting] = (await shop.operations.find_events()).events[0].deliveries
    browser = shop.browser()

    async def act(name: str, **typed: str) -> str:
        await browser.open(f"/deliveries/{waiting.id}")
        return (await browser.submit(f"/{name}", **typed)).text

    await act("prioritise", priority="-7")
    await act("reschedule", wait="2h")
    told = (await shop.operations.show(waiting.id)).delivery
    assert told.priority == -7
    assert told.due == shop.kit.clock.now() + timedelta(hours=2)
    assert "it is a number from -100 to 100" in await act("prioritise", priority="high")
    assert "It is a dead letter now." in await act("cancel", why="not wanted")
    story = (await shop.operations.show(waiting.id)).delivery
    assert story.is_dead_letter


async def test_a_limit_is_set_for_a_while_and_ended(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/destinations/billing")

    limited = await browser.submit("/limit", rate="5/s", concurrency="2", why="they asked")
    assert "billing keeps to rate 5/s, 2 at once" in limited.text
    assert "Set by hand" in limited.text
    refused = await browser.submit("/limit", rate="fast", why="x")
    assert "write how many in how long" in refused.text
    refused = await browser.open("/destinations/billing")
    ended = await browser.submit("/limit/end")

    assert "declared limits again" in ended.text
    assert "Set by hand" not in ended.text


async def test_a_breaker_is_opened_and_all_are_closed(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/destinations/billing")
    opened = await browser.submit("/breakers/open", why="they are down")
    [gate] = await broken.operations.gates()
    assert isinstance(gate.gate.breaker, Open)
    assert "until somebody closes it" in opened.text

    await browser.open("/destinations")
    await browser.submit("/breakers/reset-all")

    [gate] = await broken.operations.gates()
    assert isinstance(gate.gate.breaker, Closed)


async def test_all_destinations_of_a_search_are_paused_and_resumed(broken: Shop) -> None:
    browser = broken.browser()
    before = await browser.open("/destinations?name=bill")

    paused = await browser.submit("/all/pause", why="we move")
    resumed = await browser.submit("/all/resume", why="we moved")
    nobody = await browser.submit("/all/pause", why="again", sought="nobody")

    assert "Resume" not in before.text
    assert "1 destination was paused." in paused.text
    assert "1 destination was resumed." in resumed.text
    assert "0 destinations were paused." in nobody.text


async def test_what_waits_for_a_destination_is_given_up_or_deleted(shop: Shop) -> None:
    for _ in range(2):
        await shop.app.publish("order.paid", {}, due="1h")
    browser = shop.browser()
    await browser.open("/destinations/billing")
    failed = await browser.submit("/fail-pending", why="it is gone")
    await shop.app.publish("order.paid", {}, due="1h")
    await browser.open("/destinations/billing")
    deleted = await browser.submit("/delete-pending", why="it is gone")

    assert "2 deliveries are dead letters now." in failed.text
    assert "1 delivery was deleted." in deleted.text


async def test_a_destination_is_removed_and_restored(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/destinations/billing")

    removed = await browser.submit("/destinations/remove", why="no longer")
    restored = await browser.submit("/destinations/restore")

    assert "It was removed" in removed.text
    assert "It was removed" not in restored.text


async def test_a_tenant_is_paused_here_or_everywhere_and_resumed(broken: Shop) -> None:
    browser = broken.browser()
    await browser.open("/tenants?tenant=acme")

    here = await browser.submit("/tenants/pause", why="too loud")
    assert "acme is paused at billing." in here.text
    await browser.submit("/tenants/resume")
    await browser.open("/tenants")
    everywhere = await browser.submit("/tenants/pause", destination="")
    assert "paused everywhere" in everywhere.text
    resumed = await browser.submit("/tenants/resume")

    assert "acme goes on everywhere." in resumed.text
    assert not await broken.operations.tenants(only_paused=True)


@pytest.fixture
async def clockwork() -> AsyncIterator[Shop]:
    """A shop with a schedule and a projection that cannot apply one of two events."""
    app = Redrive()
    app.schedule("0 2 * * *", "report.due", name="nightly", timezone="Europe/Berlin")

    @app.projection("order.*", name="totals", retry=Retry(max_attempts=1))
    async def total(event: Event[Any], model: Any) -> None:  # noqa: ANN401 - whatever the store has
        if event.key == "bad":
            raise ValueError("no total")

    @app.handler("order.*", name="billing")
    async def bill(event: Event[Any]) -> None: ...

    async with Kit(app) as kit:
        for key in ("bad", "good"):
            await app.publish("order.paid", {}, key=key)
        await kit.drain()
        yield Shop(kit, app, [])


async def test_a_schedule_is_paused_resumed_and_run(clockwork: Shop) -> None:
    browser = clockwork.browser()
    shown = await browser.open("/schedules")
    assert "0 2 * * *, Europe/Berlin" in shown.text

    paused = await browser.submit("/pause", why="quiet night")
    assert "quiet night" in paused.text
    await browser.submit("/resume")
    asked = await browser.submit("/run")

    assert "A worker publishes an event of nightly within some seconds." in asked.text
    assert "local wants one now" in asked.text


async def test_a_schedule_of_the_store_is_added_changed_and_deleted(clockwork: Shop) -> None:
    browser = clockwork.browser()
    await browser.open("/schedules")
    document = '{"event": "report.due", "every": "1h"}'

    refused = await browser.submit("/save", name="hourly", schedule=document.replace("1h", "0s"))
    taken = await browser.submit("/save", name="nightly", schedule=document)
    added = await browser.submit("/save", name="hourly", schedule=document, why="a trial")
    change = await browser.open("/schedules?change=hourly")
    deleted = await browser.submit("/delete", name="hourly", why="the end")

    assert "every is" in refused.text
    assert "belongs to a schedule that an app declares" in taken.text
    assert "Version 1 of hourly is in force." in added.text
    assert "stored, version 1" in added.text
    assert "Change hourly" in change.text
    assert "hourly was deleted" in deleted.text


async def test_a_projection_says_how_far_it_is_and_begins_anew(clockwork: Shop) -> None:
    browser = clockwork.browser()
    shown = await browser.open("/projections")
    assert "1 key parked" in shown.text

    begun = await browser.submit("/projections/reset", why="a new column")

    assert "totals begins anew; 1 delivery was removed." in begun.text
    assert "Begins anew" in begun.text
    assert "its read model is emptied" in begun.text


async def test_a_version_of_a_projection_is_given_to_readers() -> None:
    app = Redrive()

    async def apply(event: Event[Any], model: Any) -> None: ...  # noqa: ANN401 - as above

    for version in (1, 2):
        app.projection(
            "order.*", name="totals", version=version, tables=["totals"], partitions=version
        )(apply)
    async with Kit(app) as kit:
        await app.publish("order.paid", {})
        await kit.drain()
        browser = Shop(kit, app, []).browser()
        shown = await browser.open("/projections")

        swapped = await browser.submit("/swap")
        begun = await browser.submit("/projections/reset", why="again")

    assert "2, beside the one that readers have" in shown.text
    assert "2 partitions" in shown.text
    assert "Partition 1: 0 events behind" in shown.text
    assert "Readers of totals have version 2." in swapped.text
    assert "begins anew" in begun.text


async def test_a_projection_that_nobody_reads_for_is_forgotten(clockwork: Shop) -> None:
    clockwork.kit.clock.advance("10m")
    browser = clockwork.browser()
    await browser.open("/projections")

    gone = await browser.submit("/drop")

    assert "There is no projection" in gone.text


async def test_a_token_is_shown_once_and_revoked(shop: Shop) -> None:
    browser = shop.browser()
    await browser.open("/access")

    made = await browser.submit(
        "/tokens/create", name="ci", role="operate", expires_in="90d", why="it deploys"
    )
    again = await browser.open("/access")
    [token] = await shop.operations.tokens()
    revoked = await browser.submit("/tokens/revoke", why="it leaked")

    assert "rdt_" in made.text
    assert "rdt_" not in again.text
    assert token.expires_at is not None
    assert "revoked" in revoked.text


async def test_a_user_is_added_gets_another_password_and_goes(shop: Shop) -> None:
    browser, password = shop.browser(), "correct horse battery"
    await browser.open("/access")

    added = await browser.submit(
        "/users/add", name="ann", password=password, role="view", why="she is on call"
    )
    assert "ann may log in." in added.text
    assert await shop.operations.check_password("ann", password) is not None
    changed = await browser.submit("/users/password", password=password[::-1], why="forgotten")
    assert "their sessions have ended" in changed.text
    assert await shop.operations.check_password("ann", password[::-1]) is not None
    removed = await browser.submit("/users/remove", why="she left")

    assert "ann is removed" in removed.text
    assert password not in removed.text


async def test_who_may_is_shown_to_admins_alone(broken: Shop) -> None:
    made = await broken.operations.create_token("o", role="operate", by="test", why="to act")
    browser = Browser(broken.app.asgi(), token=made.secret)

    overview = await browser.open("/")
    await browser.open("/access")

    assert "Users and tokens" not in overview.text
    assert browser.answer.status == 403


async def test_settings_say_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_LEASE", "20s")
    app = Redrive(grace="3s")
    async with Kit(app):
        text = " ".join((await Browser(app.asgi(login=False)).open("/settings")).text.split())

    assert "lease 20s the variable REDRIVE_LEASE 15s" in text
    assert "grace 3s code 10s" in text
    assert "poll 1s default" in text


async def test_the_story_tells_of_waits_replays_and_reasons(broken: Shop) -> None:
    letter = await broken.letter()
    broken.kit.clock.advance("1m")
    await broken.operations.replay([letter], by="ann", why="the certificate was renewed")
    await broken.kit.drain()
    story = await broken.operations.show(letter)

    moments = timeline(story, await broken.operations.audit())

    assert [one.what for one in moments] == [
        "Failed for good after 1 try",
        "Try 1: failed",
        "Replayed by ann",
        "Failed for good after 1 try",
        "Try 1: failed",
        "Published",
    ]
    assert moments[2].detail == "the certificate was renewed"


async def test_the_story_says_in_words_who_has_seen_a_payload(broken: Shop) -> None:
    letter = await broken.letter()
    broken.kit.clock.advance("1m")
    await broken.operations.reveal(letter, by="ann", why="to edit it")
    story = await broken.operations.show(letter)

    latest = timeline(story, await broken.operations.audit())[0]

    assert (latest.what, latest.detail) == ("Payload shown to ann", "to edit it")


async def test_a_try_says_how_long_it_took_and_how_long_the_next_one_waited(shop: Shop) -> None:
    await shop.app.publish("order.paid", {})
    await shop.kit.drain()
    story = await shop.operations.show(await shop.letter())
    at, fault = shop.kit.clock.now(), Fault(error_class="E", message="no", rule="r")
    tries = [
        Attempt(
            number=number,
            started_at=at + timedelta(seconds=begun),
            ended_at=at + timedelta(seconds=begun + 2),
            worker="w1",
            result="retry",
            fault=fault,
        )
        for number, begun in ((1, 0), (2, 32))
    ]
    delivery = msgspec.structs.replace(story.delivery, log=tuple(tries))

    moments = timeline(msgspec.structs.replace(story, delivery=delivery))

    notes = [one.note for one in moments if one.note]
    assert notes == ["worker w1, took 2 s", "worker w1, took 2 s; then it waited 30 s"]


async def test_the_end_is_told_after_the_try_that_brought_it(broken: Shop) -> None:
    story = await broken.operations.show(await broken.letter())
    delivery = story.delivery
    assert delivery.settled_at is not None
    late = msgspec.structs.replace(
        delivery.log[-1], ended_at=delivery.settled_at + timedelta(milliseconds=1)
    )
    delivery = msgspec.structs.replace(delivery, log=(late,))

    moments = timeline(msgspec.structs.replace(story, delivery=delivery))

    assert [one.what for one in moments[:2]] == ["Failed for good after 1 try", "Try 1: failed"]


async def test_a_deed_names_the_delivery_it_was_done_to(broken: Shop) -> None:
    letter = await broken.letter()
    await broken.operations.resolve([letter], by="ann", why="done by hand")

    assert f"delivery {letter}" in (await broken.browser().open("/audit")).text


def test_a_request_is_copied_as_curl_in_which_nothing_is_obeyed() -> None:
    exchange = Exchange(
        method="POST",
        url="https://shop.example/hook?a='b",
        headers={"X-Evil": "'; rm -rf /", "Content-Length": "7"},
        size=7,
    )

    hidden, shown = curl(exchange, None), curl(exchange, '{"a":"\'"}')

    assert hidden.endswith("--data-binary @payload.json")
    assert "-H 'X-Evil: '\"'\"'; rm -rf /'" in shown
    assert "Content-Length" not in shown
    assert shown.endswith("""--data-raw '{"a":"'"'"'"}'""")
