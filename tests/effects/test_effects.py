"""A transactional handler: its effect, the inbox record and the settlement are one commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from redrive import Breaker, Cancel, Event, NewEvent, Query, Redrive, Retry, Snooze, Terminal
from redrive.model.delivery import Delivery, Status
from redrive.model.gate import Closed, Hold, Open
from redrive.model.settlement import FailureReason
from redrive.observer import AlreadyApplied, BreakerChanged, Settlements, SettlementsRefused
from redrive.store import ALREADY_APPLIED
from redrive.testing import Kit
from tests.app.recorder import Recorder
from tests.effects.ledger import Connection, Ledger

AT_ONCE = Retry(max_attempts=3, base="0s", jitter="none")
Deed = Callable[[Event[int], Connection], object]


def billing(
    url: str,
    ledger: Ledger,
    deed: Deed | None = None,
    *,
    keep_inbox: str = "30d",
    **options: object,
) -> Redrive:
    """Return an app whose handler writes the number down, and then does what the test says."""
    app = Redrive(url, keep_inbox=keep_inbox)
    terms: dict[str, Any] = {"retry": AT_ONCE, **options}

    @app.handler("order.*", name="billing", transactional=True, **terms)
    async def bill(event: Event[int], connection: Connection) -> object:
        await ledger.write(connection, event.payload)
        answer = deed(event, connection) if deed is not None else None
        return await answer if asyncio.iscoroutine(answer) else answer

    return app


async def of_status(kit: Kit, status: Status) -> list[Delivery]:
    return list((await kit.operations.deliveries(Query(status=status))).deliveries)


async def test_transactional_commits_the_effect_with_the_delivery(url: str, ledger: Ledger) -> None:
    async def follow_up(event: Event[int], connection: Connection) -> None:
        await app.publish("invoice.sent", event.payload, within=connection)
        assert await ledger.numbers() == Counter()

    app = billing(url, ledger, follow_up)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        tally = await kit.drain()

        assert (tally.delivered, tally.refused) == (1, 0)
        assert await ledger.numbers() == Counter({7: 1})
        kit.assert_published("invoice.sent", payload=7, times=1)
        [delivered] = await of_status(kit, Status.DELIVERED)
        assert delivered.attempts == 1
        assert (await kit.operations.status()).refused_settlements == 0


async def test_an_effect_is_undone_with_every_try_that_fails(url: str, ledger: Ledger) -> None:
    async def stumble(event: Event[int], connection: Connection) -> None:
        await app.publish("invoice.sent", within=connection)
        raise ConnectionError("the bank is away")

    app = billing(url, ledger, stumble)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        tally = await kit.drain()

        assert (tally.retried, tally.failed) == (2, 1)
        assert await ledger.numbers() == Counter()
        assert not kit.published("invoice.sent")
        [letter] = kit.dead_letters()
        assert (letter.reason, letter.attempts) == (FailureReason.EXHAUSTED, 3)
        assert letter.fault is not None
        assert letter.fault.message == "the bank is away"


@pytest.mark.parametrize("answer", [Snooze("1h"), Cancel("not wanted")], ids=["snooze", "cancel"])
async def test_an_effect_is_undone_when_the_handler_puts_it_off(
    url: str, ledger: Ledger, answer: object
) -> None:
    app = billing(url, ledger, lambda event, connection: answer)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        tally = await kit.drain()

        assert await ledger.numbers() == Counter()
        assert (tally.snoozed, tally.failed) == ((1, 0) if isinstance(answer, Snooze) else (0, 1))


async def test_an_effect_is_undone_when_it_takes_too_long(url: str, ledger: Ledger) -> None:
    tries: list[int] = []

    async def hang_once(event: Event[int], connection: Connection) -> None:
        tries.append(event.payload)
        if len(tries) == 1:
            await asyncio.Event().wait()

    app = billing(url, ledger, hang_once, timeout="2s")

    async with app:
        await app.publish("order.paid", 7)
        tally = await app.drain()

        assert (tally.retried, tally.delivered, len(tries)) == (1, 1, 2)
        assert await ledger.numbers() == Counter({7: 1})


async def test_the_effect_of_a_late_worker_is_undone_and_counted(url: str, ledger: Ledger) -> None:
    tries: list[int] = []

    def oversleep(event: Event[int], connection: Connection) -> None:
        tries.append(event.payload)
        if len(tries) == 1:
            kit.clock.advance("15s")  # all of the lease

    app, recorder = billing(url, ledger, oversleep, timeout="5s"), Recorder()
    app.observe(recorder)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        first = await kit.drain()

        assert (first.refused, first.delivered) == (1, 0)
        assert len(recorder.of(SettlementsRefused)) == 1
        assert (await kit.operations.status()).refused_settlements == 1
        assert await ledger.numbers() == Counter()

        # A heartbeat under way may have prolonged the lease once more, so it has to run out.
        delivered = [(await kit.run_for("2m")).delivered for _ in range(3)]
        assert sum(delivered) == 1
        assert await ledger.numbers() == Counter({7: 1})


async def test_what_was_applied_before_is_settled_without_running_it(
    url: str, ledger: Ledger
) -> None:
    app, recorder = billing(url, ledger, keep_inbox="90d"), Recorder()
    app.observe(recorder)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7, source="shop", idempotency_key="order-7")
        await kit.drain()
        kit.clock.advance("45d")  # the key itself is remembered for 30
        await kit.operations.prune()
        await app.publish("order.paid", 7, source="shop", idempotency_key="order-7")
        tally = await kit.drain()

        assert tally.delivered == 1
        assert await ledger.numbers() == Counter({7: 1})
        [fact] = recorder.of(AlreadyApplied)
        assert fact.leased.event.idempotency_key == "order-7"
        assert len(recorder.of(Settlements)) == 2
        [delivered] = await of_status(kit, Status.DELIVERED)
        assert [one.result for one in delivered.log] == [ALREADY_APPLIED]


async def test_keep_inbox_is_how_long_applied_effects_are_remembered(
    url: str, ledger: Ledger
) -> None:
    app = billing(url, ledger, keep_inbox="60d")

    async with Kit(app, store=url) as kit:
        for days in (0, 59, 121):
            kit.clock.advance(timedelta(days=days))
            await kit.operations.prune()
            await app.publish("order.paid", days, idempotency_key="order-7")
            await kit.drain()

        assert await ledger.numbers() == Counter({0: 1, 121: 1})


async def test_an_effect_is_remembered_while_another_event_of_its_key_waits(
    url: str, ledger: Ledger
) -> None:
    app = billing(url, ledger, keep_inbox="60d")

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 1, idempotency_key="order-7")
        await kit.drain()
        kit.clock.advance("45d")  # the key itself is remembered for 30
        await kit.operations.prune()
        await app.publish("order.paid", 2, idempotency_key="order-7", due="60d")
        kit.clock.advance("45d")  # nobody would need the record if nothing waited
        await kit.operations.prune()
        kit.clock.advance("15d")
        tally = await kit.drain()

        assert tally.delivered == 1
        assert await ledger.numbers() == Counter({1: 1})


async def test_what_was_applied_before_says_nothing_of_how_the_destination_is(
    url: str, ledger: Ledger
) -> None:
    def deed(event: Event[int], connection: Connection) -> None:
        if event.payload < 0:
            raise ConnectionError("it is down")

    once, breaker = Retry(max_attempts=1), Breaker(failures=2)
    app = billing(url, ledger, deed, keep_inbox="60d", retry=once, breaker=breaker)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7, idempotency_key="order-7")
        await kit.drain()
        kit.clock.advance("45d")
        await kit.operations.prune()
        for number, key in ((-1, None), (7, "order-7"), (-2, None)):
            await app.publish("order.paid", number, idempotency_key=key)
            await kit.drain()

        [gate] = await kit.operations.gates()
        assert gate.hold is Hold.BREAKER_OPEN


async def test_every_destination_of_an_event_has_its_own_effect(url: str, ledger: Ledger) -> None:
    app = billing(url, ledger)

    @app.handler("order.*", name="mailing", transactional=True)
    async def mail(event: Event[int], connection: Connection) -> None:
        await ledger.write(connection, -event.payload)

    @app.handler("order.*", name="counting")
    async def count(event: Event[int]) -> None:
        plain.append(event.payload)

    plain: list[int] = []
    async with app:
        await app.publish_many([NewEvent(type="order.paid", payload=one) for one in range(1, 31)])
        tally = await app.drain()

        assert (tally.delivered, tally.refused) == (90, 0)
        assert await ledger.numbers() == Counter([*range(1, 31), *range(-30, 0)])
        assert sorted(plain) == list(range(1, 31))


async def test_order_holds_for_effects(url: str, ledger: Ledger) -> None:
    seen: list[int] = []
    app = billing(url, ledger, lambda event, connection: seen.append(event.payload), order="park")

    async with app:
        await app.publish_many(
            [NewEvent(type="order.paid", payload=one, key=f"k{one % 2}") for one in range(10)]
        )
        assert (await app.drain()).delivered == 10

        assert [one for one in seen if one % 2] == [1, 3, 5, 7, 9]
        assert [one for one in seen if not one % 2] == [0, 2, 4, 6, 8]


async def test_a_breaker_counts_effects_like_other_deliveries(url: str, ledger: Ledger) -> None:
    is_well: list[bool] = []

    def answer(event: Event[int], connection: Connection) -> None:
        if not is_well:
            raise ConnectionError("down")

    app, recorder = (
        billing(url, ledger, answer, breaker=Breaker(failures=2, open_for="10s", successes=1)),
        Recorder(),
    )
    app.observe(recorder)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        await kit.drain()
        is_well.append(True)
        await kit.run_for("2m")

        states = [type(fact.change.after) for fact in recorder.of(BreakerChanged)]
        assert (states[0], states[-1]) == (Open, Closed)
        assert await ledger.numbers() == Counter({7: 1})


async def test_a_handler_that_commits_by_itself_is_told_to_leave_it(
    url: str, ledger: Ledger
) -> None:
    async def commit(event: Event[int], connection: Connection) -> None:
        answer = connection.execute("COMMIT")
        if not ledger.is_sqlite:
            await answer

    app = billing(url, ledger, commit, retry=Retry(max_attempts=1))

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        await kit.drain()

        [letter] = kit.dead_letters()
        assert letter.fault is not None
        assert "has ended the transaction that it was handed" in letter.fault.message


async def test_a_terminal_failure_leaves_nothing_and_a_replay_applies_once(
    url: str, ledger: Ledger
) -> None:
    is_mended: list[bool] = []

    def refuse(event: Event[int], connection: Connection) -> None:
        if not is_mended:
            raise Terminal("no such account")

    app = billing(url, ledger, refuse)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", 7)
        await kit.drain()
        assert await ledger.numbers() == Counter()
        is_mended.append(True)
        [letter] = kit.dead_letters()
        await kit.operations.replay([letter.id], by="ada", why="mended")
        await kit.drain()

        assert await ledger.numbers() == Counter({7: 1})
        assert not kit.dead_letters()


async def test_a_worker_that_quits_undoes_what_runs_and_gives_it_back(
    url: str, ledger: Ledger
) -> None:
    begun = asyncio.Event()
    tries: list[int] = []

    async def hang_once(event: Event[int], connection: Connection) -> None:
        tries.append(event.payload)
        if len(tries) == 1:
            begun.set()
            await asyncio.Event().wait()

    app = billing(url, ledger, hang_once)

    async with app:
        await app.publish("order.paid", 7)
        async with app.worker() as worker:
            await begun.wait()
            worker.quit()
        assert await ledger.numbers() == Counter()

        assert (await app.drain()).delivered == 1
        assert await ledger.numbers() == Counter({7: 1})
        [delivered] = (await app.operations.deliveries(Query(status=Status.DELIVERED))).deliveries
        assert (delivered.attempts, delivered.crashes) == (1, 0)


async def test_a_typed_payload_that_does_not_fit_is_terminal(url: str, ledger: Ledger) -> None:
    app = billing(url, ledger)

    async with Kit(app, store=url) as kit:
        await app.publish("order.paid", "seven")
        await kit.drain()

        [letter] = kit.dead_letters()
        assert letter.reason is FailureReason.TERMINAL
