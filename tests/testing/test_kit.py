"""The kit is honest: the app's own code runs, on a clock that obeys, and leaves no trace."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    DeadLettered,
    Event,
    Fairness,
    Query,
    Rate,
    Redrive,
    Retry,
    Snooze,
    Terminal,
    Transient,
    UsageError,
)
from redrive.model.delivery import Status
from redrive.store import Allowance, ClaimRequest
from redrive.testing import Kit
from redrive.testing.kit import ConnectKit

PATIENT = Retry(max_attempts=4, base="1m", cap="1h", jitter="none")


def shop(store: str = "memory://") -> Redrive:
    """An app whose handler publishes in its turn, as an application's own would."""
    app = Redrive(store)

    @app.handler("order.*", name="billing", retry=PATIENT)
    async def bill(event: Event[Any]) -> None:
        await app.publish("invoice.sent", event.payload, key=event.key)

    return app


async def test_drain_delivers_what_is_due_and_counts_it() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 1})
        await app.publish("order.paid", {"order": 2})

        tally = await kit.drain()

        assert tally.delivered == 2
        assert len(kit.published("invoice.sent")) == 2


async def test_each_drain_counts_only_its_own() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        tally = await kit.drain()

        assert tally.attempts == 0


async def test_drain_leaves_what_is_not_due_yet() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", due="5m")

        before = await kit.drain()
        kit.clock.advance("5m")
        after = await kit.drain()

        assert (before.delivered, after.delivered) == (0, 1)


async def test_drain_until_goes_from_one_due_time_to_the_next() -> None:
    app = shop()
    async with Kit(app) as kit:
        start = kit.clock.now()
        billing = kit.script("billing", [Transient("busy"), Snooze("30s"), Transient("busy")])
        await app.publish("order.paid")

        tally = await kit.drain(until="1h")

        assert (tally.retried, tally.snoozed, tally.delivered) == (2, 1, 1)
        assert len(billing.attempts) == 4
        assert kit.clock.now() - start == timedelta(minutes=1, seconds=30) + timedelta(minutes=2)


async def test_drain_until_stops_where_the_time_is_up() -> None:
    app = shop()
    async with Kit(app) as kit:
        billing = kit.script("billing", [Transient("busy")] * 3)
        await app.publish("order.paid")

        await kit.drain(until="2m")

        assert len(billing.attempts) == 2


async def test_drain_until_expires_what_waits_past_its_deadline() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", due="1h", deadline="30m")

        await kit.drain(until="2h")

        assert [one.reason for one in kit.dead_letters()] == ["expired"]


async def test_running_for_a_while_leaves_the_clock_at_its_end() -> None:
    app = shop()
    async with Kit(app) as kit:
        start = kit.clock.now()
        await app.publish("order.paid", due="5m")

        tally = await kit.run_for("1h")

        assert tally.delivered == 1
        assert kit.clock.now() == start + timedelta(hours=1)


async def test_running_for_a_while_delivers_what_a_worker_died_with() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await _claim_and_die(app)

        assert (await kit.run_for("10s")).delivered == 0  # the lease is of 15 s
        assert (await kit.run_for("10m")).delivered == 1


async def _claim_and_die(app: Redrive) -> None:
    session = await app._session()  # noqa: SLF001 - no public act crashes a worker
    request = ClaimRequest(
        worker="doomed",
        allowances=(Allowance(destination="billing", total=1),),
        generations=("default",),
        limit=1,
        lease=timedelta(seconds=15),
    )
    assert len((await session.store.claim(request)).deliveries) == 1


async def test_what_will_never_run_does_not_keep_a_drain_from_ending() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", generation="next", due="1m")

        tally = await kit.drain(until="1h")

        assert tally.attempts == 0


async def test_dead_letters_are_shown_and_operated_on() -> None:
    app = shop()
    async with Kit(app) as kit:
        kit.script("billing", [Terminal("no such customer")])
        await app.publish("order.paid")
        await kit.drain()

        [dead] = kit.dead_letters()
        await kit.operations.replay([dead.id], by="ada")
        tally = await kit.drain()

        assert tally.delivered == 1
        assert kit.dead_letters() == []


async def test_a_script_lasts_as_long_as_the_block() -> None:
    app = shop()
    async with Kit(app) as kit:
        kit.script("billing")
        await app.publish("order.paid")
        await kit.drain()
        assert kit.published("invoice.sent") == []

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        kit.assert_published("invoice.sent", times=1)


async def test_a_script_for_an_unknown_destination_is_refused() -> None:
    async with Kit(shop()) as kit:
        with pytest.raises(ConfigurationError, match="did you mean 'billing'"):
            kit.script("biling")


async def test_a_script_outside_the_block_is_refused() -> None:
    kit = Kit(shop())

    with pytest.raises(UsageError, match="The kit is not open"):
        kit.script("billing")


async def test_blocks_know_nothing_of_each_other() -> None:
    app = shop()
    async with Kit(app):
        await app.publish("order.paid")

    async with Kit(app) as kit:
        kit.assert_nothing_published()
        assert (await kit.drain()).attempts == 0


async def test_afterwards_the_app_is_where_it_was(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")
    async with app:
        await app.publish("order.paid")

        async with Kit(app) as kit:
            kit.assert_nothing_published()
            await app.publish("order.paid")

        status = await app.operations.status()

    assert status.events == 1


async def test_the_store_of_the_app_is_never_touched(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - nothing else runs any more


async def test_an_error_in_the_block_passes_and_the_app_is_restored() -> None:
    app = shop()

    with pytest.raises(LookupError):
        async with Kit(app):
            raise LookupError

    async with app:
        assert (await app.operations.status()).events == 0


async def test_two_runs_are_the_same_to_the_last_digit() -> None:
    async def run(seed: int) -> tuple[str, str, datetime]:
        app = Redrive("memory://")
        app.handler("order.*", name="billing", retry=Retry(base="1h", cap="24h"))(print)
        async with Kit(app, seed=seed) as kit:
            kit.script("billing", [Transient("busy")])
            receipt = await app.publish("order.paid")
            await kit.drain()
            page = await kit.operations.deliveries(Query(status=Status.PENDING))
            story = await kit.operations.show(page.deliveries[0].id)
            return receipt.event_id, story.delivery.log[0].worker, story.delivery.due

    first, again, other = await run(1), await run(1), await run(2)

    assert first == again
    assert first != other


async def test_a_sync_handler_may_use_the_sync_door() -> None:
    """In production it runs in a thread of its own, where that is allowed."""
    app = Redrive("memory://")

    @app.handler("order.*")
    def bill(event: Event[Any]) -> None:
        app.sync.publish("invoice.sent", event.payload)

    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42})
        await kit.drain()

        kit.assert_published("invoice.sent", payload={"order": 42}, times=1)
    app.sync.close()


async def test_hooks_have_finished_when_a_drain_returns() -> None:
    app = shop()
    told = []

    @app.on_failed
    async def alert(letter: DeadLettered) -> None:
        async with Kit(shop()) as other:
            await other.drain()
        told.append(letter.reason)

    async with Kit(app) as kit:
        kit.script("billing", [Terminal("no such customer")])
        await app.publish("order.paid")
        await kit.drain()

        assert told == ["terminal"]


async def test_another_app_may_share_the_store() -> None:
    app, website = shop(), Redrive("memory://")
    async with Kit(app) as kit:
        await app.open()
        kit.connect(website)

        await website.publish("order.paid", {"order": 42})
        tally = await kit.drain()

        assert tally.delivered == 1


async def test_the_clock_may_jump_while_a_handler_runs() -> None:
    """On a real clock such a jump means a blocked event loop, and the process would end."""
    app = Redrive("memory://", grace="1s")

    @app.handler("order.*", timeout="2s", retry=Retry(max_attempts=1))
    async def bill(event: Event[Any]) -> None:
        kit.clock.advance("10s")
        await kit.clock.sleep(3600)

    async with Kit(app) as kit:
        await app.publish("order.paid")

        tally = await kit.drain()

        assert tally.failed == 1


async def test_on_sqlite_transactions_can_be_tested_too(tmp_path: Path) -> None:
    app = shop()
    async with Kit(app, store=f"sqlite:///{tmp_path}/kit.db") as kit:
        async with app.transaction() as transaction:
            transaction.execute("CREATE TABLE orders (id INTEGER)")
            transaction.execute("INSERT INTO orders VALUES (42)")
            await app.publish("order.paid", {"order": 42}, within=transaction)

        tally = await kit.drain()

        assert tally.delivered == 1
        kit.assert_published("invoice.sent", payload={"order": 42})


async def test_looking_from_inside_a_transaction_is_refused_at_once(tmp_path: Path) -> None:
    """It would wait for a lock that this very task holds."""
    app = shop()
    async with Kit(app, store=f"sqlite:///{tmp_path}/kit.db") as kit:
        async with app.transaction() as transaction:
            await app.publish("order.paid", within=transaction)
            with pytest.raises(UsageError, match="look at what was published after the block"):
                kit.assert_published("order.paid")

        kit.assert_published("order.paid")


async def test_a_file_with_events_in_it_is_refused(tmp_path: Path) -> None:
    """The ids of a kit begin at 1, so it would take its events for those that are there."""
    app, url = shop(), f"sqlite:///{tmp_path}/kit.db"
    async with Kit(app, store=url):
        await app.publish("order.paid")

    with pytest.raises(UsageError, match="holds events already; a kit needs an empty one"):
        Kit(app, store=url).open()


async def test_a_kit_may_be_on_postgresql(postgres_url: str) -> None:
    app, other = shop(), Redrive("memory://")
    async with Kit(app, store=postgres_url) as kit:
        kit.connect(other)
        await other.publish("order.paid", due="1h")
        assert (await kit.drain()).delivered == 0

        await kit.run_for("1h")

        kit.assert_published("order.paid", times=1)

    with pytest.raises(UsageError, match="holds events already; a kit needs an empty one"):
        Kit(app, store=postgres_url).open()


async def test_the_fixture_says_how_to_have_a_kit_on_postgresql(redrive_kit: ConnectKit) -> None:
    with pytest.raises(UsageError, match="write `async with Kit"):
        await redrive_kit(shop(), store="postgresql://nowhere/shop")


@pytest.mark.parametrize("per_second", [6, 7, 11, 13, 60, 7.3, 0.3])
@pytest.mark.parametrize("kind", ["rate", "retry_rate", "replay_rate", "tenant"])
async def test_a_drain_ends_whatever_the_rate(kind: str, per_second: float) -> None:
    app = Redrive("memory://")
    rate = Rate(per_second=per_second, burst=max(1.0, per_second / 10))
    limits: dict[str, Any] = {"fairness": Fairness(rate=rate)} if kind == "tenant" else {kind: rate}

    @app.handler("order.*", name="billing", retry=PATIENT, **limits)
    async def bill(event: Event[Any]) -> None:
        """Take everything."""

    async with Kit(app) as kit:
        first = Terminal("not yet") if kind == "replay_rate" else Transient("not yet")
        kit.script("billing", [first] * 20 if kind in ("retry_rate", "replay_rate") else [])
        for _ in range(20):
            await app.publish("order.paid", tenant="acme")
        tally = await kit.drain(until="1h")
        if kind == "replay_rate":
            await kit.operations.replay([one.id for one in kit.dead_letters()], by="ada")
            tally = await kit.drain(until="1h")

        assert tally.delivered == 20
