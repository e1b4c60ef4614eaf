"""A scripted destination gives the answers it was told to give, and remembers what reached it."""

from __future__ import annotations

import pytest

from redrive import Cancel, ConfigurationError, Redrive, Retry, Snooze, Terminal, Transient
from redrive.testing import Kit, ScriptedDestination
from redrive.testing.scripted import Step

AT_ONCE = Retry(max_attempts=10, base="0s")


def app_with(destination: ScriptedDestination) -> Redrive:
    app = Redrive("memory://")
    app.handler("order.*", retry=AT_ONCE)(destination)
    return app


async def test_it_answers_by_the_script_and_then_ok_for_ever() -> None:
    billing = ScriptedDestination("billing", [Transient("busy"), TimeoutError()])
    app = app_with(billing)
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 1})
        await app.publish("order.paid", {"order": 2})

        tally = await kit.drain(until="1m")

        assert (tally.retried, tally.delivered) == (2, 2)
        assert len(billing.attempts) == 4
        assert sorted(one.payload["order"] for one in billing.received) == [1, 2]


async def test_a_script_may_begin_again() -> None:
    billing = ScriptedDestination("billing", [Transient("busy"), "ok"], repeats=True)
    app = app_with(billing)
    async with Kit(app) as kit:
        for order in range(3):
            await app.publish("order.paid", {"order": order})
            await kit.drain(until="1m")

        assert len(billing.attempts) == 6
        assert len(billing.received) == 3


@pytest.mark.parametrize(
    ("step", "counted"),
    [
        ("ok", "delivered"),
        (Transient("busy"), "retried"),
        (ConnectionError("refused"), "retried"),
        (Terminal("no such customer"), "failed"),
        (Cancel("obsolete"), "failed"),
        (Snooze("5s"), "snoozed"),
    ],
)
async def test_each_kind_of_step_takes_its_real_way(step: Step, counted: str) -> None:
    app = app_with(ScriptedDestination("billing", [step]))
    async with Kit(app) as kit:
        await app.publish("order.paid")

        tally = await kit.drain()

        assert tally.attempts >= 1
        assert getattr(tally, counted) == 1


async def test_the_terms_of_a_declared_destination_hold_for_the_script_in_its_place() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", terminal=(KeyError,))(lambda event: None)
    async with Kit(app) as kit:
        kit.script("billing", [KeyError("iban")])
        await app.publish("order.paid")

        tally = await kit.drain()

        assert tally.failed == 1


def test_a_step_that_is_no_answer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="A script holds 'okay'; each step is"):
        ScriptedDestination("billing", ["okay"])  # type: ignore[list-item]
