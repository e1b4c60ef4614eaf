"""Tenants: how they share destinations, and stopping one of them."""

import json
import re
from collections.abc import Sequence

import pytest

from redrive import Fairness, Redrive
from redrive.cli.session import current_user
from tests.cli.shell import Shell, Shop


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_tenants_are_listed_with_what_they_have_and_got(shell: Shell, shop: Shop) -> None:
    shop.deliver(1, 2, tenant="acme")
    shop.publish(3, 4, tenant="acme")
    shop.publish(5)

    said = lines(shell("tenant", "list").out)

    assert said[0] == "Tenant Pending Running Processed Turns"
    assert re.fullmatch(r"acme 2 - 2 served (just now|. s ago), 2 in a row", said[1])
    assert said[2] == "billing"
    assert said[3] == "no tenant 1 - - never served"


def test_tenants_are_json_for_programs(shell: Shell, shop: Shop) -> None:
    shop.deliver(1, tenant="acme")

    [acme] = shell("tenant", "list", "--json").json["tenants"]

    assert (acme["tenant"], acme["destination"], acme["processed"]) == ("acme", "billing", 1)
    assert (acme["rounds_waited"], acme["urgency"], acme["turn"]) == (0, 5, 3)


def test_the_list_is_bounded_and_can_be_narrowed_down(shell: Shell, shop: Shop) -> None:
    for number in range(3):
        shop.publish(number, tenant=f"t{number}")
    shop.publish(1, event_type="letter.sent", tenant="other")

    cut = shell("tenant", "list", "--limit", "2").out
    at_mail = shell("tenant", "list", "--destination", "mail", "--json").json["tenants"]

    assert len(re.findall("never served", cut)) == 2
    assert "a higher --limit shows more" in cut
    assert [one["tenant"] for one in at_mail] == ["other"]


def test_a_store_without_tenants_says_so(shell: Shell, shop: Shop) -> None:
    assert shell("tenant", "list").out.startswith("No tenant yet;")


def test_a_paused_tenant_waits_until_it_is_resumed(shell: Shell, shop: Shop) -> None:
    shop.publish(1, tenant="acme")
    paused = shell("tenant", "pause", "acme", "--why", "they pay late", "--by", "ann")
    shop.deliver(2, tenant="other")
    shown = " ".join(lines(shell("tenant", "list").out))

    resumed = shell("tenant", "resume", "acme")
    shop.deliver()

    assert (paused.code, paused.out) == (0, "Paused acme everywhere.\n")
    assert re.search("paused everywhere by ann, (just now|. s ago): they pay late", shown)
    assert (resumed.code, resumed.out) == (0, "Resumed acme everywhere.\n")
    delivered = shell("delivery", "list", "--status", "delivered", "--json").json
    assert sorted(one["tenant"] for one in delivered["deliveries"]) == ["acme", "other"]


def test_a_tenant_can_be_paused_at_one_destination(shell: Shell, shop: Shop) -> None:
    shop.publish(1, tenant="acme")

    paused = shell("tenant", "pause", "acme", "--destination", "billing", "--why", "x")
    again = shell("tenant", "pause", "acme", "--destination", "billing", "--why", "y")
    everywhere = shell("tenant", "resume", "acme", "--json")

    assert paused.out == "Paused acme at billing.\n"
    assert (again.code, again.out) == (1, "acme at billing was paused already.\n")
    assert (everywhere.code, everywhere.json) == (1, {"changed": [], "unchanged": ["acme"]})
    entry = shell("audit", "--json").json["entries"][0]
    assert (entry["action"], entry["detail"], entry["by"]) == (
        "pause_tenant",
        "acme at billing",
        current_user(),
    )


def test_a_rate_that_holds_a_tenant_is_shown(shell: Shell, shop: Shop) -> None:
    async def work(app: Redrive) -> None:
        @app.handler("parcel.*", name="gateway", fairness=Fairness(rate="1/h"))
        async def send(event: object) -> None: ...

        await app.close()
        for number in range(2):
            await app.publish("parcel.sent", number, tenant="acme")
        await app.drain()

    shop.do(work)

    assert "rate limit, goes on in 59 min" in " ".join(lines(shell("tenant", "list").out))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pause", "acme", "--why", ""], "A reason is needed to pause a tenant; say why."),
        (["pause", "", "--why", "x"], "tenant is ''; name one."),
        (["pause", "acme", "--why", "x", "--destination", "bill"], "did you mean 'billing'?"),
        (["list", "--destination", "nowhere"], "There is no destination 'nowhere'"),
        (["list", "--limit", "0"], "Invalid value for '--limit'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    arguments: Sequence[str], complaint: str, shell: Shell, shop: Shop
) -> None:
    shop.publish(1, tenant="acme")

    answer = shell("tenant", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.err
    assert len(answer.err.splitlines()) <= 2


def test_a_table_of_tenants_fits_eighty_columns_and_commands_no_terminal(
    shell: Shell, shop: Shop
) -> None:
    shop.publish(1, tenant="\x1b[31m" + "t" * 100)
    shell.narrow(80)

    said = shell("tenant", "list").out

    assert "\x1b" not in said
    assert max(len(line) for line in said.splitlines()) <= 80


def test_a_line_break_in_a_tenant_breaks_no_table(shell: Shell, shop: Shop) -> None:
    shop.publish(1, tenant="acme\nbolt  0  0  99\u2028\x85")

    said = shell("tenant", "list").out
    as_json = shell("tenant", "list", "--json").out

    assert "acme\\nbolt  0  0  99\\u2028…" in said.replace("\\x85", "…")
    assert [line for line in said.splitlines() if line.startswith("bolt")] == []
    assert "\x85" not in as_json
    assert json.loads(as_json)["tenants"][0]["tenant"].startswith("acme\nbolt")


def test_the_doctor_names_who_is_paused(shell: Shell, shop: Shop) -> None:
    shop.publish(1, 2, tenant="acme")
    shop.publish(3, tenant="bolt")
    shell("tenant", "pause", "acme", "--by", "ann", "--why", "unpaid")
    shell("tenant", "pause", "bolt", "--by", "bob", "--why", "x", "--destination", "billing")

    said = " ".join(shell("doctor").out.split())

    assert "The tenant acme was paused by ann" in said
    assert "because: unpaid. 2 deliveries wait." in said
    assert "Let it go on with: redrive tenant resume acme" in said
    assert "The tenant bolt was paused at billing by bob" in said
    assert (
        "because: x. 1 delivery waits. Let it go on with: redrive tenant resume bolt --destination"
        in said
    )
