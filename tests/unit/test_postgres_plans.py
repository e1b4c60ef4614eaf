"""Plans of the server that have become slow are made anew, and not over and over."""

from __future__ import annotations

from redrive.stores.postgres.plans import Plans


def test_a_quick_transaction_keeps_its_plans() -> None:
    plans = Plans()

    plans.took(7, 0.05, now=10)

    assert not plans.renew(7, now=11)


def test_a_slow_transaction_has_its_connection_plan_anew_once() -> None:
    plans = Plans()

    plans.took(7, 0.5, now=10)

    assert not plans.renew(8, now=11)
    assert plans.renew(7, now=11)
    assert not plans.renew(7, now=11)


def test_what_stays_slow_is_planned_anew_now_and_then() -> None:
    """It may be slow for other reasons; planning each time would make it slower."""
    plans = Plans()
    renewed = []
    for tenth in range(100, 160):
        plans.took(7, 0.5, now=tenth / 10)
        renewed.append(plans.renew(7, now=tenth / 10))

    assert sum(renewed) == 3


def test_connections_that_are_gone_are_not_remembered_for_ever() -> None:
    plans = Plans()
    for process in range(1_000):
        plans.took(process, 0.5, now=process)
        plans.renew(process, now=process)

    assert len(plans._renewed) <= 100  # noqa: SLF001 - nobody sees it from outside
