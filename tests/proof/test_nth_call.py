"""Whichever call of a store fails, nothing is lost, and whoever asks again gets through."""

from __future__ import annotations

import pytest

from tests.proof.canonical import Lot, Tampering
from tests.proof.grounds import Ground
from tests.proof.nth import check, prove_every_call, prove_every_write


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ground", ["sqlite"], indirect=True)
def test_any_call_may_fail_before_or_after_it_took_effect(ground: Ground) -> None:
    """Every third here; `make prove` tries each."""
    assert prove_every_call(ground, every=3) > 70


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ground", ["sqlite"], indirect=True)
def test_any_write_to_the_disk_may_fail(ground: Ground) -> None:
    """Every fifteenth here; `make prove` tries each."""
    assert prove_every_write(ground, every=15) > 13


async def test_the_count_of_calls_is_of_those_that_matter() -> None:
    tampering = Tampering(2)
    calls: list[int] = []

    async def call() -> None:
        calls.append(1)

    await tampering.call("append", call)
    with pytest.raises(Exception, match=r"^The store failed: this call was chosen to\.$"):
        await tampering.call("claim", call)

    assert (tampering.calls, tampering.failed, calls) == (["append", "claim"], "claim", [1])


def test_a_run_that_lost_something_is_rejected() -> None:
    with pytest.raises(AssertionError):
        check(Lot())
