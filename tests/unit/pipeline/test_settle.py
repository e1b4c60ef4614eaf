"""What a try tells of its destination, beside what it means for its delivery."""

import pytest

from redrive.model.outcome import Succeeded
from redrive.model.settlement import Delivered
from redrive.observer import Observers
from redrive.pipeline.settle import Settler
from redrive.policies.terms import Terms
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import SeededRng
from tests.unit.policies.leases import leased


@pytest.mark.parametrize(
    ("outcome", "is_success"), [(Succeeded(), True), (Succeeded(is_sent=False), None)]
)
def test_what_was_never_sent_says_nothing_of_its_destination(
    outcome: Succeeded, is_success: object
) -> None:
    clock = FakeClock()
    settler = Settler(
        store=MemoryStore(clock=clock),
        worker="w",
        rng=SeededRng(),
        observer=Observers(),
        is_reported=lambda _: True,
    )

    decision = settler.decide(leased(), outcome, Terms(), waited=0, took=0)

    assert (decision.settled.settlement, decision.is_success) == (Delivered(), is_success)
