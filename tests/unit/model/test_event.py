"""A new event refuses what could not be stored or routed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.errors import ConfigurationError
from redrive.model.event import NewEvent, Severity


def test_an_event_needs_only_a_type() -> None:
    event = NewEvent(type="order.paid")

    assert event.payload is None
    assert event.severity is Severity.INFO


@pytest.mark.parametrize("wrong", ["", "order paid", "order.*", "x" * 201, None, 7])
def test_a_bad_type_is_refused_with_advice(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r'such as "order\.paid"') as refusal:
        NewEvent(type=wrong)  # type: ignore[arg-type]

    assert repr(wrong) in str(refusal.value)


@pytest.mark.parametrize("name", ["key", "tenant", "source", "idempotency_key", "generation"])
@pytest.mark.parametrize("wrong", ["x" * 201, "a\x00b", 7])
def test_a_bad_text_is_refused_by_name(name: str, wrong: object) -> None:
    fields: dict[str, Any] = {name: wrong}

    with pytest.raises(ConfigurationError, match=f"{name} is .* at most 200 characters"):
        NewEvent(type="order.paid", **fields)


@pytest.mark.parametrize("name", ["occurred_at", "deadline", "due"])
@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "2026-01-01", 1])  # noqa: DTZ001 - the point
def test_an_instant_without_a_time_zone_is_refused_by_name(name: str, wrong: object) -> None:
    fields: dict[str, Any] = {name: wrong}

    with pytest.raises(ConfigurationError, match=f"{name} is .*pass an aware datetime"):
        NewEvent(type="order.paid", **fields)


def test_an_aware_instant_is_taken() -> None:
    deadline = datetime(2026, 1, 1, tzinfo=UTC)

    assert NewEvent(type="order.paid", deadline=deadline).deadline == deadline


@pytest.mark.parametrize("wrong", [{"a": 1}, {1: "a"}, [("a", "b")]])
def test_headers_map_text_to_text(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="text to text"):
        NewEvent(type="order.paid", headers=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-101, 101, 1.5, "high"])
def test_a_priority_is_a_whole_number_between_bounds(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="from -100 to 100"):
        NewEvent(type="order.paid", priority=wrong)  # type: ignore[arg-type]


def test_an_unknown_severity_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="one of debug, info, warning, error, critical"):
        NewEvent(type="order.paid", severity="fatal")  # type: ignore[arg-type]
