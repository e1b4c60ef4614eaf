"""The API: publishing, looking and acting over HTTP."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from redrive import EditConflictError
from redrive.cli.main import main
from redrive.operations import Operations
from redrive.policies.access import DOOR
from redrive.store import Query
from redrive.web.requests import Filter
from redrive.web.table import LEFT_OUT, ROUTES
from tests.web.conftest import Served


async def test_an_event_is_published_and_its_receipt_returned(served: Served) -> None:
    answer = await served.open.post(
        "/api/v1/events", {"type": "order.paid", "payload": {"order": 1}, "tenant": "acme"}
    )

    assert answer.status == 200, answer.body
    assert answer.json["destinations"] == ["billing", "mail"]
    told = await served.app.operations.reveal_event(answer.json["event_id"], by="test")
    assert (told.event.tenant, told.event.source, bytes(told.event.payload)) == (
        *("acme", "local"),
        b'{"order":1}',
    )


async def test_a_publish_repeated_under_its_key_stores_once(served: Served) -> None:
    publisher = await served.client("publish", name="shop")
    event = {"type": "order.paid", "payload": {"order": 1}}

    first = await publisher.post("/api/v1/events", event, idempotency_key="k-1")
    again = await publisher.post("/api/v1/events", event, idempotency_key="k-1")
    other = await publisher.post(
        "/api/v1/events", {**event, "payload": {"order": 2}}, idempotency_key="k-1"
    )

    assert again.json["event_id"] == first.json["event_id"]
    assert (first.json["is_duplicate"], again.json["is_duplicate"]) == (False, True)
    assert (other.status, other.json["type"]) == (409, "idempotency-conflict")


async def test_a_batch_is_stored_whole_or_not_at_all(served: Served) -> None:
    good = {"type": "order.paid", "payload": 1, "due": "5m"}

    stored = await served.open.post("/api/v1/events/batch", {"events": [good, good]})
    refused = await served.open.post(
        "/api/v1/events/batch", {"events": [good, {**good, "to": ["nobody"]}]}
    )

    assert len(stored.json["receipts"]) == 2
    assert refused.status == 404
    assert (await served.app.operations.status()).events == 4


async def test_dead_letters_are_listed_shown_and_replayed(served: Served) -> None:
    listed = await served.open.get("/api/v1/dead-letters?destination=billing&limit=1")
    rest = await served.open.get(
        f"/api/v1/dead-letters?destination=billing&cursor={listed.json['next_cursor']}"
    )
    [letter] = listed.json["deliveries"]
    shown = await served.open.get(f"/api/v1/deliveries/{letter['id']}")
    replayed = await served.open.post(
        "/api/v1/dead-letters/replay", {"ids": [letter["id"], 999], "why": "fixed"}
    )

    assert len(rest.json["deliveries"]) == 1
    assert shown.json["delivery"]["fault"]["message"] == "boom"
    assert replayed.json == {"changed": [letter["id"]], "left_alone": {"not there": [999]}}
    [entry, *_] = await served.app.operations.audit()
    assert (entry.action, entry.by, entry.why) == ("replay", "local", "fixed")


async def test_a_payload_is_shown_when_asked_for_with_its_secrets_blanked(served: Served) -> None:
    letter = (await served.letters())["acme"]

    plain = await served.open.get(f"/api/v1/deliveries/{letter}")
    asked = await served.open.get(f"/api/v1/deliveries/{letter}?payload=true")
    revealed = await served.open.post(f"/api/v1/deliveries/{letter}/reveal", {"why": "to see"})

    assert plain.json["event"]["payload"] is None
    assert (b"[redacted]" in asked.body, b"acme-secret" in asked.body) == (True, False)
    assert (b"[redacted]" in revealed.body, b"acme-secret" in revealed.body) == (False, True)
    assert plain.headers["cache-control"] == "no-store"
    [entry, *_] = await served.app.operations.audit()
    assert entry.action == "reveal"


async def test_of_two_who_edit_what_they_have_seen_one_is_told_to_look_again(
    served: Served,
) -> None:
    letter = (await served.letters())["acme"]
    mark = (await served.open.get(f"/api/v1/deliveries/{letter}")).headers["etag"]
    edit = {"payload": {"order": 1}, "why": "a slip", "replay": False}

    first = await served.open.post(f"/api/v1/dead-letters/{letter}/edit", edit, if_match=mark)
    second = await served.open.post(f"/api/v1/dead-letters/{letter}/edit", edit, if_match=mark)
    third = await served.open.post(
        f"/api/v1/dead-letters/{letter}/edit", edit, if_match=first.headers["etag"]
    )

    assert (first.status, second.status, third.status) == (200, 412, 200)
    assert second.json["type"] == "edit-conflict"
    with pytest.raises(EditConflictError):
        await served.app.operations.edit(letter, {}, by="test", why="late", mark=mark)


async def test_a_mistake_is_answered_with_advice(served: Served) -> None:
    answers = {
        "/api/v1/dead-letters?limit=0": "`int` >= 1",
        "/api/v1/dead-letters?destinaton=billing": "did you mean 'destination'",
        "/api/v1/dead-letters?limit=1&limit=2": "give it once",
        "/api/v1/dead-letters?cursor=nonsense": "cursor",
        "/api/v1/dead-letters?since=yesterday": "Invalid RFC3339",
        "/api/v1/deliveries?status=lost": "Invalid enum value",
        "/api/v1/log?after=x": "position",
    }
    for path, advice in answers.items():
        answer = await served.open.get(path)

        assert (answer.status, answer.headers["content-type"]) == (
            *(400, "application/problem+json"),
        ), path
        assert advice in answer.json["detail"], answer.json


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (b"{", "cannot be read"),
        (b"[]", "Expected `object`"),
        (b'{"type": "a", "type": "b"}', "stands twice"),
        (b'{"type": "order.paid", "payload": {"a": 1, "a": 2}}', "stands twice"),
        (b'{"type": "order.paid", "payload": {"a": 1, "\\u0061": 2}}', "stands twice"),
        (b'{"type": "order.paid", "payload": [{"a": 1, "a": "\\u003a"}]}', "stands twice"),
        (b'{"type": "order paid"}', "dotted words"),
        (b'{"type": "order.paid", "tennant": "x"}', "did you mean 'tenant'"),
        (b'{"type": "order.paid", "due": "soon"}', "how long from now"),
        (b'{"type": "order.paid", "payload": NaN}', "cannot be read"),
        (b'{"type": "order.paid", "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}", "deep"),
        (b'{"type": "order.paid", "key": "\\u0000"}', "NUL"),
        (b'{"type": "\\ud800"}', "cannot be read"),
        (b"\xff", "cannot be read"),
    ],
)
async def test_a_body_that_cannot_be_read_is_the_callers_mistake(
    served: Served, body: bytes, advice: str
) -> None:
    answer = await served.open.send("POST", "/api/v1/events", body=body)

    assert answer.status == 400
    assert advice in answer.json["detail"], answer.json


async def test_results_are_waited_for(served: Served) -> None:
    receipt = await served.open.post("/api/v1/events", {"type": "order.paid", "payload": {}})
    path = f"/api/v1/events/{receipt.json['event_id']}/results/billing"

    before = await served.open.get(path)
    await served.app.drain()
    after = await served.open.get(f"{path}?timeout=1s")

    assert (before.json["state"], after.json["state"]) == ("waiting", "delivered")


def test_every_operation_is_behind_the_api_or_says_why_not() -> None:
    operations = {
        name
        for name, value in inspect.getmembers(Operations, inspect.isfunction)
        if not name.startswith("_")
    }
    served = [one.operation for one in ROUTES]

    assert operations - set(served) == set(LEFT_OUT)
    assert set(served) - operations == {"publish", "publish_many"}
    assert len(set(served)) == len(served)
    assert all(LEFT_OUT.values())


_NOT_TYPED_IN = {
    "dead_letters": "`redrive dlq list` asks for deliveries that have failed, which is the same",
    "stuck": "`redrive doctor` names them",
    "events": "`redrive event list` finds events; programs read the log in its order",
    "result": "programs wait for it; `redrive delivery show` tells it",
    "reached": "programs wait for it; `redrive projection show` tells how far one is",
    "backfill": "`redrive destination backfill` shows the plan before it carries it out",
    "export_page": "`redrive dlq export` writes all pages",
    **dict.fromkeys(DOOR, "it is how a server finds out who asks"),
}
"""The operations without a command, each with the reason."""


def test_every_operation_is_behind_a_command_or_says_why_not() -> None:
    operations = {
        name
        for name, _ in inspect.getmembers(Operations, inspect.isfunction)
        if not name.startswith("_")
    }
    folder = Path(inspect.getfile(main)).parent
    text = "\n".join(one.read_text("utf-8") for one in sorted(folder.rglob("*.py")))
    typed_in = set(re.findall(r"\boperations\.(\w+)\(", text))

    assert operations - typed_in == set(_NOT_TYPED_IN)


def test_a_filter_has_all_that_a_query_has() -> None:
    assert {*Filter.__struct_fields__, "status"} == set(Query.__struct_fields__)


async def test_every_list_answers_with_what_its_route_promises(served: Served) -> None:
    for route in ROUTES:
        if (
            route.method == "GET"
            and "{" not in route.path
            and route.path != "/deliveries/conditions"
        ):
            answer = await served.open.get(f"/api/v1{route.path}")

            assert answer.status == 200, (route.path, answer.body)
            msgspec.json.decode(answer.body, type=route.result)


async def test_dead_letters_go_out_whole_and_come_back_as_they_were(served: Served) -> None:
    letter = (await served.letters())["acme"]
    edit = {"payload": {"order": 1}, "why": "a slip", "replay": False}
    await served.open.post(f"/api/v1/dead-letters/{letter}/edit", edit)

    out = await served.open.get("/api/v1/dead-letters/export?destination=billing&tenant=acme")
    gone = {"ids": [letter], "why": "it is in the file"}
    await served.open.post("/api/v1/dead-letters/delete", gone)
    back = await served.open.post("/api/v1/dead-letters/import", {"letters": out.json["letters"]})

    [restored] = back.json["deliveries"]
    shown = await served.open.get(f"/api/v1/deliveries/{restored}?payload=true")
    assert shown.json["delivery"]["payload"] == {"order": 1}
    assert shown.json["event"]["tenant"] == "acme"


async def test_trends_are_told_of_one_destination_or_of_all(served: Served) -> None:
    everywhere = await served.open.get("/api/v1/trends")
    both = await served.open.get("/api/v1/trends?destination=mail&destination=billing&over=day")
    limited = await served.client("view", destinations=("billing",))
    own = await limited.get("/api/v1/trends")
    other = await limited.get("/api/v1/trends?destination=mail")

    [trend] = everywhere.json["trends"]
    assert sum(one["measure"]["failed"] for one in trend["points"]) == 4
    assert [one["destination"] for one in both.json["trends"]] == ["mail", "billing"]
    assert [one["destination"] for one in own.json["trends"]] == ["billing"]
    assert other.status == 403
