"""What a store promises to operators, and about the traces they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from redrive.model.access import Scope
from redrive.model.audit import Actor, AuditQuery
from redrive.model.delivery import Cycle, DeliveryId, Kind, Status
from redrive.model.event import Event
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, FailureReason, Snoozed
from redrive.store import Store
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    blame,
    ids_of,
    only,
)

__all__ = [
    "AuditConformance",
    "AuditQueryConformance",
    "InterventionConformance",
    "ReplayConformance",
    "ScopeConformance",
]

Action = Callable[[Store, Sequence[DeliveryId]], Awaitable[Sequence[DeliveryId]]]

_NOBODYS = Scope(tenant="globex", destinations=("mailing",))
_DUE = datetime(2030, 1, 2, tzinfo=UTC)
_ON_PENDING: dict[str, Action] = {
    "cancel": lambda store, ids: store.cancel(ids, blame=blame, actor=OPERATOR),
    "reschedule": lambda store, ids: store.reschedule(ids, due=_DUE, actor=OPERATOR),
    "prioritise": lambda store, ids: store.prioritise(ids, priority=7, actor=OPERATOR),
}
_ON_FAILED: dict[str, Action] = {
    "replay": lambda store, ids: store.replay(ids, actor=OPERATOR),
    "delete": lambda store, ids: store.delete(ids, actor=OPERATOR),
    "resolve": lambda store, ids: store.resolve(ids, actor=OPERATOR),
}


class ReplayConformance:
    """`Intervention.replay`."""

    async def test_a_replay_makes_a_dead_letter_pending_in_place(self, world: World) -> None:
        delivery_id = await world.dead_letter()
        world.clock.advance("1h")

        replayed = await world.store.replay([delivery_id], actor=OPERATOR)

        delivery = await world.show(delivery_id)
        assert list(replayed) == [delivery_id]
        assert (delivery.status, delivery.due) == (Status.PENDING, world.now)
        assert ids_of(await world.claim()) == [delivery_id]

    async def test_a_replay_keeps_the_identity_of_the_event(self, world: World) -> None:
        event = an_event(b'{ "n": 1.0 }', key="k", tenant="t", idempotency_key="i")
        delivery_id = await world.dead_letter(event)

        await world.store.replay([delivery_id], actor=OPERATOR)

        leased = await world.claim_one()
        assert (leased.lease.delivery_id, leased.event) == (delivery_id, event)
        assert len(await world.logged(1)) == 1

    async def test_a_replay_starts_a_clean_cycle(self, world: World) -> None:
        delivery_id = await world.suspect()
        await world.settle(await world.claim_one(alone=True), Snoozed(until=world.now))
        await world.fail(await world.claim_one(alone=True))

        await world.store.replay([delivery_id], actor=OPERATOR)

        delivery = await world.show(delivery_id)
        assert (delivery.attempts, delivery.crashes, delivery.snoozes) == (0, 0, 0)
        assert (delivery.reason, delivery.fault, delivery.log) == (None, None, ())
        assert (delivery.first_failed_at, delivery.last_failed_at) == (None, None)
        assert (delivery.settled_at, delivery.kind) == (None, Kind.REPLAY)

    async def test_a_replay_keeps_the_earlier_cycle(self, world: World) -> None:
        delivery_id = await world.dead_letter(fault=a_fault("no such account"))
        failed = await world.show(delivery_id)
        failed_at = world.now
        world.clock.advance("1h")

        await world.store.replay([delivery_id], actor=Actor("ada"), generation="green")

        cycle = only((await world.show(delivery_id)).cycles)
        assert cycle == Cycle(
            attempts=1,
            reason=FailureReason.TERMINAL,
            fault=a_fault("no such account"),
            failed_at=failed_at,
            generation="default",
            replayed_at=world.now,
            replayed_by="ada",
            first_failed_at=failed_at,
            log=failed.log,
        )
        assert cycle.log

    async def test_a_cycle_knows_its_first_failure_when_its_log_no_longer_does(
        self, world: World
    ) -> None:
        await world.publish(an_event())
        first_failed_at = world.now
        for _ in range(world.history + 1):
            await world.retry(await world.claim_one())
            world.clock.advance("1m")
        failed = await world.claim_one()
        await world.fail(failed)

        await world.store.replay([failed.lease.delivery_id], actor=OPERATOR)

        cycle = only((await world.show(failed.lease.delivery_id)).cycles)
        assert (cycle.attempts, len(cycle.log)) == (world.history + 2, world.history)
        assert (cycle.first_failed_at, cycle.failed_at) == (first_failed_at, world.now)

    async def test_cycles_are_told_in_order_and_only_the_last_are_kept(self, world: World) -> None:
        delivery_id = await world.dead_letter(fault=a_fault("0"))
        for number in range(1, world.history + 3):
            await world.store.replay([delivery_id], actor=OPERATOR)
            await world.fail(await world.claim_one(), fault=a_fault(str(number)))

        await world.store.replay([delivery_id], actor=OPERATOR)

        told = [int(cycle.fault.message) for cycle in (await world.show(delivery_id)).cycles]
        assert told == list(range(3, world.history + 3))

    async def test_a_replay_may_name_a_generation(self, world: World) -> None:
        named, kept = await world.dead_letter(), await world.dead_letter()

        await world.store.replay([named], actor=OPERATOR, generation="green")
        await world.store.replay([kept], actor=OPERATOR)

        assert (await world.show(named)).generation == "green"
        assert ids_of(await world.claim(generations=["green"])) == [named]
        assert ids_of(await world.claim()) == [kept]

    async def test_of_concurrent_replays_one_wins(self, world: World) -> None:
        delivery_id = await world.dead_letter()

        answers = await asyncio.gather(
            *[world.store.replay([delivery_id], actor=Actor(by=name)) for name in "abcd"]
        )

        assert sorted(len(changed) for changed in answers) == [0, 0, 0, 1]
        assert len((await world.show(delivery_id)).cycles) == 1
        assert len(await world.store.audit()) == 1

    async def test_a_delivery_named_twice_is_replayed_once(self, world: World) -> None:
        delivery_id = await world.dead_letter()

        replayed = await world.store.replay([delivery_id, delivery_id], actor=OPERATOR)

        assert list(replayed) == [delivery_id]
        assert len((await world.show(delivery_id)).cycles) == 1

    async def test_a_passed_deadline_does_not_end_the_replay(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event(deadline=world.after("1m")))
        world.clock.advance("1h")
        await world.expire()

        await world.store.replay([delivery_id], actor=OPERATOR)

        assert len(await world.expire()) == 0
        assert (await world.show(delivery_id)).deadline is None
        assert ids_of(await world.claim()) == [delivery_id]

    async def test_a_deadline_to_come_stays(self, world: World) -> None:
        deadline = world.after("1h")
        delivery_id = await world.dead_letter(an_event(deadline=deadline))

        await world.store.replay([delivery_id], actor=OPERATOR)

        assert (await world.show(delivery_id)).deadline == deadline

    async def test_a_resolved_dead_letter_is_not_replayed(self, world: World) -> None:
        delivery_id = await world.dead_letter()
        await world.store.resolve([delivery_id], actor=OPERATOR)

        replayed = await world.store.replay([delivery_id], actor=OPERATOR)

        assert len(replayed) == 0
        assert (await world.show(delivery_id)).status is Status.FAILED


class InterventionConformance:
    """`Intervention`: the other operations, and what they leave alone."""

    async def test_only_failed_deliveries_are_replayed_deleted_and_resolved(
        self, world: World
    ) -> None:
        ids = await _pending_in_flight_delivered(world)
        before = [await world.show(one) for one in ids]

        answers = [await act(world.store, ids) for act in _ON_FAILED.values()]

        assert [list(changed) for changed in answers] == [[], [], []]
        assert [await world.show(one) for one in ids] == before
        assert len(await world.store.audit()) == 0

    async def test_only_pending_deliveries_are_cancelled_moved_and_prioritised(
        self, world: World
    ) -> None:
        failed = await world.dead_letter()
        _pending, *others = await _pending_in_flight_delivered(world)
        ids = [failed, *others]
        before = [await world.show(one) for one in ids]

        answers = [await act(world.store, ids) for act in _ON_PENDING.values()]

        assert [list(changed) for changed in answers] == [[], [], []]
        assert [await world.show(one) for one in ids] == before
        assert len(await world.store.audit()) == 0

    async def test_unknown_deliveries_are_left_out(self, world: World) -> None:
        unknown = DeliveryId(999_999)
        dead = await world.dead_letter()

        replayed = await world.store.replay([unknown, dead], actor=OPERATOR)
        cancelled = await world.cancel([dead, unknown])

        assert (list(replayed), list(cancelled)) == ([dead], [dead])

    async def test_a_deleted_dead_letter_is_gone_and_counted(self, world: World) -> None:
        event = an_event()
        delivery_id, other = await world.dead_letter(event), await world.dead_letter()

        deleted = await world.store.delete([delivery_id], actor=OPERATOR)

        assert list(deleted) == [delivery_id]
        assert await world.store.find_delivery(delivery_id) is None
        assert [one.id for one in await world.found()] == [other]
        assert (await world.store.figures()).deleted == 1
        assert await world.store.find_event(event.id) == event

    async def test_a_deleted_dead_letter_does_not_lend_its_id_to_another(
        self, world: World
    ) -> None:
        delivery_id = await world.dead_letter()
        await world.store.delete([delivery_id], actor=OPERATOR)

        [new] = await world.publish(an_event())

        assert new > delivery_id

    async def test_a_resolved_dead_letter_tells_who_when_and_why(self, world: World) -> None:
        delivery_id = await world.dead_letter()
        world.clock.advance("1m")

        resolved = await world.store.resolve([delivery_id], actor=OPERATOR)
        again = await world.store.resolve([delivery_id], actor=Actor("bob"))

        delivery = await world.show(delivery_id)
        assert (list(resolved), list(again)) == ([delivery_id], [])
        assert delivery.resolution is not None
        assert (delivery.resolution.by, delivery.resolution.why) == ("ada", "the customer called")
        assert delivery.resolution.at == world.now
        assert not delivery.is_dead_letter

    async def test_a_resolved_dead_letter_may_be_deleted(self, world: World) -> None:
        delivery_id = await world.dead_letter()
        await world.store.resolve([delivery_id], actor=OPERATOR)

        assert list(await world.store.delete([delivery_id], actor=OPERATOR)) == [delivery_id]

    async def test_a_reopened_letter_is_a_dead_letter_as_it_was(self, world: World) -> None:
        delivery_id, other = await world.dead_letter(), await world.dead_letter()
        before = await world.show(delivery_id)
        await world.store.resolve([delivery_id], actor=OPERATOR)
        world.clock.advance("1m")

        reopened = await world.store.reopen([delivery_id, other], actor=OPERATOR)
        again = await world.store.reopen([delivery_id], actor=OPERATOR)

        assert (list(reopened), list(again)) == ([delivery_id], [])
        assert await world.show(delivery_id) == before
        assert (await world.figures_of("billing")).failed == 2
        entry, _ = await world.store.audit()
        assert (entry.action, entry.deliveries, entry.why) == (
            "reopen",
            (delivery_id,),
            OPERATOR.why,
        )

    async def test_a_reopened_letter_may_be_replayed_and_is_not_pruned(self, world: World) -> None:
        delivery_id = await world.dead_letter()
        await world.store.resolve([delivery_id], actor=OPERATOR)
        await world.store.reopen([delivery_id], actor=OPERATOR)
        world.clock.advance("365d")

        await world.store.prune(Retention())
        await world.store.replay([delivery_id], actor=OPERATOR)

        assert (await world.claim_one()).lease.delivery_id == delivery_id

    async def test_a_cancelled_delivery_is_a_dead_letter_that_says_why(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())

        cancelled = await world.cancel([delivery_id])

        delivery = await world.show(delivery_id)
        assert list(cancelled) == [delivery_id]
        assert delivery.is_dead_letter
        assert (delivery.reason, delivery.attempts) == (FailureReason.CANCELLED, 0)
        assert delivery.fault == blame("billing")
        assert delivery.settled_at == delivery.first_failed_at == world.now
        assert (await world.claim()).deliveries == ()

    async def test_a_cancelled_delivery_can_be_replayed(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        await world.cancel([delivery_id])

        await world.store.replay([delivery_id], actor=OPERATOR)

        cycle = only((await world.show(delivery_id)).cycles)
        assert (cycle.reason, cycle.attempts) == (FailureReason.CANCELLED, 0)
        assert cycle.fault.message
        assert ids_of(await world.claim()) == [delivery_id]

    async def test_a_delivery_can_be_put_off(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        due = world.now + timedelta(seconds=90, microseconds=1)

        moved = await world.store.reschedule([delivery_id], due=due, actor=OPERATOR)

        early = await world.claim()
        assert list(moved) == [delivery_id]
        assert (early.deliveries, early.next_due) == ((), due)

    async def test_a_delivery_can_be_brought_forward(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event(due=world.after("1h")))

        await world.store.reschedule([delivery_id], due=world.now, actor=OPERATOR)

        assert ids_of(await world.claim()) == [delivery_id]

    async def test_a_delivery_can_be_given_another_priority(self, world: World) -> None:
        first, second = await world.publish(an_event(), an_event())

        changed = await world.store.prioritise([second], priority=7, actor=OPERATOR)

        assert list(changed) == [second]
        assert (await world.show(second)).priority == 7
        assert ids_of(await world.claim()) == [second, first]


class ScopeConformance:
    """Acts within a scope: what is outside, as it stands at that moment, is left alone."""

    async def test_acts_on_dead_letters_keep_to_their_scope(self, world: World) -> None:
        mine, theirs, mailed = [await world.dead_letter(one, to=to) for one, to in _of_each()]
        ids, store = [mine, theirs, mailed], world.store

        acts = {
            "resolve": (Scope(tenant="globex"), [theirs]),
            "reopen": (Scope(tenant="globex", destinations=("billing", "mailing")), [theirs]),
            "replay": (Scope(destinations=("mailing", "sms")), [mailed]),
            "delete": (Scope(tenant="globex", destinations=("billing",)), [theirs]),
        }
        for name, (scope, expected) in acts.items():
            act = getattr(store, name)
            assert list(await act(ids, actor=OPERATOR, scope=_NOBODYS)) == [], name
            assert list(await act(ids, actor=OPERATOR, scope=scope)) == expected, name

        left = await world.show(mine)
        assert (left.status, left.resolution) == (Status.FAILED, None)
        assert [list(one.deliveries) for one in await store.audit()] == [
            *([theirs], [mailed], [theirs], [theirs]),
        ]

    async def test_acts_on_pending_deliveries_keep_to_their_scope(self, world: World) -> None:
        ids = [only(await world.publish(one, to=to)) for one, to in _of_each()]
        mine, theirs, mailed = ids
        store = world.store

        acts: dict[str, tuple[dict[str, object], Scope, list[DeliveryId]]] = {
            "reschedule": ({"due": _DUE}, Scope(tenant="acme"), [mine, mailed]),
            "prioritise": ({"priority": 7}, Scope(destinations=("mailing",)), [mailed]),
            "cancel": ({"blame": blame}, Scope(tenant="globex"), [theirs]),
        }
        for name, (given, scope, expected) in acts.items():
            act = getattr(store, name)
            assert list(await act(ids, actor=OPERATOR, scope=_NOBODYS, **given)) == [], name
            assert list(await act(ids, actor=OPERATOR, scope=scope, **given)) == expected, name

        assert (await world.show(mine)).status is Status.PENDING
        assert [(await world.show(one)).priority for one in ids] == [0, 0, 7]

    async def test_an_edit_keeps_to_its_scope(self, world: World) -> None:
        event = an_event({"order": 1}, tenant="acme")
        letter = await world.dead_letter(event)

        done = [
            await world.store.edit(
                letter,
                before=event.payload,
                payload=msgspec.Raw(b"{}"),
                changes=(),
                more=0,
                actor=OPERATOR,
                is_replayed=False,
                scope=scope,
            )
            for scope in (
                Scope(tenant="globex"),
                Scope(destinations=("mailing",)),
                Scope(tenant="acme", destinations=("billing", "mailing")),
            )
        ]

        assert done == [False, False, True]


def _of_each() -> list[tuple[Event[msgspec.Raw], str]]:
    return [
        (an_event(tenant="acme"), "billing"),
        (an_event(tenant="globex"), "billing"),
        (an_event(tenant="acme"), "mailing"),
    ]


class AuditQueryConformance:
    """`Audit.audit`: every filter."""

    async def test_entries_are_found_by_who_what_when_and_whose(self, world: World) -> None:
        first, second = await world.dead_letter(), await world.dead_letter()
        await world.store.replay([first], actor=Actor("ada", "again"))
        world.clock.advance("1m")
        middle = world.now
        await world.store.resolve([second], actor=Actor("bob", "done"))
        await world.store.pause("billing", actor=Actor("bob", "broken"))

        async def found(**query: object) -> list[str]:
            entries = await world.store.audit(AuditQuery(**query))  # type: ignore[arg-type]
            return [one.action for one in entries]

        assert await found() == ["pause", "resolve", "replay"]
        assert await found(by="bob") == ["pause", "resolve"]
        assert await found(action="replay") == ["replay"]
        assert await found(deliveries=(first, 999)) == ["replay"]
        assert await found(deliveries=()) == []
        assert await found(name="billing") == ["pause"]
        assert await found(name="%") == []
        assert await found(since=middle) == ["pause", "resolve"]
        assert await found(until=middle) == ["replay"]
        assert await found(by="ada", action="pause") == []

    async def test_pages_of_a_query_go_on_before_an_entry(self, world: World) -> None:
        await world.publish(an_event())
        for _ in range(3):
            await world.store.pause("billing", actor=Actor("ada"))
            await world.store.resume("billing", actor=Actor("ada"))
        query = AuditQuery(action="pause")

        page = await world.store.audit(query, limit=2)
        rest = await world.store.audit(query, before=page[-1].id, limit=2)

        assert [one.action for one in (*page, *rest)] == ["pause"] * 3


class AuditConformance:
    """`Audit`: every operation leaves one entry."""

    async def test_every_operation_on_pending_deliveries_is_in_the_audit_log(
        self, world: World
    ) -> None:
        for action, act in _ON_PENDING.items():
            ids = await world.publish(an_event(), an_event())

            await act(world.store, ids)

            await _check_latest_entry(world, action, ids)

    async def test_every_operation_on_dead_letters_is_in_the_audit_log(self, world: World) -> None:
        for action, act in _ON_FAILED.items():
            ids = [await world.dead_letter(), await world.dead_letter()]

            await act(world.store, ids)

            await _check_latest_entry(world, action, ids)
            await world.claim()

    async def test_the_audit_tells_what_was_set(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())

        await world.store.prioritise([delivery_id], priority=42, actor=OPERATOR)
        await world.store.reschedule([delivery_id], due=_DUE, actor=OPERATOR)
        await world.cancel([delivery_id])
        await world.store.replay([delivery_id], actor=OPERATOR, generation="green")

        details = [entry.detail for entry in await world.store.audit()]
        for detail, expected in zip(details, ["green", "", "2030-01-02", "42"], strict=True):
            assert expected in detail

    async def test_an_operation_that_changes_nothing_leaves_no_entry(self, world: World) -> None:
        dead = await world.dead_letter()

        await world.cancel([dead])
        await world.store.replay([], actor=OPERATOR)

        assert len(await world.store.audit()) == 0

    async def test_an_entry_names_only_what_changed(self, world: World) -> None:
        dead = await world.dead_letter()
        [pending] = await world.publish(an_event())

        await world.store.replay([dead, pending], actor=OPERATOR)

        entry = only(await world.store.audit())
        assert (entry.count, entry.deliveries) == (1, (dead,))

    async def test_what_changed_nothing_can_be_on_record_too(self, world: World) -> None:
        [pending] = await world.publish(an_event())
        before = await world.show(pending)

        await world.store.note("reveal", [pending], actor=OPERATOR)

        entry = only(await world.store.audit())
        assert (entry.action, entry.by, entry.why) == ("reveal", OPERATOR.by, OPERATOR.why)
        assert (entry.at, entry.count, entry.deliveries) == (world.now, 1, (pending,))
        assert await world.show(pending) == before

    async def test_the_audit_log_is_read_backwards_in_pages(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        for priority in range(1, 6):
            await world.store.prioritise([delivery_id], priority=priority, actor=OPERATOR)

        first = await world.store.audit(limit=2)
        rest = await world.store.audit(before=first[-1].id, limit=10)

        assert [entry.detail for entry in (*first, *rest)] == ["5", "4", "3", "2", "1"]
        assert len(first) == 2


async def _pending_in_flight_delivered(world: World) -> list[DeliveryId]:
    delivered, in_flight, pending = await world.publish(*[an_event() for _ in range(3)])
    await world.settle(await world.claim_one(), Delivered())
    await world.claim_one()
    return [pending, in_flight, delivered]


async def _check_latest_entry(world: World, action: str, ids: Sequence[DeliveryId]) -> None:
    entry = (await world.store.audit(limit=1))[0]
    assert (entry.action, entry.by, entry.why) == (action, OPERATOR.by, OPERATOR.why)
    assert (entry.at, entry.count) == (world.now, len(ids))
    assert sorted(entry.deliveries) == sorted(ids)
