"""Clients at the same time: there is an order that explains what each of them was told."""

from __future__ import annotations

import pytest

from tests.proof.grounds import Ground
from tests.proof.linear import Call, explain, history_of_processes, history_of_tasks

HISTORIES = {"sqlite": 40, "postgres": 8}
on_each_store = pytest.mark.parametrize("ground", HISTORIES, indirect=True)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("ground", "count"), HISTORIES.items(), ids=HISTORIES, indirect=["ground"])
def test_claims_and_settlements_of_four_clients_have_an_order(ground: Ground, count: int) -> None:
    for seed in range(count):
        with ground.fresh() as site:
            calls = history_of_tasks(site, clients=4, steps=6, seed=str(seed))

        assert explain(calls) is not None, calls


@pytest.mark.timeout(120)
@on_each_store
def test_those_of_two_processes_have_an_order(ground: Ground) -> None:
    with ground.fresh() as site:
        calls = history_of_processes(site, processes=2, steps=8, seed="processes")

    assert explain(calls) is not None, calls


def test_two_leases_with_one_token_have_no_order() -> None:
    first = Call(0, 1, 4, "claim", ((7, 1),))
    second = Call(1, 2, 5, "claim", ((7, 1),))

    assert explain([first, second]) is None


def test_a_settlement_that_nobody_leased_has_no_order() -> None:
    lease = Call(0, 1, 2, "claim", ((7, 1),))
    forged = Call(1, 3, 4, "deliver", ((7, 2),), is_accepted=True)

    assert explain([lease, forged]) is None


def test_a_current_lease_that_was_refused_has_no_order() -> None:
    lease = Call(0, 1, 2, "claim", ((7, 1),))
    refused = Call(0, 3, 4, "deliver", ((7, 1),), is_accepted=False)

    assert explain([lease, refused]) is None


def test_calls_at_the_same_time_may_have_happened_in_either_order() -> None:
    """The settlement was answered first, and must have come after the claim."""
    lease = Call(0, 1, 9, "claim", ((7, 1),))
    settled = Call(1, 2, 3, "deliver", ((7, 1),))

    assert explain([settled, lease]) == [lease, settled]


def test_an_answer_before_the_question_of_another_keeps_its_place() -> None:
    settled = Call(1, 1, 2, "deliver", ((7, 1),))
    lease = Call(0, 3, 4, "claim", ((7, 1),))

    assert explain([settled, lease]) is None
