"""Every store does what the model says, whatever happens to it; the machine finds broken ones."""

from __future__ import annotations

import pytest

from tests.proof.contract import prove_contract
from tests.proof.grounds import Ground, Memory
from tests.stores import mutants

SIZES = {"memory": (60, 40), "sqlite": (100, 50), "postgres": (60, 40)}
"""How many examples of how many steps: many where they are cheap."""
WAYS = ("statement", "steps")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ground", "size"), SIZES.items(), ids=SIZES, indirect=["ground"])
def test_a_store_does_what_the_model_says(ground: Ground, size: tuple[int, int]) -> None:
    examples, steps = size

    prove_contract(ground, examples=examples, steps=steps)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
def test_a_store_does_it_in_every_way_it_has(ground: Ground) -> None:
    """Single statements do what leaves nothing to decide; what is never taken is not proved."""
    prove_contract(ground, examples=20, steps=40, is_plain=True)

    ways = {f"{act}: {way}" for act in ("append", "claim", "settle") for way in WAYS}
    assert not {one for one in ways if not ground.ways[one]}, ground.ways


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.AcceptsStaleTokens,
        mutants.SettlesTwice,
        mutants.ClaimsTwice,
        mutants.IgnoresLanes,
        mutants.IgnoresTheDueTime,
        mutants.ForgetsIdempotencyKeys,
        mutants.StoresHalfABatch,
        mutants.SnoozesSpendAttempts,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_machine_finds_a_store_that(mutant: type[mutants.Mutant]) -> None:
    with pytest.raises(AssertionError):
        prove_contract(Memory(mutant), examples=400, steps=40)
