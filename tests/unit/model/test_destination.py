"""Destinations say what they want, and routes find them."""

import pytest

from redrive.errors import ConfigurationError
from redrive.model.destination import Destination, Routes, check_destination_name


def test_a_destination_wants_what_one_of_its_patterns_fits() -> None:
    billing = Destination(name="billing", patterns=("order.*", "refund"))

    assert billing.wants("order.paid")
    assert billing.wants("refund")
    assert not billing.wants("user.created")


def test_routes_find_every_destination_that_wants_a_type_sorted_by_name() -> None:
    routes = Routes(
        3,
        [
            Destination(name="mail", patterns=("order.paid",)),
            Destination(name="archive", patterns=("*",)),
            Destination(name="billing", patterns=("invoice.*",)),
        ],
    )

    assert routes.destinations_for("order.paid") == ("archive", "mail")
    assert routes.destinations_for("order.paid") == ("archive", "mail")


def test_routes_forget_types_that_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts ids into types must not fill the memory of a publisher."""
    monkeypatch.setattr("redrive.model.destination._MOST_REMEMBERED", 3)
    routes = Routes(1, [Destination(name="mail", patterns=("order.*",))])

    for number in range(10):
        assert routes.destinations_for(f"order.{number}") == ("mail",)

    assert routes.destinations_for.cache_info().currsize == 3
    assert routes.destinations_for("order.0") == ("mail",)


@pytest.mark.parametrize("wrong", ["", "a b", "a/b", "x" * 101, "bïlling", None, 7])
def test_a_bad_name_is_refused_with_advice(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match='such as "billing"') as refusal:
        check_destination_name(wrong)

    assert repr(wrong) in str(refusal.value)


def test_a_destination_that_wants_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it would get no event"):
        Destination(name="billing", patterns=())


def test_one_text_in_place_of_the_patterns_is_refused() -> None:
    """Its letters would each be a pattern, and a star among them would fit everything."""
    with pytest.raises(ConfigurationError, match="pass a tuple"):
        Destination(name="billing", patterns="order.*")  # type: ignore[arg-type]


def test_a_destination_checks_its_patterns() -> None:
    with pytest.raises(ConfigurationError, match="The pattern 'order paid'"):
        Destination(name="billing", patterns=("order.*", "order paid"))
