"""Retention: what guards against a second time is kept as long as there can be one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import ConfigurationError
from redrive.model.retention import Retention

MONTH = timedelta(days=30)


@pytest.mark.parametrize(
    ("inbox", "kept"),
    [(MONTH, 3 * MONTH), (3 * MONTH, 3 * MONTH), (4 * MONTH, 4 * MONTH)],
    ids=["shorter", "equal", "longer"],
)
def test_applied_effects_are_remembered_at_least_as_long_as_keys(
    inbox: timedelta, kept: timedelta
) -> None:
    assert Retention(idempotency=3 * MONTH, inbox=inbox).inbox == kept


def test_events_are_not_outlived_by_their_deliveries() -> None:
    with pytest.raises(ConfigurationError, match="a delivery would outlive its event"):
        Retention(delivered=2 * MONTH)


def test_keys_are_not_outlived_by_their_events() -> None:
    with pytest.raises(ConfigurationError, match="a repeated publish would be stored twice"):
        Retention(events=2 * MONTH)
