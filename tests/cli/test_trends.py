"""Trends: what became of deliveries over time, in a terminal."""

from tests.cli.shell import Shell, Shop


def test_each_number_has_its_total_and_its_bars(shell: Shell, shop: Shop) -> None:
    shop.deliver(1, 2, {"error": "boom"})

    said = shell("trends", "billing", "--over", "day").out.splitlines()

    assert said[0] == "billing, the last day"
    rows = {line[:15].strip(): line[15:].split() for line in said[2:]}
    assert rows["Delivered"][0] == "2"
    assert (len(rows["Delivered"][1]), rows["Delivered"][1][-1]) == (36, "█")
    assert rows["Failed"][0] == "1"
    assert rows["Retried"][0] == "-"
    assert rows["95 % of tries"][1] == "ms"


def test_all_together_and_several_at_once(shell: Shell, shop: Shop) -> None:
    shop.deliver(1)
    shop.deliver(1, event_type="letter.sent")

    assert shell("trends").out.startswith("all destinations, the last hour\n")
    both = shell("trends", "billing", "mail", "--json").json["trends"]
    assert [one["destination"] for one in both] == ["billing", "mail"]
    assert sum(one["measure"]["delivered"] for one in both[0]["points"]) == 1


def test_a_wrong_window_or_name_is_one_sentence(shell: Shell, shop: Shop) -> None:
    shop.deliver(1)

    wrong = shell("trends", "--over", "year")
    unknown = shell("trends", "biling")

    assert (wrong.code, unknown.code) == (2, 2)
    assert "A trend goes over one of: hour, day, week; not over 'year'." in wrong.err
    assert "did you mean 'billing'?" in unknown.err
