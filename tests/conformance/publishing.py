"""What a store promises to publishers: the log, idempotency and routes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from redrive.errors import TransactionError, UsageError
from redrive.model.delivery import Kind, Status
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId, Receipt, Severity
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Conflict, Entry, RoutesChanged, Unique
from tests.conformance.world import (
    BILLING,
    LEDGER,
    MAILING,
    OPERATOR,
    World,
    an_event,
    entries,
    only,
)

__all__ = ["PublishingConformance", "RegistryConformance"]

_AWKWARD_JSON = (
    '{ "id":123456789012345678901234567890,"ratio":1.10,"tiny":1e-7,\n'
    '  "name":"Zoë \\u00e9 \\ud83d\\ude80 🚀","b":1,"a":[ ],"a":null }'
).encode()


class PublishingConformance:
    """`EventLog`."""

    async def test_each_destination_gets_one_pending_delivery(self, world: World) -> None:
        event = an_event()

        await world.append(entries(event, to=["billing", "mailing"]))

        pending = await world.found(status=Status.PENDING)
        assert sorted(one.destination for one in pending) == ["billing", "mailing"]
        assert {one.event_id for one in pending} == {event.id}

    async def test_the_receipt_names_the_event_and_its_destinations(self, world: World) -> None:
        event = an_event()

        appended = await world.append(entries(event, to=["billing", "mailing"]))

        receipt = Receipt(event_id=event.id, destinations=("billing", "mailing"))
        assert appended.results == (receipt,)

    async def test_results_come_in_the_order_of_the_entries(self, world: World) -> None:
        events = [an_event(number) for number in range(5)]

        appended = await world.append(entries(*events))

        assert appended.results == tuple(
            Receipt(event_id=event.id, destinations=("billing",)) for event in events
        )

    async def test_in_a_large_batch_each_delivery_is_of_its_own_event(self, world: World) -> None:
        events = [an_event(number, tenant=f"tenant-{number}") for number in range(120)]

        given = [
            Entry(event, ("billing", "mailing") if number % 3 else ())
            for number, event in enumerate(events)
        ]
        await world.append(given)

        pending = await world.found(status=Status.PENDING)
        wanted = [(one.event.id, one.event.tenant, to) for one in given for to in one.destinations]
        found = [(one.event_id, one.tenant, one.destination) for one in pending]
        assert sorted(found, key=str) == sorted(wanted, key=str)
        assert len({one.id for one in pending}) == 160

    async def test_a_new_delivery_carries_what_its_event_says(self, world: World) -> None:
        due, deadline = world.after("1m"), world.after("1h")
        event = an_event(
            key="order-7",
            tenant="acme",
            priority=5,
            generation="green",
            due=due,
            deadline=deadline,
        )

        [delivery_id] = await world.publish(event)

        delivery = await world.show(delivery_id)
        assert (delivery.event_type, delivery.destination) == ("order.paid", "billing")
        assert (delivery.key, delivery.tenant, delivery.priority) == ("order-7", "acme", 5)
        assert (delivery.generation, delivery.due, delivery.deadline) == ("green", due, deadline)
        assert (delivery.attempts, delivery.kind) == (0, Kind.FIRST)

    async def test_a_delivery_is_enqueued_and_due_by_the_clock_of_the_store(
        self, world: World
    ) -> None:
        world.clock.advance("7m")

        [delivery_id] = await world.publish(an_event())

        delivery = await world.show(delivery_id)
        assert (delivery.enqueued_at, delivery.due) == (world.now, world.now)

    async def test_an_event_is_kept_as_it_was_published(self, world: World) -> None:
        event = an_event(
            {"amount": 7},
            key="order-7",
            tenant="acme",
            source="shop",
            idempotency_key="payment-7",
            headers={"traceparent": "00-ab-cd-01", "x-empty": ""},
            severity=Severity.CRITICAL,
            priority=-3,
            generation="green",
            occurred_at=datetime(2025, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            deadline=world.after("1h"),
            due=world.after("1m"),
        )

        await world.publish(event)

        assert await world.store.find_event(event.id) == event

    async def test_payload_bytes_are_kept_to_the_letter(self, world: World) -> None:
        event = an_event(_AWKWARD_JSON)

        await world.publish(event)

        kept = await world.store.find_event(event.id)
        assert kept is not None
        logged = only(await world.read_events())
        claimed = (await world.claim_one()).event
        assert bytes(kept.payload) == _AWKWARD_JSON
        assert bytes(logged.event.payload) == _AWKWARD_JSON
        assert bytes(claimed.payload) == _AWKWARD_JSON

    async def test_an_unknown_event_is_not_found(self, world: World) -> None:
        assert await world.store.find_event(EventId("no-such-event")) is None

    async def test_an_event_nobody_wants_is_logged_and_counted(self, world: World) -> None:
        event = an_event()

        appended = await world.append(entries(event, to=[]))

        figures = await world.store.figures()
        assert appended.results == (Receipt(event_id=event.id),)
        assert await world.store.find_event(event.id) == event
        assert (figures.events, figures.unrouted) == (1, 1)

    async def test_the_same_idempotency_key_and_body_store_nothing_more(self, world: World) -> None:
        first = an_event({"n": 1}, source="shop", idempotency_key="k")
        again = an_event(
            {"n": 1},
            source="shop",
            idempotency_key="k",
            headers={"traceparent": "another"},
            published_at=world.after("1h"),
        )
        await world.append(entries(first))

        appended = await world.append(entries(again, to=["billing", "mailing"]))

        receipt = Receipt(event_id=first.id, destinations=("billing",), is_duplicate=True)
        assert appended.results == (receipt,)
        assert len(await world.logged(1)) == 1
        assert len(await world.found(status=Status.PENDING)) == 1

    async def test_the_order_of_keys_and_blanks_do_not_make_another_body(
        self, world: World
    ) -> None:
        first = an_event(b'{"a":1,"b":[2]}', source="shop", idempotency_key="k")
        await world.append(entries(first))

        again = an_event(b'{"b": [2], "a": 1}', source="shop", idempotency_key="k")
        appended = await world.append(entries(again))

        assert appended.results == (
            Receipt(event_id=first.id, destinations=("billing",), is_duplicate=True),
        )

    async def test_the_same_idempotency_key_with_another_body_is_a_conflict(
        self, world: World
    ) -> None:
        first = an_event({"n": 1}, source="shop", idempotency_key="k", key="a", tenant="t")
        await world.append(entries(first))

        others = [
            an_event({"n": 2}, source="shop", idempotency_key="k", key="a", tenant="t"),
            an_event(b'{"n":1.0}', source="shop", idempotency_key="k", key="a", tenant="t"),
            an_event(
                {"n": 1}, type="order.x", source="shop", idempotency_key="k", key="a", tenant="t"
            ),
            an_event({"n": 1}, source="shop", idempotency_key="k", key="b", tenant="t"),
            an_event({"n": 1}, source="shop", idempotency_key="k", key="a", tenant="u"),
        ]
        appended = await world.append(entries(*others))

        assert appended.results == (Conflict(first.id),) * len(others)
        assert len(await world.logged(1)) == 1
        assert len(await world.found(status=Status.PENDING)) == 1

    async def test_an_idempotency_key_counts_within_its_source(self, world: World) -> None:
        await world.append(entries(an_event({"n": 1}, source="shop", idempotency_key="k")))

        await world.append(entries(an_event({"n": 2}, source="till", idempotency_key="k")))

        assert len(await world.logged(2)) == 2

    async def test_events_without_an_idempotency_key_are_never_duplicates(
        self, world: World
    ) -> None:
        await world.append(entries(an_event({"n": 1}), an_event({"n": 1})))

        assert len(await world.logged(2)) == 2

    async def test_a_duplicate_within_one_batch_stores_once(self, world: World) -> None:
        first = an_event({"n": 1}, idempotency_key="k")
        again = an_event({"n": 1}, idempotency_key="k")

        receipts = await world.receipts(entries(first, again), all_or_nothing=True)

        assert [one.event_id for one in receipts] == [first.id, first.id]
        assert len(await world.logged(1)) == 1

    async def test_a_conflict_within_one_batch_names_the_first(self, world: World) -> None:
        first = an_event({"n": 1}, idempotency_key="k")
        other = an_event({"n": 2}, idempotency_key="k")

        appended = await world.append(entries(first, other, an_event()))

        assert appended.results[1] == Conflict(first.id)
        assert len(await world.logged(2)) == 2

    async def test_all_or_nothing_keeps_the_batch_out_for_one_conflict(self, world: World) -> None:
        first = an_event({"n": 1}, idempotency_key="k")
        await world.append(entries(first))

        appended = await world.append(
            entries(an_event(), an_event({"n": 2}, idempotency_key="k"), an_event()),
            all_or_nothing=True,
        )

        assert appended.results[1] == Conflict(first.id)
        assert len(await world.logged(1)) == 1
        assert len(await world.found(status=Status.PENDING)) == 1

    async def test_an_idempotency_key_is_remembered_after_its_delivery_is_gone(
        self, world: World
    ) -> None:
        delivered = an_event({"n": 1}, idempotency_key="delivered")
        await world.publish(delivered)
        await world.settle(await world.claim_one(), Delivered())
        deleted = an_event({"n": 1}, idempotency_key="deleted")
        await world.store.delete([await world.dead_letter(deleted)], actor=OPERATOR)

        receipts = await world.receipts(
            entries(
                an_event({"n": 1}, idempotency_key="delivered"),
                an_event({"n": 1}, idempotency_key="deleted"),
            )
        )

        assert [one.event_id for one in receipts] == [delivered.id, deleted.id]
        assert await world.found(status=Status.PENDING) == ()

    async def test_a_publisher_that_never_heard_the_answer_may_ask_again(
        self, world: World
    ) -> None:
        event = an_event({"n": 1}, idempotency_key="k")
        plain = an_event({"n": 1})
        answer = await world.append(entries(event, plain))

        again = await world.append(entries(event, plain), all_or_nothing=True)

        assert again == answer
        assert len(await world.logged(2)) == 2
        assert len(await world.found(status=Status.PENDING)) == 2

    async def test_concurrent_publishes_with_one_idempotency_key_store_once(
        self, world: World
    ) -> None:
        await world.version()

        receipts = await asyncio.gather(
            *[world.receipts(entries(an_event({"n": 1}, idempotency_key="k"))) for _ in range(8)]
        )

        assert len({receipt.event_id for [receipt] in receipts}) == 1
        assert len(await world.logged(1)) == 1

    async def test_events_routed_by_an_old_version_are_not_stored(self, world: World) -> None:
        old = await world.version()
        archive = Destination(name="archive", patterns=("*",))
        current = await world.store.register([archive])

        refused = await world.store.append(
            entries(an_event()), routes_version=old, all_or_nothing=False
        )

        assert isinstance(refused, RoutesChanged)
        assert refused.routes.version == current.version > old
        assert refused.routes.destinations == current.routes.destinations
        assert len(await world.logged(0)) == 0
        assert await world.found(status=Status.PENDING) == ()

    async def test_an_unknown_destination_is_refused_and_nothing_stored(self, world: World) -> None:
        with pytest.raises(UsageError, match="nowhere"):
            await world.append([*entries(an_event()), *entries(an_event(), to=["nowhere"])])

        assert len(await world.logged(0)) == 0
        assert await world.found(status=Status.PENDING) == ()

    async def test_a_transaction_the_store_cannot_join_is_refused(self, world: World) -> None:
        version = await world.version()

        with pytest.raises(TransactionError, match="within"):
            await world.store.append(
                entries(an_event()), routes_version=version, all_or_nothing=True, within=object()
            )

        assert len(await world.logged(0)) == 0

    async def test_a_large_batch_is_stored_whole_and_in_order(self, world: World) -> None:
        events = [an_event(number) for number in range(500)]

        await world.append(entries(*events), all_or_nothing=True)

        logged = await world.logged(len(events))
        claim = await world.claim(total=1000)
        assert [one.event.id for one in logged] == [event.id for event in events]
        assert [one.event.id for one in claim.deliveries] == [event.id for event in events]

    async def test_instants_in_other_time_zones_are_the_same_instants(self, world: World) -> None:
        tokyo = timezone(timedelta(hours=9))
        due = world.after("1s").astimezone(tokyo)

        [delivery_id] = await world.publish(an_event(due=due))

        assert (await world.show(delivery_id)).due == due
        assert (await world.claim()).next_due == due

    async def test_what_is_to_be_unique_is_stored_once_in_its_time(self, world: World) -> None:
        span = timedelta(minutes=10)

        async def append(*events: Event[msgspec.Raw], by: str | None = None) -> list[Receipt]:
            given = [Entry(one, ("billing",), unique=Unique(span, by)) for one in events]
            return await world.receipts(given)

        first, twin, other = (an_event({"n": number}) for number in (1, 1, 2))
        elsewhere = an_event({"n": 1}, source="till")
        one, same, new, foreign = await append(first, twin, other, elsewhere)
        world.clock.advance("9m")
        [late] = await append(an_event({"n": 1}))
        [again] = await append(first)
        named = await append(an_event({"n": 3}), an_event({"n": 4}), by="report")
        world.clock.advance("1m")
        [after] = await append(an_event({"n": 1}))
        [still] = await append(an_event({"n": 5}), by="report")

        assert (one.event_id, one.is_duplicate) == (first.id, False)
        assert (again.event_id, again.is_duplicate) == (first.id, False)
        for duplicate in (same, late):
            assert (duplicate.event_id, duplicate.is_duplicate) == (first.id, True)
            assert duplicate.destinations == ("billing",)
        assert [one.is_duplicate for one in (new, foreign, after)] == [False] * 3
        assert [one.is_duplicate for one in (*named, still)] == [False, True, True]
        assert len(await world.read_events()) == 5

    async def test_what_is_refused_holds_no_unique_key(self, world: World) -> None:
        unique = Unique(timedelta(minutes=10), "report")
        used = an_event(1, idempotency_key="k")
        await world.append(entries(used))
        clash = Entry(an_event(2, idempotency_key="k"), ("billing",), unique=unique)
        repeated = Entry(an_event(1, idempotency_key="k"), ("billing",), unique=unique)
        fresh = Entry(an_event(3, idempotency_key="new"), ("billing",), unique=unique)

        await world.append([clash, Entry(an_event(4), ("billing",))], all_or_nothing=True)
        await world.append([repeated])
        stored = await world.receipts([fresh])
        same = Entry(an_event(5, idempotency_key="x"), (), unique=unique)
        [duplicate] = await world.receipts([same])
        [unused] = await world.receipts(entries(an_event(6, idempotency_key="x")))

        assert stored == [Receipt(event_id=fresh.event.id, destinations=("billing",))]
        assert (duplicate.event_id, duplicate.is_duplicate) == (fresh.event.id, True)
        assert not unused.is_duplicate

    async def test_unique_keys_are_forgotten_when_their_time_is_over(self, world: World) -> None:
        unique = Unique(timedelta(minutes=10), "report")
        await world.append([Entry(an_event(1), ("billing",), unique=unique)])
        world.clock.advance("9m")
        await world.store.prune(Retention())
        [held] = await world.receipts([Entry(an_event(2), (), unique=unique)])
        world.clock.advance("2m")
        await world.store.prune(Retention())
        [free] = await world.receipts([Entry(an_event(3), (), unique=unique)])

        assert [one.is_duplicate for one in (held, free)] == [True, False]


class RegistryConformance:
    """`Registry`."""

    async def test_without_destinations_the_version_is_zero(self, world: World) -> None:
        routes = await world.store.routes()

        assert (routes.version, routes.destinations) == (0, ())

    async def test_every_change_of_destinations_raises_the_version_by_one(
        self, world: World
    ) -> None:
        first = await world.store.register([BILLING, LEDGER])
        added = await world.store.register([MAILING])
        changed = await world.declare(msgspec.structs.replace(BILLING, patterns=("*",)))

        assert [first.version, added.version, changed.version] == [1, 2, 3]
        assert changed.routes.destinations_for("anything", None) == ("billing",)

    async def test_registering_the_same_again_changes_nothing(self, world: World) -> None:
        before = await world.store.register([BILLING, LEDGER, MAILING])

        again = await world.store.register([MAILING, BILLING])

        assert again.version == before.version
        assert again.routes.destinations == before.routes.destinations

    async def test_registering_one_destination_leaves_the_others(self, world: World) -> None:
        assert (await world.store.routes()).version == 0
        await world.store.register([BILLING])
        await world.store.register([LEDGER])

        assert (await world.store.routes()).destinations == (BILLING, LEDGER)

    async def test_the_routes_find_destinations_for_a_publisher_without_code(
        self, world: World
    ) -> None:
        await world.store.register([BILLING, LEDGER, MAILING])

        routes = await world.store.routes()

        assert routes.destinations_for("order.paid", None) == ("billing", "ledger", "mailing")
        assert routes.destinations_for("mail.sent", None) == ("mailing",)
        assert routes.destinations_for("other", None) == ()

    async def test_the_routes_know_to_which_tenant_a_destination_belongs(
        self, world: World
    ) -> None:
        owned = {"acme": "acme", "zoe": "zoe", "gold": "gold-*"}
        await world.store.register(
            [
                Destination(name=name, patterns=("order.*",), tenant=tenant)
                for name, tenant in owned.items()
            ]
        )

        routes = await world.store.routes()

        for tenant, names in (("acme", {"acme"}), ("gold-7", {"gold"}), (None, set())):
            found = routes.destinations_for("order.paid", tenant)
            assert owned.keys() & set(found) == names

    async def test_there_is_nothing_to_catch_up_with_when_routes_were_current(
        self, world: World
    ) -> None:
        """What was published before a destination came is not for it, what comes after is."""
        await world.publish(an_event())
        await world.append(entries(an_event(), to=[]))
        await world.store.register([Destination(name="late", patterns=("*",))])
        await world.append(entries(an_event(), to=["late"]))

        added = [(await world.store.catch_up()).added for _ in range(5)]

        assert added == [0] * 5
        assert (await world.figures_of("late")).pending == 1
        assert (await world.store.figures()).unrouted == 1
