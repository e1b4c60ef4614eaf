"""The terms of a destination check themselves and pick the retry of an event type."""

from datetime import timedelta
from typing import Any

import pytest

from redrive.errors import ConfigurationError
from redrive.policies.retry import Retry
from redrive.policies.terms import Terms


def test_a_destination_is_served_on_sensible_terms_by_default() -> None:
    terms = Terms()

    assert terms.retry == Retry()
    assert terms.timeout == timedelta(seconds=30)
    assert terms.concurrency is None
    assert terms.snooze_limit == 100
    assert terms.snooze_age == timedelta(days=7)


def test_durations_may_be_text() -> None:
    terms = Terms(timeout="1500ms", snooze_age="2d")

    assert terms.timeout == timedelta(seconds=1.5)
    assert terms.snooze_age == timedelta(days=2)


def test_the_first_override_that_fits_the_type_wins() -> None:
    often, seldom = Retry(max_attempts=9), Retry(max_attempts=2)
    terms = Terms(retry_overrides=(("order.paid", often), ("order.*", seldom)))

    assert terms.retry_for("order.paid") is often
    assert terms.retry_for("order.shipped") is seldom
    assert terms.retry_for("user.created") is terms.retry


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"retry": "mail"}, r"retry is 'mail'; pass a Retry, such as .*preset"),
        ({"retry_overrides": {"order.*": Retry()}}, "pass pairs of a pattern and a Retry"),
        ({"retry_overrides": ("order.*",)}, "each is a pair"),
        ({"retry_overrides": (("order paid", Retry()),)}, "The pattern 'order paid'"),
        ({"retry_overrides": (("order.*", 5),)}, r"The retry for 'order\.\*' is 5"),
        ({"timeout": "0s"}, "timeout is 0s, which ends every attempt"),
        ({"timeout": 30}, "timeout is 30, which is not a duration"),
        ({"timeout": timedelta(seconds=-1)}, "cannot be negative"),
        ({"concurrency": 0}, "concurrency is 0.*write 1 or more"),
        ({"concurrency": True}, "concurrency is True"),
        ({"concurrency": 1.5}, r"concurrency is 1\.5"),
        ({"terminal": KeyError}, r"terminal is .*such as \(KeyError,\)"),
        ({"terminal": ("KeyError",)}, "a tuple of exception classes"),
        ({"transient": (int,)}, "transient is"),
        ({"snooze_limit": -1}, "snooze_limit is -1.*0 for never"),
        ({"snooze_age": "long"}, "snooze_age is 'long'"),
    ],
)
def test_wrong_terms_are_refused_with_advice(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        Terms(**options)
