"""Destinations say what they want, and routes find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.destination import Destination, Routes, check_destination_name
from redrive.model.pattern import matches


def test_a_destination_wants_what_one_of_its_patterns_fits() -> None:
    billing = Destination(name="billing", patterns=("order.*", "refund"))

    assert billing.wants("order.paid", None)
    assert billing.wants("refund", None)
    assert not billing.wants("user.created", None)


def test_routes_find_every_destination_that_wants_a_type_sorted_by_name() -> None:
    routes = Routes(
        3,
        [
            Destination(name="mail", patterns=("order.paid",)),
            Destination(name="archive", patterns=("*",)),
            Destination(name="billing", patterns=("invoice.*",)),
        ],
    )

    assert routes.destinations_for("order.paid", None) == ("archive", "mail")
    assert routes.destinations_for("order.paid", None) == ("archive", "mail")


def test_a_destination_of_a_tenant_wants_no_other_events() -> None:
    acme = Destination(name="acme", patterns=("order.*",), tenant="acme")
    gold = Destination(name="gold", patterns=("order.*",), tenant="gold-*")

    assert acme.wants("order.paid", "acme")
    assert not acme.wants("order.paid", "acme-2")
    assert not acme.wants("order.paid", None)
    assert not acme.wants("user.created", "acme")
    assert gold.wants("order.paid", "gold-7")
    assert not gold.wants("order.paid", "golden")


def test_a_destination_of_a_tenant_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="belongs to a tenant ''; write a name"):
        Destination(name="acme", patterns=("order.*",), tenant="")


_PATTERNS = st.sampled_from(["*", "order.*", "order.paid", "*.paid", "or*paid", "a*", "user"])
_TENANTS = st.sampled_from([None, "acme", "gold-*", "*", "*-7", "go*7"])


@given(
    st.lists(st.tuples(st.lists(_PATTERNS, min_size=1), _TENANTS), max_size=8),
    st.sampled_from(["order.paid", "order.", "order", "user", "a", "zebra"]),
    st.sampled_from([None, "acme", "gold-7", "gold-", "go7", "other"]),
)
def test_routes_find_exactly_who_wants_an_event(
    wanted: list[tuple[list[str], str | None]], event_type: str, tenant: str | None
) -> None:
    destinations = [
        Destination(name=f"d{number}", patterns=tuple(patterns), tenant=owner)
        for number, (patterns, owner) in enumerate(wanted)
    ]

    found = Routes(1, destinations).destinations_for(event_type, tenant)

    assert found == tuple(one.name for one in destinations if one.wants(event_type, tenant))


def test_routes_try_only_patterns_that_begin_as_the_type_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many destinations there are, an event costs what those cost that may want it."""
    tried: list[str] = []

    def count(pattern: str, text: str) -> bool:
        tried.append(pattern)
        return matches(pattern, text)

    monkeypatch.setattr("redrive.model.pattern.matches", count)
    monkeypatch.setattr("redrive.model.destination.matches", count)
    many = [
        Destination(name=f"d{number}", patterns=(f"type{number}.*",)) for number in range(1_000)
    ]
    many += [
        Destination(name=f"t{number}", patterns=("order.*",), tenant=f"tenant-{number}")
        for number in range(1_000)
    ]

    many += [
        Destination(name=f"u{number}", patterns=(f"type{number}.*",), tenant="tenant-with-many")
        for number in range(1_000)
    ]
    routes = Routes(1, many)

    assert routes.destinations_for("order.paid", "tenant-7") == ("t7",)
    assert routes.destinations_for("order.paid", "tenant-with-many") == ()
    assert [one for one in tried if "tenant" not in one] == ["order.*"]


def test_routes_forget_types_that_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts ids into types must not fill the memory of a publisher."""
    monkeypatch.setattr("redrive.model.destination._MOST_REMEMBERED", 3)
    routes = Routes(1, [Destination(name="mail", patterns=("order.*",))])

    for number in range(10):
        assert routes.destinations_for(f"order.{number}", None) == ("mail",)

    assert routes.found_for.cache_info().currsize == 3
    assert routes.destinations_for("order.0", None) == ("mail",)


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
