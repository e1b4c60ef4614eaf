"""What a handler may answer checks itself."""

from datetime import timedelta

import pytest

from redrive.errors import ConfigurationError
from redrive.model.outcome import Cancel, Snooze


@pytest.mark.parametrize("wait", ["5m", timedelta(minutes=5)])
def test_a_snooze_takes_any_duration(wait: timedelta | str) -> None:
    assert Snooze(wait).span == timedelta(minutes=5)


@pytest.mark.parametrize("wrong", ["soon", 5, None, timedelta(seconds=-1)])
def test_a_snooze_of_no_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="Snooze is"):
        Snooze(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_a_cancel_needs_a_reason(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="say why"):
        Cancel(wrong)  # type: ignore[arg-type]
