"""Looking: the status, lists, one delivery, and the audit log."""

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from redrive import Redrive, Retry, Snooze
from redrive.clock import SystemIds
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import Exchange, Fault, Faulted, Nature, Outcome
from tests.cli.shell import Shell, Shop, fail, ids


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_status_of_a_new_store_is_calm(shell: Shell, shop: Shop) -> None:
    answer = shell("status")

    assert answer.code == 0
    assert "Nothing needs attention." in answer.out
    assert "No worker is running." in answer.out


@pytest.mark.parametrize(
    "command", [["status"], ["dlq", "list"], ["audit"], ["replay", "list"], ["prune", "--dry-run"]]
)
def test_a_database_of_somebody_else_is_left_alone(
    shell: Shell, folder: Path, command: list[str]
) -> None:
    path = folder / "other.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE customers (name TEXT)")
    other.close()
    before = path.read_bytes()

    answer = shell(*command, "--store", f"sqlite:///{path}")

    assert (answer.code, answer.out) == (3, "")
    assert f"{path} is a database, but no store of Redrive; `redrive init" in answer.err
    assert path.read_bytes() == before
    assert shell("init", "--store", f"sqlite:///{path}").code == 0
    assert shell(*command, "--store", f"sqlite:///{path}").code == 0


def test_the_status_counts_by_destination(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"order": 2}, {"error": "refused"})

    said = lines(shell("status").out)

    assert "Destination Pending flight Delivered Failed due" in said
    assert "billing - - 2 1 -" in said
    assert "3 events" in said
    assert "warning 1 dead letter waits for a person (billing 1)." in said


def test_the_status_shows_more_columns_when_there_is_something_in_them(
    shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "refused"}, {"order": 2}, event_type="letter.sent", key="k")
    shop.publish({"order": 3}, event_type="letter.sent", due="1h")
    shell("dlq", "resolve", "1", "--why", "phoned")

    said = lines(shell("status").out)

    assert "Destination Pending Waiting flight Delivered Failed Resolved due" in said
    assert any(line.startswith("mail 2 1 - - - 1 ") for line in said)


def test_the_status_says_when_work_waits_for_nobody(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, due=datetime.now(UTC) - timedelta(minutes=5))

    said = lines(shell("status").out)

    assert "error Work has been due for 5 min, and no worker is alive." in said


def test_a_worker_is_named_by_where_it_runs() -> None:
    name = SystemIds().worker_id()

    host, pid, _ = name.rsplit("-", 2)
    assert socket.gethostname().startswith(host)
    assert int(pid) == os.getpid()
    assert SystemIds().worker_id() != name


def test_the_status_names_live_workers(shell: Shell, shop: Shop) -> None:
    async def work(app: Redrive) -> str:
        worker = await app.make_worker()
        store = await app._store()  # noqa: SLF001 - a worker that was heard of and did not retire
        await store.heartbeat(worker.id, [], lease=timedelta(seconds=15))
        return worker.id

    worker_id = shop.do(work)

    said = lines(shell("status").out)

    assert any(line.startswith(f"{worker_id} ") for line in said)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_looking_does_not_wait_for_a_writer(shell: Shell, shop: Shop) -> None:
    """A transaction that was left open is just what somebody comes to look for."""
    writer = apsw.Connection(str(shop.path))
    writer.execute("BEGIN IMMEDIATE")

    answer = shell("status")

    writer.close()
    assert answer.code == 0


def test_the_status_is_json_for_programs(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"order": 2})

    figures = shell("status", "--json").json

    assert figures["events"] == 2
    assert [one["name"] for one in figures["destinations"]] == ["billing", "mail"]
    assert figures["destinations"][0]["failed"] == 1


def test_dead_letters_are_listed_with_their_error(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "connection refused"}, tenant="acme", key="order-7")

    said = lines(shell("dlq", "list").out)

    assert said[0] == "ID Failed Tries Delivery"
    assert said[1].startswith("1 ")
    assert said[1].endswith("order.paid → billing exhausted · tenant acme · key order-7")
    assert said[2] == "ConnectionError: connection refused"


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_list_tells_how_often_a_letter_was_replayed(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, source="web")
    shell("dlq", "replay", "1")
    shop.do(lambda app: app.drain())

    assert "exhausted · replayed 1 time · source web" in shell("dlq", "list").out


def test_an_empty_list_says_so(shell: Shell, shop: Shop) -> None:
    assert shell("dlq", "list").out == "No dead letter.\n"
    assert shell("dlq", "list", "--key", "k").out == "No dead letter fits.\n"
    assert shell("delivery", "list").out == "No pending delivery.\n"


def test_a_list_goes_on_at_the_cursor(shell: Shell, shop: Shop) -> None:
    shop.deliver(*({"error": "refused"} for _ in range(5)))

    first = shell("dlq", "list", "--limit", "2")
    cursor = first.out.rsplit("--cursor ", 1)[1].strip()
    rest = shell("dlq", "list", "--cursor", cursor, "--json")

    assert len(ids(rest)) == 3
    assert rest.json["next_cursor"] is None
    assert {line.split()[0] for line in lines(first.out) if line[:1].isdigit()}.isdisjoint(
        map(str, ids(rest))
    )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [1, 2, 3]),
        (["--destination", "billing"], [1, 2]),
        (["--type", "letter.*"], [3]),
        (["--tenant", "acme"], [1]),
        (["--key", "k-2"], [2]),
        (["--reason", "terminal"], [3]),
        (["--error", "ConnectionError"], [1, 2]),
        (["--text", "REFUSED"], [1]),
        (["--since", "1h"], [1, 2, 3]),
        (["--until", "1h"], []),
        (["--since", "2020-01-01", "--until", "2100-01-01T00:00Z"], [1, 2, 3]),
        (["--event", "unknown"], []),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_filters_narrow_the_list(
    filters: Sequence[str], expected: Sequence[int], shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "refused"}, tenant="acme")
    shop.deliver({"error": "reset"}, key="k-2")
    shop.deliver({"terminal": "no such street"}, event_type="letter.sent")

    found = ids(shell("dlq", "list", *filters, "--json"))

    assert sorted(found) == expected


def test_resolved_dead_letters_are_listed_when_asked_for(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})
    shell("dlq", "resolve", "1", "--why", "phoned", "--by", "ann")

    assert shell("dlq", "list").out == "No dead letter.\n"
    assert "resolved by ann" in shell("dlq", "list", "--resolved").out


@pytest.mark.parametrize(
    ("status", "expected"),
    [("pending", [3]), ("delivered", [1]), ("failed", [2]), ("in-flight", [])],
)
def test_deliveries_are_listed_by_status(
    status: str, expected: Sequence[int], shell: Shell, shop: Shop
) -> None:
    shop.deliver({"order": 1}, {"error": "refused"})
    shop.publish({"order": 3})

    found = ids(shell("delivery", "list", "--status", status, "--json"))

    assert found == expected


def test_a_pending_delivery_tells_what_it_waits_behind(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"order": 2}, event_type="letter.sent", key="k")

    listed = shell("delivery", "list").out
    shown = shell("delivery", "show", "2").out

    assert "behind 1" in listed
    assert "Waits (order): Delivery 1 of the same key goes first." in shown
    assert "redrive delivery show 1" in shown


def test_a_pending_delivery_tells_everything_it_waits_for(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, due="1h")
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")

    shown = shell("delivery", "show", "1").out
    told = shell("delivery", "show", "1", "--json").json["waiting"]

    assert "Waits (due): Its due time has not come. Until " in shown
    assert "Waits (pause): Paused by ann: they migrate." in shown
    assert "Waits (worker): No worker is alive." in shown
    assert [one["reason"] for one in told] == ["due", "pause", "worker"]


def test_a_dead_letter_shows_what_was_sent_and_answered(shell: Shell, shop: Shop) -> None:
    exchange = Exchange(
        method="POST",
        url="https://api.example.com/hooks",
        headers={"content-type": "application/json"},
        size=12,
        status=422,
        reason="Unprocessable",
        answer_headers={"x-request": "r-7"},
        body="\x1b[31mno such customer\nat line 2",
        is_cut=True,
    )
    fault = Fault(error_class="HTTP 422", message="no such customer", rule="status 422")

    class Refusing:
        batch = 1

        async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
            return [Faulted(fault=fault, nature=Nature.TERMINAL, exchange=exchange)]

    async def work(app: Redrive) -> None:
        app.destination("crm", "parcel.*", transport=Refusing())
        await app.close()
        await app.publish("parcel.sent", 1)
        await app.drain()

    shop.do(work)

    shown = shell("dlq", "show", "1").out
    told = shell("dlq", "show", "1", "--json").json["delivery"]["exchange"]

    for line in (
        "Request",
        "  POST https://api.example.com/hooks",
        "  content-type: application/json",
        "  (12 bytes)",
        "Response",
        "  422 Unprocessable",
        "  x-request: r-7",
        "  \\x1b[31mno such customer",
        "  at line 2",
        "  … and more, which was not kept.",
    ):
        assert line in shown.splitlines()
    assert (told["status"], told["body"]) == (422, exchange.body)


def test_a_dead_letter_is_shown_with_its_whole_story(shell: Shell, shop: Shop) -> None:
    shop.deliver(
        {"error": "connection refused"}, tenant="acme", key="order-7", headers={"lang": "de"}
    )

    said = shell("dlq", "show", "1").out

    assert said.startswith("Delivery 1: order.paid → billing\nFailed after 1 try, ")
    for expected in (
        "Error         ConnectionError: connection refused",
        "Decided by    network: ConnectionError",
        "Tenant        acme",
        "Key           order-7",
        "Headers       lang=de",
        "failed: ConnectionError: connection refused",
        "Traceback (most recent call last):",
        '"error": "connection refused"',
        "redrive dlq replay 1",
        'redrive dlq resolve 1 --why "…"',
        'redrive dlq delete 1 --why "…"',
    ):
        assert expected in said


def test_times_are_shown_both_ways(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    enqueued = next(line for line in lines(shell("dlq", "show", "1").out) if "Enqueued" in line)

    exact = datetime.fromisoformat(f"{enqueued[9:28]}+00:00")
    assert timedelta(0) <= datetime.now(UTC) - exact < timedelta(minutes=1)
    assert enqueued[28:].startswith(" UTC (")
    assert enqueued.endswith((" ago)", "(just now)"))


def test_earlier_cycles_are_part_of_the_story(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})
    shell("dlq", "replay", "1", "--by", "ann")
    shop.deliver()

    said = lines(shell("dlq", "show", "1").out)

    assert "Earlier cycles" in said
    assert any("exhausted after 1 try, " in line for line in said)
    assert any(line.startswith("replayed by ann, ") for line in said)


def test_an_earlier_cycle_of_several_tries_says_when_it_first_failed(
    shell: Shell, shop: Shop
) -> None:
    async def work(app: Redrive) -> None:
        app.handler("bill.*", name="stubborn", retry=Retry(max_attempts=3, base="0s", cap="0s"))(
            fail
        )
        await app.close()
        await app.publish("bill.sent", {"error": "refused"})
        await app.drain()

    shop.do(work)
    first_failed = shell("dlq", "show", "1", "--json").json["delivery"]["first_failed_at"]
    shell("dlq", "replay", "1", "--by", "ann")

    said = lines(shell("dlq", "show", "1").out)

    when = f"{datetime.fromisoformat(first_failed):%Y-%m-%d %H:%M:%S} UTC"
    assert any(line.startswith(f"first failed {when} (") for line in said)
    assert any("replayed by ann, " in line for line in said)


def test_a_resolved_dead_letter_says_by_whom_and_why(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})
    shell("dlq", "resolve", "1", "--why", "refunded by hand", "--by", "ann")

    said = shell("dlq", "show", "1").out

    assert "Resolved by ann, just now: refunded by hand" in said
    assert "redrive dlq replay" not in said


def test_a_delivered_and_a_waiting_delivery_have_stories_too(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1})
    shop.publish({"order": 2}, due="1h", deadline="2h")

    delivered, waiting = shell("delivery", "show", "1").out, shell("delivery", "show", "2").out

    assert "Delivered after 1 try, " in delivered
    assert "What to do" not in delivered
    assert "Pending after 0 tries, due in 59 min." in waiting
    assert "Deadline " in waiting
    assert "redrive delivery reschedule 2 --due 0s" in waiting


def test_a_large_payload_is_cut_and_says_so(shell: Shell, shop: Shop) -> None:
    shop.publish({"text": "x" * 10_000}, list(range(500)))

    long, tall = shell("delivery", "show", "1").out, shell("delivery", "show", "2").out

    assert "more characters; --json shows all of it." in " ".join(lines(long))
    assert len(long) < 8_000
    assert "\n  … and " in tall
    assert len(tall.splitlines()) < 80


def test_the_story_is_json_for_programs(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused", "text": "x" * 10_000})

    story = shell("dlq", "show", "1", "--json").json

    assert story["delivery"]["reason"] == "exhausted"
    assert story["delivery"]["log"][0]["fault"]["error_class"] == "ConnectionError"
    assert story["event"]["payload"] == {"error": "refused", "text": "x" * 10_000}


def test_text_of_others_cannot_command_the_terminal(shell: Shell, shop: Shop) -> None:
    """An error message is data: neither escape sequences nor markup in it may do anything."""
    shop.deliver({"error": "\x1b[31mred\x1b[0m [bold]loud[/bold] \x07\u202e"}, key="[red]\x1b")

    for arguments in (("dlq", "list"), ("dlq", "show", "1")):
        said = shell(*arguments).out
        assert "\x1b" not in said
        assert "\x07" not in said
        assert "\u202e" not in said
        assert "\\x1b[31mred" in said
        assert "[bold]loud[/bold]" in said


def test_everything_fits_eighty_columns(shell: Shell, shop: Shop) -> None:
    shop.deliver(
        *({"error": "refused " * 40, "text": "y" * 200} for _ in range(3)),
        event_type="letter.sent." + "long" * 20,
        key="k" * 100,
        tenant="t" * 100,
    )
    shell("dlq", "resolve", "1", "--why", "because " * 30, "--by", "ann")
    shell.narrow(80)

    for arguments in (
        ("status",),
        ("dlq", "list", "--resolved"),
        ("dlq", "show", "1"),
        ("delivery", "list"),
        ("audit",),
        ("doctor",),
    ):
        said = shell(*arguments).out.splitlines()
        assert [line for line in said if len(line) > 80] == []
        assert [line for line in said if line != line.rstrip()] == []


def test_a_snoozed_delivery_tells_how_often(shell: Shell, shop: Shop) -> None:
    async def work(app: Redrive) -> None:
        @app.handler("nap.*", retry=Retry(max_attempts=1))
        async def sleepy(event: Event[object]) -> Snooze:
            return Snooze("1h")

        await app.close()
        await app.publish("nap.taken")
        await app.drain()

    shop.do(work)

    assert "Snoozed     1 time" in shell("delivery", "show", "1").out


def test_the_audit_log_tells_who_did_what_and_why(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"})
    shell("dlq", "replay", "1", "2", "--by", "ann", "--why", "billing is back")

    answer = shell("audit")

    said = lines(answer.out)
    assert said[0] == "ID When Who What"
    assert said[1] == "1 just now ann replay 2 deliveries (1, 2)"
    assert said[2] == "billing is back"


def test_the_audit_log_goes_on_before_an_entry(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1})
    for priority in ("1", "2", "3"):
        shell("delivery", "prioritise", "1", "--priority", priority)

    page = shell("audit", "--limit", "2")
    rest = shell("audit", "--before", "2", "--json")

    assert "Older ones: add --before 2" in page.out
    assert [entry["detail"] for entry in rest.json["entries"]] == ["1"]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_audit_log_is_filtered(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"})
    shell("dlq", "replay", "1", "--by", "ada")
    shell("dlq", "resolve", "2", "--by", "bob", "--why", "phoned")
    shell("destination", "pause", "billing", "--by", "bob", "--why", "broken")
    event = shell("event", "list", "--json").json["events"][0]["id"]

    def actions(*options: str) -> list[str]:
        return [one["action"] for one in shell("audit", "--json", *options).json["entries"]]

    assert actions("--by", "bob") == ["pause", "resolve"]
    assert actions("--action", "replay") == ["replay"]
    assert actions("--target", "1") == ["replay"]
    assert actions("--target", event) == ["resolve"]
    assert actions("--target", "billing") == ["pause"]
    assert actions("--since", "1h") == ["pause", "resolve", "replay"]
    assert actions("--until", "1h") == []
    assert shell("audit", "--by", "nobody").out == "No entry fits.\n"


def test_an_empty_audit_log_says_so(shell: Shell, shop: Shop) -> None:
    assert shell("audit").out == "Nobody has changed anything yet.\n"
    assert json.loads(shell("audit", "--json").out) == {"entries": []}


@pytest.mark.parametrize(
    ("answer", "shown"), [({"invoice": 7}, '"invoice": 7'), ("x" * 70_000, "It was not kept.")]
)
def test_what_a_handler_returned_is_part_of_the_story(
    answer: object, shown: str, shell: Shell, shop: Shop
) -> None:
    async def deliver() -> None:
        app = Redrive(shop.url)
        app.handler("stock.*", name="stock", keep_result=True)(lambda _: answer)
        async with app:
            await app.publish("stock.low")
            await app.drain()

    asyncio.run(deliver())

    said = shell("delivery", "show", "1").out
    assert "Result" in said
    assert shown in said
