"""Destinations that go and destinations that come late: orphaned, moved, stranded, backfilled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive import Event, NewEvent, NotFoundError, Query, Redrive, UsageError
from redrive.model.delivery import Delivery, Status
from redrive.observer import DestinationOrphaned, WorkStranded
from redrive.observers.prometheus import PrometheusObserver
from redrive.policies.attention import orphans, stranded
from redrive.store import Backfilled, Level, Serving
from redrive.testing import Kit
from tests.app.recorder import Recorder


def shop(*names: str, **options: Any) -> Redrive:  # noqa: ANN401 - any options
    """An app with destinations that all want orders."""
    app = Redrive("memory://", **options)
    for name in names:
        app.handler("order.*", name=name)(print)
    return app


async def pending(kit: Kit, destination: str) -> list[Delivery]:
    query = Query(status=Status.PENDING, destination=destination)
    return list((await kit.operations.deliveries(query)).deliveries)


async def rest(kit: Kit, seconds: int) -> None:
    """Let time pass for whoever works."""
    for _ in range(seconds):
        kit.clock.advance("1s")
        for _ in range(20):
            await kit.clock.sleep(0)


async def findings(kit: Kit) -> list[str]:
    return [one.what for one in await kit.operations.examine() if one.level is not Level.OK]


async def test_a_removed_destination_gets_nothing_more_and_holds_what_waits(store: str) -> None:
    app = shop("billing", "mailing")
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.operations.remove_destination("billing", by="ada", why="retired")

        receipt = await app.publish("order.paid")

        figures = await kit.operations.status()
        assert receipt.destinations == ("mailing",)
        assert [one.name for one in orphans(figures)] == ["billing"]
        assert len(await pending(kit, "billing")) == 1
        assert any("billing is orphaned: 1 delivery held" in one for one in await findings(kit))


async def test_what_a_live_worker_serves_is_held_from_its_removal_on() -> None:
    app = shop("billing", "mailing")
    async with Kit(app) as kit, app.worker():
        await rest(kit, 1)
        await kit.operations.remove_destination("billing", by="ada")
        await rest(kit, 2)

        receipt = await app.publish("order.paid")
        await rest(kit, 2)

        assert receipt.destinations == ("mailing",)
        assert any("billing, which was removed" in one for one in await findings(kit))


async def test_a_removal_outlasts_a_start_of_the_same_code(store: str) -> None:
    app, again = shop("billing", "mailing"), shop("billing", "mailing")
    async with Kit(app, store=store) as kit:
        kit.connect(again)
        await app.publish("order.paid")
        await kit.operations.remove_destination("billing", by="ada")

        tally = await again.drain()
        removed = await again.publish("order.paid")
        is_new = await kit.operations.restore_destination("billing", by="ada", why="a mistake")
        restored = await again.publish("order.paid")
        await again.drain()

        assert tally.delivered == 1
        assert removed.destinations == ("mailing",)
        assert is_new
        assert restored.destinations == ("billing", "mailing")
        entry = (await kit.operations.audit())[0]
        assert (entry.action, entry.by, entry.why) == ("restore", "ada", "a mistake")
        delivered = {
            one.name: one.delivered for one in (await kit.operations.status()).destinations
        }
        assert delivered == {"billing": 2, "mailing": 3}


async def test_a_destination_nobody_serves_is_told_once() -> None:
    old, recorder = shop("billing", "mailing"), Recorder()
    new = shop("mailing")
    new.observe(recorder)
    async with Kit(old) as kit:
        kit.connect(new)
        await old.publish("order.paid")
        async with new.worker():
            await rest(kit, 200)
            figures = await kit.operations.status()
            said = await findings(kit)

    [told] = recorder.of(DestinationOrphaned)
    assert (told.destination, told.count) == ("billing", 1)
    assert [one.name for one in orphans(figures)] == ["billing"]
    assert any("no live worker serves it" in one for one in said)


async def test_a_stranded_generation_is_shown_and_told_once_per_occurrence() -> None:
    app, recorder = shop("billing"), Recorder()
    app.observe(recorder)
    async with Kit(app) as kit:
        await app.publish("order.paid", generation="green")
        async with app.worker():
            await rest(kit, 30)
            soon = len(recorder.of(WorkStranded))
            await rest(kit, 100)
            once = len(recorder.of(WorkStranded))
            figures = await kit.operations.status()
            said = await findings(kit)
            metrics = PrometheusObserver().render(figures).decode()
            [waiting] = await pending(kit, "billing")
            await kit.operations.cancel([waiting.id], by="ada")
            await rest(kit, 30)
            await app.publish("order.paid", generation="green")
            await rest(kit, 100)

    assert (soon, once, len(recorder.of(WorkStranded))) == (0, 1, 2)
    assert recorder.of(WorkStranded)[0].generation == "green"
    [due] = stranded(figures.due, figures.workers, now=figures.now)
    assert (due.destination, due.generation, due.count) == ("billing", "green", 1)
    assert any("no live worker claims that generation" in one for one in said)
    assert 'redrive_stranded_deliveries{destination="billing"} 1.0' in metrics


async def test_work_that_somebody_claims_is_not_neglected() -> None:
    app, recorder = shop("billing", generations=["default", "green"]), Recorder()
    app.observe(recorder)
    async with Kit(app) as kit, app.worker():
        await kit.operations.pause("billing", by="ada")
        await app.publish("order.paid", generation="green")
        await rest(kit, 200)
        figures = await kit.operations.status()

    assert recorder.of(WorkStranded) == []
    assert orphans(figures) == ()
    serving = Serving(("billing",), ("default", "green"))
    assert [one.serving for one in figures.workers] == [serving]


async def test_a_renamed_destination_takes_over_in_publish_order(store: str) -> None:
    old, new = Redrive("memory://"), Redrive("memory://")
    seen: list[int] = []

    @new.handler("order.*", name="invoicing", order="park")
    async def invoice(event: Event[int]) -> None:
        seen.append(event.payload)

    old.handler("order.*", name="billing", order="park")(print)
    async with Kit(old, store=store) as kit:
        for number in range(3):
            await old.publish("order.paid", number, key="k")
        await kit.operations.remove_destination("billing", by="ada", why="renamed")
        kit.connect(new)
        await new.open()
        for number in range(3, 6):
            await new.publish("order.paid", number, key="k")

        moved = await new.operations.move("billing", "invoicing", by="ada", why="renamed")
        await new.drain()
        again = await new.operations.move("billing", "invoicing", by="ada", why="renamed")
        [entry] = [one for one in await new.operations.audit() if one.action == "move"]
        await new.close()

    assert (len(moved.moved), moved.skipped, moved.busy) == (3, 0, 0)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert again.moved == ()
    assert (entry.by, entry.why, entry.detail) == ("ada", "renamed", "invoicing")


async def test_moves_go_through_every_batch(sqlite: str) -> None:
    app = shop("billing", "invoicing")
    async with Kit(app, store=sqlite) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(1_200)])
        await kit.operations.delete_pending("invoicing", by="ada", why="test")
        seen: list[int] = []

        moved = await kit.operations.move(
            "billing", "invoicing", by="ada", why="merged", progress=seen.append
        )

        assert (len(moved.moved), moved.skipped) == (0, 1_200)
        assert seen == [500, 500, 200]


async def test_what_waits_for_a_destination_can_be_failed_or_deleted(store: str) -> None:
    app = shop("billing", "mailing")
    async with Kit(app, store=store) as kit:
        for _ in range(3):
            await app.publish("order.paid")

        failed = await kit.operations.fail_pending("billing", by="ada", why="retired")
        deleted = await kit.operations.delete_pending("mailing", by="ada", why="retired")

        assert (failed, deleted) == (3, 3)
        assert [one.reason for one in kit.dead_letters()] == ["cancelled"] * 3
        assert (await kit.operations.status()).deleted == 3
        assert [one.action for one in await kit.operations.audit()] == ["drop", "cancel"]


@pytest.mark.parametrize("act", ["fail_pending", "delete_pending"])
async def test_a_reason_is_needed(act: str) -> None:
    app = shop("billing")
    async with Kit(app) as kit:
        with pytest.raises(UsageError, match="A reason is needed"):
            await getattr(kit.operations, act)("billing", by="ada", why=" ")


async def test_mistakes_are_said_in_one_sentence(store: str) -> None:
    app = shop("billing")
    async with Kit(app, store=store) as kit:
        await app.open()
        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            await kit.operations.move("biling", "billing", by="ada", why="typo")
        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            await kit.operations.backfill("biling", by="ada")
        with pytest.raises(UsageError, match="cannot be moved to itself"):
            await kit.operations.move("billing", "billing", by="ada", why="typo")


async def test_a_new_destination_is_backfilled_from_the_log(store: str) -> None:
    old, late = shop("billing"), Redrive("memory://")
    seen: list[Any] = []

    @late.handler("order.*", "mail.*", name="late")
    async def receive(event: Event[Any]) -> None:
        seen.append(event.payload)

    async with Kit(old, store=store) as kit:
        for number in range(3):
            await old.publish("order.paid", number)
        await old.publish("mail.sent", "unrouted")
        await old.publish("nobody.cares")
        await kit.drain()
        kit.clock.advance("2d")
        await kit.drain()
        kit.connect(late)
        await late.open()
        unrouted = (await kit.operations.status()).unrouted

        plan = await late.operations.plan_backfill("late")
        done = await late.operations.backfill("late", by="ada", why="new")
        again = await late.operations.backfill("late", by="ada", why="new")
        old_again = await late.operations.backfill("billing", by="ada")
        while await pending(kit, "late"):
            await late.drain()
            kit.clock.advance("1s")
        await late.close()

        assert (len(plan.positions), done) == (4, Backfilled(added=4))
        assert (again, old_again) == (Backfilled(), Backfilled())
        assert seen == [0, 1, 2, "unrouted"]
        assert (unrouted, (await kit.operations.status()).unrouted) == (2, 1)


async def test_a_backfill_can_be_narrowed(store: str) -> None:
    app = shop("billing")
    async with Kit(app, store=store) as kit:
        later = Redrive("memory://")
        later.handler("*", name="late")(print)
        begun = kit.clock.now()
        for event_type in ("order.paid", "mail.sent", "order.paid"):
            await app.publish(event_type)
            kit.clock.advance("1h")
        kit.connect(later)
        await later.open()
        plan = later.operations.plan_backfill

        assert len((await plan("late")).positions) == 3
        assert (await plan("late", since=begun + timedelta(hours=1))).positions == (2, 3)
        assert (await plan("late", until=begun + timedelta(hours=1))).positions == (1,)
        assert (await plan("late", event_type="mail.*")).positions == (2,)
        await later.close()


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_backfill_leaves_out_what_was_overtaken_at_an_ordered_destination(
    store: str, *, is_removed: bool
) -> None:
    app, late = shop("billing"), Redrive("memory://")
    late.handler("order.*", name="ledger", order="park")(print)
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", 1, key="moved on")
        await app.publish("order.paid", 2, key="quiet")
        kit.connect(late)
        await late.open()
        await late.publish("order.paid", 3, key="moved on")
        await late.drain()
        kit.clock.advance("2d")
        await late.drain()
        if is_removed:
            await late.operations.remove_destination("ledger", by="ada")

        done = await late.operations.backfill("ledger", by="ada")

        assert done == Backfilled(added=1, overtaken=1)
        assert [one.key for one in await pending(kit, "ledger")] == ["quiet"]
        await late.close()


async def test_a_backfill_does_not_starve_live_work(store: str) -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing", concurrency=1)(print)
    late = Redrive("memory://")
    seen: list[str] = []

    @late.handler("order.*", name="late", concurrency=1)
    async def receive(event: Event[str]) -> None:
        seen.append(event.payload)

    async with Kit(app, store=store) as kit:
        for _ in range(30):
            await app.publish("order.paid", "old")
        kit.connect(late)
        await late.open()
        await late.operations.backfill("late", by="ada")
        for _ in range(5):
            await late.publish("order.paid", "live")
        await late.drain()
        await late.close()

    assert seen[:5] == ["live"] * 5
    assert seen.count("old") <= 11, "replay_rate lets 100 a second pass, ten at once"


async def test_publishing_in_a_transaction_leaves_no_delivery_out(sqlite: str) -> None:
    """Routes are checked under the write lock that the transaction holds until it commits."""
    app, late = shop("billing"), Redrive("memory://")
    late.handler("order.*", name="late")(print)
    async with Kit(app, store=sqlite) as kit:
        await app.publish("order.paid")
        kit.connect(late)
        await late.open()
        async with app.transaction() as transaction:
            receipt = await app.publish("order.paid", within=transaction)
        await late.close()

        assert receipt.destinations == ("billing", "late")
        assert len((await kit.operations.plan_backfill("late")).positions) == 1
