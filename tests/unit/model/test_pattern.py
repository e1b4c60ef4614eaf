"""Patterns are globs of one kind of wildcard."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.pattern import check_pattern, matches


@given(st.text("ab.*", max_size=12), st.text("ab.", max_size=12))
@example("*aba", "aba")
@example("ab*ba", "aba")
@example("a**b", "ab")
@example("*a*a*", "a")
def test_a_pattern_fits_what_a_shell_would_fit(pattern: str, event_type: str) -> None:
    assert matches(pattern, event_type) == fnmatchcase(event_type, pattern)


@pytest.mark.parametrize("event_type", ["order.paid", "order.line.added", "order."])
def test_a_star_stands_for_any_run_of_characters(event_type: str) -> None:
    assert matches("order.*", event_type)


def test_case_matters() -> None:
    assert not matches("order.*", "Order.paid")


@pytest.mark.parametrize("pattern", ["*", "order.*", "*.paid", "order.paid", "a_b-c.D9"])
def test_a_good_pattern_is_returned_as_it_is(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("wrong", ["", "order paid", "order.[ab]", "order.?", "ordér", "a/b", None])
def test_a_bad_pattern_is_refused_with_advice(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r'such as "order\.paid", or use \*') as refusal:
        check_pattern(wrong)

    assert repr(wrong) in str(refusal.value)


@pytest.mark.parametrize("wrong", [7, ["order"], ("order",), b"order"])
def test_a_pattern_that_is_no_text_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="is not one of event types"):
        check_pattern(wrong)
