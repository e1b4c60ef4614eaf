"""Destinations: what holds them, pauses, and breakers by hand."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from redrive import Breaker, HealthCheck, Redrive, SharedRate, Transient
from redrive.cli.session import current_user
from tests.cli.shell import Shell, Shop


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def declare_gateway(shop: Shop) -> None:
    """Add a destination with every limit there is, which is down."""

    async def work(app: Redrive) -> None:
        @app.handler(
            "parcel.*",
            name="gateway",
            breaker=Breaker(failures=1, rate=0.5, open_for="1h"),
            rate="30/m",
            retry_budget=0.1,
            concurrency=2,
        )
        async def send(event: object) -> None:
            raise Transient("no route to host")

        await app.close()
        await app.publish("parcel.sent", 1)

    shop.do(work)


def break_gateway(shop: Shop) -> None:
    async def work(app: Redrive) -> None:
        @app.handler("parcel.*", name="gateway", breaker=Breaker(failures=1, open_for="1h"))
        async def send(event: object) -> None:
            raise Transient("no route to host")

        await app.close()
        await app.publish("parcel.sent", 1)
        await app.drain()

    shop.do(work)


def test_destinations_are_listed_with_their_limits(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)
    shell.narrow(80)

    said = lines(shell("destination", "list").out)

    assert said[0] == "Destination Breaker Held Limits"
    assert said[1] == "billing - - retries 100/s · replays 100/s"
    assert said[2] == "order.*"
    assert said[3] == "gateway closed - rate 30/m · retries 100/s · replays 100/s · budget"
    assert said[4] == "parcel.* 10% · 2 at once"


def test_a_paused_destination_is_listed_with_who_and_why(shell: Shell, shop: Shop) -> None:
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")

    said = " ".join(lines(shell("destination", "list").out))

    assert "billing - paused" in said
    assert re.search("paused by ann, (just now|. s ago): they migrate", said)


def test_destinations_are_json_for_programs(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)
    shell("destination", "pause", "gateway", "--why", "they migrate", "--by", "ann")

    _, gateway, _ = shell("destination", "list", "--json").json["destinations"]

    assert (gateway["name"], gateway["patterns"]) == ("gateway", ["parcel.*"])
    assert gateway["limits"]["rate"] == {"per_second": 0.5, "burst": 1.0}
    assert (gateway["hold"], gateway["until"]) == ("paused", None)
    assert gateway["gate"]["pause"]["by"] == "ann"


def test_a_store_without_destinations_says_so(shell: Shell) -> None:
    shell("init", "--store", "sqlite:///new.db")

    for group in ("destination", "breaker"):
        answer = shell(group, "list", "--store", "sqlite:///new.db")
        assert answer.out.startswith("No destination yet;")


def test_a_paused_destination_delivers_nothing_until_it_is_resumed(
    shell: Shell, shop: Shop
) -> None:
    paused = shell("destination", "pause", "billing", "--why", "they migrate")
    shop.deliver({"order": 1})
    held = shell("delivery", "show", "1", "--json").json["delivery"]

    resumed = shell("destination", "resume", "billing")
    shop.deliver()

    assert (paused.code, paused.out) == (0, "Paused billing.\n")
    assert (held["status"], held["attempts"]) == ("pending", 0)
    assert resumed.code == 0
    assert resumed.out == "Resumed billing; what has waited goes out at the pace of retries.\n"
    assert shell("delivery", "show", "1", "--json").json["delivery"]["status"] == "delivered"


def test_what_is_paused_already_is_left_as_it_is(shell: Shell, shop: Shop) -> None:
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")

    again = shell("destination", "pause", "billing", "--why", "me too", "--by", "bob")
    as_json = shell("destination", "pause", "billing", "--why", "me too", "--json")

    assert (again.code, again.out) == (1, "billing was paused already.\n")
    assert (as_json.code, as_json.json) == (1, {"changed": [], "unchanged": ["billing"]})
    assert "paused by ann" in shell("destination", "list").out


def test_what_is_not_paused_cannot_be_resumed(shell: Shell, shop: Shop) -> None:
    answer = shell("destination", "resume", "billing")

    assert (answer.code, answer.out) == (1, "billing was not paused.\n")


def test_breakers_are_listed_with_what_happens_next(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)

    said = lines(shell("breaker", "list").out)

    assert said[0] == "Destination State Since Next"
    assert said[1] == "billing - - no breaker"
    assert said[2].startswith("gateway closed - opens after 1 failure in a row, or when 50% of")


def test_an_open_breaker_is_listed_until_it_is_tried_again(shell: Shell, shop: Shop) -> None:
    break_gateway(shop)

    said = lines(shell("breaker", "list").out)
    gateway = shell("breaker", "list", "--json").json["breakers"][1]

    assert any(line.startswith("gateway open ") for line in said)
    assert any("tried again in 59 min; last failure" in line for line in said)
    assert (gateway["destination"], gateway["state"]["type"]) == ("gateway", "open")
    assert gateway["breaker"]["failures"] == 1


def test_a_breaker_is_opened_by_hand_for_a_while(shell: Shell, shop: Shop) -> None:
    answer = shell("breaker", "open", "billing", "--for", "5m", "--why", "their deploy")

    assert (answer.code, answer.out) == (
        0,
        "The breaker of billing is open; the next try is in 4 min.\n",
    )
    assert "tried again in 4 min" in shell("breaker", "list").out


def test_a_breaker_is_opened_by_hand_until_it_is_reset(shell: Shell, shop: Shop) -> None:
    opened = shell("breaker", "open", "billing", "--why", "their deploy")
    listed = shell("breaker", "list").out
    reset = shell("breaker", "reset", "billing", "--why", "they are done")

    assert opened.out == "The breaker of billing is open, until it is reset.\n"
    assert "open until it is reset" in listed
    assert (reset.code, reset.out) == (0, "The breaker of billing is closed.\n")


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_all_breakers_are_reset_at_once(shell: Shell, shop: Shop) -> None:
    calm = shell("breaker", "reset", "--all", "--why", "our network is back")
    for name in ("billing", "mail"):
        shell("breaker", "open", name, "--why", "our network")

    reset = shell("breaker", "reset", "--all", "--why", "our network is back")

    assert calm.out == "All breakers are closed, so nothing was changed.\n"
    assert lines(reset.out) == [
        "The breaker of billing is closed.",
        "The breaker of mail is closed.",
    ]
    neither = shell("breaker", "reset", "--why", "x")
    both = shell("breaker", "reset", "billing", "--all", "--why", "x")
    for wrong in (neither, both):
        assert (wrong.code, wrong.out) == (2, "")
        assert "or say --all" in wrong.err


def test_a_change_of_a_breaker_is_json_for_programs(shell: Shell, shop: Shop) -> None:
    change = shell(
        "breaker", "open", "billing", "--why", "their deploy", "--for", "2100-01-01", "--json"
    ).json

    assert (change["destination"], change["before"]["type"]) == ("billing", "closed")
    assert change["after"]["until"] == "2100-01-01T00:00:00Z"


def test_the_audit_log_tells_what_was_done_to_destinations(shell: Shell, shop: Shop) -> None:
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")
    shell("destination", "resume", "billing")
    shell("breaker", "open", "mail", "--why", "their deploy", "--by", "ann")
    shell("breaker", "reset", "mail", "--why", "they are done", "--by", "ann")

    said = [re.sub(r"^\d+ (just now|\d+ s ago) ", "", line) for line in lines(shell("audit").out)]

    assert said[1:] == [
        "ann reset breaker mail",
        "they are done",
        "ann open breaker mail",
        "their deploy",
        f"{current_user()} resume billing",
        "ann pause billing",
        "they migrate",
    ]


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (["destination", "pause", "billing", "--why", "they migrate"], "paused"),
        (["breaker", "open", "billing", "--why", "their deploy"], "breaker open"),
    ],
)
def test_the_status_says_why_a_destination_is_held_and_how_much_of_it(
    act: Sequence[str], word: str, shell: Shell, shop: Shop
) -> None:
    shop.publish({"order": 1})
    shell(*act)

    said = lines(shell("status").out)

    [billing] = [number for number, line in enumerate(said) if line.startswith("billing ")]
    assert said[billing + 1] == f"{word}, 1 held"
    assert said[billing + 2].startswith("mail ")


def test_the_status_names_a_limit_only_when_something_waits_for_it(
    shell: Shell, shop: Shop
) -> None:
    async def work(app: Redrive) -> None:
        app.handler("parcel.*", name="gateway", rate="1/d")(print)
        await app.close()
        await app.publish("parcel.sent", 1)
        await app.drain()

    shop.do(work)
    calm = lines(shell("status").out)
    shell("publish", "parcel.sent", "2")

    assert "rate limit" not in " ".join(calm)
    assert "rate limit, 1 held" in lines(shell("status").out)


def test_the_status_has_the_gates_for_programs(shell: Shell, shop: Shop) -> None:
    shell("destination", "pause", "billing", "--why", "they migrate")

    gates = shell("status", "--json").json["gates"]

    assert [(one["destination"], one["hold"]) for one in gates] == [
        ("billing", "paused"),
        ("mail", None),
    ]


def test_pauses_and_open_breakers_need_attention(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, due=datetime.now(UTC) - timedelta(minutes=5))
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")
    shell("breaker", "open", "mail", "--why", "their deploy")

    said = " ".join(lines(shell("doctor").out))

    assert "billing was paused by ann" in said
    assert "because: they migrate. 1 delivery waits." in said
    assert "Let it go on with: redrive destination resume billing" in said
    assert "The breaker of mail is open, until somebody resets it. 0 deliveries wait." in said
    assert "Close it now with: redrive breaker reset mail --why …" in said


def test_lists_of_destinations_fit_eighty_columns(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)
    shell("destination", "pause", "gateway", "--why", "because " * 30, "--by", "ann")
    shell("breaker", "open", "billing", "--why", "because " * 30)
    shell.narrow(80)

    for arguments in (
        ("destination", "list"),
        ("breaker", "list"),
        ("status",),
        ("audit",),
        ("destination", "--help"),
        ("breaker", "open", "--help"),
    ):
        said = shell(*arguments).out.splitlines()
        assert [line for line in said if len(line) > 80] == []


def stop_a_lane(shop: Shop) -> None:
    """Let the first of three events of one key fail for good."""

    async def work(app: Redrive) -> None:
        @app.handler("account.*", name="ledger", order="park", terminal=(ValueError,))
        async def book(event: object) -> None:
            raise ValueError("overdrawn")

        await app.close()
        for number in range(3):
            await app.publish("account.changed", number, key="ann")
        await app.drain()

    shop.do(work)


def test_keys_that_wait_behind_a_dead_letter_are_listed(shell: Shell, shop: Shop) -> None:
    assert shell("destination", "lanes").out == "No key waits behind a dead letter.\n"
    stop_a_lane(shop)

    told = lines(shell("destination", "lanes").out)

    assert any(
        re.fullmatch(r"ledger ann \d+ \(terminal\) 2 .*", line.strip("│ ")) for line in told
    ), told
    [lane] = shell("destination", "lanes", "--json").json["lanes"]
    assert (lane["destination"], lane["key"], lane["waiting"]) == ("ledger", "ann", 2)


def test_a_breaker_says_when_its_health_is_asked_for_next(shell: Shell, shop: Shop) -> None:
    async def work(app: Redrive) -> None:
        @app.handler(
            "parcel.*",
            name="gateway",
            breaker=Breaker(failures=1, open_for="1h", on_open="dead_letter"),
            health=HealthCheck(print, every="30m"),
            over_retry_rate="dead_letter",
        )
        async def send(event: object) -> None:
            raise Transient("no route to host")

        await app.close()
        await app.publish("parcel.sent", 1)
        await app.drain()

    shop.do(work)

    breakers = " ".join(shell("breaker", "list").out.split())
    limits = " ".join(shell("destination", "list").out.split())
    assert "tried again in 59 min, its health asked for in 29 min" in breakers
    assert "above it fail" in limits
    assert "fails while open" in limits


def test_limits_are_set_for_a_while_and_unset(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)
    limits = ("--rate", "10/s", "--concurrency", "5", "--for", "2h")

    was_set = shell("destination", "set", "gateway", *limits, "--why", "they asked", "--by", "ann")
    listed = " ".join(lines(shell("destination", "list").out))
    status = " ".join(lines(shell("status").out))
    [entry] = shell("audit", "--action", "override", "--json").json["entries"]
    unset = shell("destination", "unset", "gateway")
    again = shell("destination", "unset", "gateway")

    assert was_set.code == 0
    assert was_set.out.startswith("gateway keeps to rate 10/s, 5 at once until ")
    assert was_set.out.endswith(" UTC (in 2 h), then as declared.\n")
    assert "rate 10/s, 5 at once set by ann, for 1 h 59 min yet: they asked" in listed
    assert "declared: rate 30/m" in listed
    assert "set: rate 10/s, 5 at once for 1 h 59 min yet" in status
    assert (entry["by"], entry["why"]) == ("ann", "they asked")
    assert (unset.code, unset.out) == (0, "gateway keeps to its declared limits again.\n")
    assert (again.code, again.out) == (1, "No limits were set for gateway.\n")
    assert "set by ann" not in shell("destination", "list").out


def test_set_limits_are_json_for_programs(shell: Shell, shop: Shop) -> None:
    declare_gateway(shop)
    rates = ("--retry-rate", "5/s", "--replay-rate", "1/s")

    was_set = shell("destination", "set", "gateway", *rates, "--for", "1h", "--why", "x", "--json")
    _, gateway, _ = shell("destination", "list", "--json").json["destinations"]
    unset = shell("destination", "unset", "gateway", "--json")

    assert was_set.json == {"destination": "gateway", "override": gateway["override"]}
    assert gateway["limits"]["retry_rate"]["per_second"] == 5
    assert gateway["limits"]["replay_rate"]["per_second"] == 1
    assert gateway["declared"]["retry_rate"]["per_second"] == 100
    assert unset.json == {"changed": ["gateway"], "unchanged": []}


def test_limits_that_cannot_be_set_are_refused(shell: Shell, shop: Shop) -> None:
    nothing = shell("destination", "set", "billing", "--for", "1h", "--why", "x")
    unknown = shell("destination", "set", "biling", "--rate", "1/s", "--for", "1h", "--why", "x")

    assert (nothing.code, unknown.code) == (2, 2)
    assert "Nothing was set; give a rate or a concurrency." in nothing.err
    assert "billing" in unknown.err


def test_a_shared_rate_is_listed(shell: Shell, shop: Shop) -> None:
    async def work(app: Redrive) -> None:
        @app.handler("parcel.*", name="gateway", shared_rate=SharedRate("acme", "100/s"))
        async def send(event: object) -> None: ...

        await app.close()
        await app.publish("parcel.sent", 1)

    shop.do(work)

    assert "shares 100/s of acme" in " ".join(lines(shell("destination", "list").out))
