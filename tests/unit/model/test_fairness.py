"""Fairness as it is written down: turns, weights and rates of tenants."""

from typing import Any

import msgspec
import pytest

from redrive.errors import ConfigurationError
from redrive.model.fairness import Fairness
from redrive.model.limits import Rate


def test_the_first_pattern_that_fits_a_tenant_counts() -> None:
    fairness = Fairness(
        turn=2,
        weights={"gold-1": 5, "gold-*": 3, "*": 1},
        rate="9/s",
        rates={"noisy": "5/s", "free-*": None},
    )

    turns = [fairness.turn_of(one) for one in ("gold-1", "gold-2", "other", "")]
    assert turns == [10, 6, 2, 2]
    assert fairness.rate_of("noisy") == Rate(per_second=5)
    assert fairness.rate_of("free-7") is None
    assert fairness.rate_of("") == Rate(per_second=9)


def test_it_is_the_same_after_a_way_through_the_store() -> None:
    fairness = Fairness(turn=5, weights={"a": 3}, rates={"b": "30/m", "c": None})

    assert msgspec.json.decode(msgspec.json.encode(fairness), type=Fairness) == fairness
    assert msgspec.json.encode(Fairness()) == b"{}"
    assert hash(fairness) == hash(Fairness(turn=5, weights={"a": 3}, rates=fairness.rates))


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"turn": 0}, "turn is 0; .* from 1 to 1,000"),
        ({"turn": True}, "turn is True"),
        ({"weights": ["a"]}, r'weights is \[\'a\'\]; map tenants, .* such as {"acme": 3'),
        ({"weights": {"": 2}}, "weights names a tenant ''"),
        ({"weights": {7: 2}}, "A tenant in weights is 7; it is text"),
        ({"weights": {"a": 0.5}}, "The weight of 'a' is 0.5; .* whole number"),
        ({"rate": "many"}, "rate is 'many'; write how many in how long"),
        ({"rates": {"a": 5}}, "The rate of 'a' is 5; write how many in how long"),
        ({"rates": (("a", "1/s", 3),)}, "rates is .*; map tenants"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(wrong: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        Fairness(**wrong)
