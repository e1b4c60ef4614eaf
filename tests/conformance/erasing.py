"""What a store promises about payloads that are to be gone for good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from redrive.model.access import Scope
from redrive.model.audit import Actor
from redrive.model.delivery import Attempt, DeliveryId, Leased, Status
from redrive.model.destination import Destination
from redrive.model.edit import Change, ChangeKind
from redrive.model.erasure import ErasurePart, ErasureQuery, ErasureTerms, ErasureWaiting
from redrive.model.event import Event, Receipt
from redrive.model.outcome import Addressees, Exchange, Fault
from redrive.model.position import LOG_START
from redrive.model.replay import ReplayState
from redrive.model.request_log import LoggedRequest
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt
from redrive.store import (
    Conflict,
    Entry,
    ErasableSlice,
    ErasedBatch,
    EventQuery,
    NewReplay,
    Query,
    RequestBatch,
    Rest,
    Selection,
    Settled,
    Tried,
    Unique,
)
from tests.conformance.projecting import Reader
from tests.conformance.world import World, an_event, blame, entries, ids_of, only

__all__ = ["PLANTED", "ErasingConformance", "erase", "plant", "planted_event", "planted_query"]

PLANTED = "Xerxes Planted-Name"
"""What a payload says, and with it everything that tells of it."""
_KEY, _TENANT = "key-planted", "tenant-planted"
_OFFICER = Actor(by="ada", why="the customer asked for it")
_EVERYTHING = ErasureTerms(parts=tuple(ErasurePart))
_USUAL = ErasureTerms()
_FAILING = ErasureTerms(waiting=ErasureWaiting.FAIL)
_LATE = Destination(name="late", patterns=("order.*",))


class ErasingConformance:
    """`Erasing`."""

    async def test_of_an_erased_event_nothing_is_told_that_it_said(self, world: World) -> None:
        event = await plant(world)
        assert PLANTED in await _all_told(world, event)

        erased = await erase(world, ErasureQuery(key=_KEY))

        told = await _all_told(world, event)
        assert PLANTED not in told
        assert _KEY in told
        assert erased.events == (event.id,)
        found = await world.store.find_event(event.id)
        assert found is not None
        assert found.erased is not None
        assert found.erased.at == world.now
        assert bytes(found.payload) == b"null"
        assert found == msgspec.structs.replace(event, payload=found.payload, erased=found.erased)

    async def test_the_story_of_an_erased_event_stays(self, world: World) -> None:
        event = await plant(world)
        before = await world.find_one(event)
        whole = await world.show(before.id)

        await erase(world, ErasureQuery(event_ids=(event.id,)))

        after = await world.show(before.id)
        assert (after.attempts, after.reason) == (whole.attempts, whole.reason)
        assert after.settled_at == whole.settled_at
        assert [one.number for one in after.log] == [one.number for one in whole.log]
        assert len(after.cycles) == len(whole.cycles) == 1
        assert only(after.edits).why == only(whole.edits).why
        assert only(after.edits).more == 1
        assert after.fault is not None
        assert whole.fault is not None
        assert after.fault.error_class == whole.fault.error_class
        assert after.fault.group == whole.fault.group

    async def test_key_tenant_headers_and_idempotency_key_are_erased_if_that_is_asked(
        self, world: World
    ) -> None:
        event = await plant(world)

        await erase(world, ErasureQuery(tenant=_TENANT), _EVERYTHING)

        told = await _all_told(world, event)
        for planted in (_KEY, _TENANT, "header-planted", "idempotency-planted"):
            assert planted not in told
        assert await world.store.read_key(_KEY) == ()
        found = only((await world.store.find_events(_all_of(event))).events)
        assert (found.key, found.tenant, found.version) == (None, None, None)

    async def test_a_repeated_publish_of_an_erased_event_is_still_known(self, world: World) -> None:
        event = an_event({"name": PLANTED}, idempotency_key="once", key="a")
        again = an_event({"name": PLANTED}, idempotency_key="once", key="a")
        other = an_event({"name": "another"}, idempotency_key="once", key="a")
        [first] = await world.receipts(entries(event))
        await world.run_all("billing")

        await erase(world, ErasureQuery(event_ids=(event.id,)))

        assert await _append(world, again) == msgspec.structs.replace(first, is_duplicate=True)
        assert await _append(world, other) == Conflict(event.id)
        assert ids_of(await world.claim()) == []

    async def test_a_publish_is_stored_anew_when_its_idempotency_key_was_erased(
        self, world: World
    ) -> None:
        event, again = (an_event({"n": 1}, idempotency_key="once") for _ in range(2))
        entry = Entry(event, ("billing",), unique=Unique(span=timedelta(days=1), by="name"))
        await world.append([entry])
        await world.run_all("billing")

        await erase(world, ErasureQuery(event_ids=(event.id,)), _EVERYTHING)

        result = await _append(world, again)
        assert isinstance(result, Receipt)
        assert result.event_id == again.id
        assert not result.is_duplicate

    async def test_a_key_that_was_erased_begins_anew_unless_it_has_other_events(
        self, world: World
    ) -> None:
        first, second, third = (an_event(key="a") for _ in range(3))
        await world.append(entries(first, second, to=[]))

        await erase(world, ErasureQuery(event_ids=(first.id,)), _EVERYTHING)
        [third_of_key] = await world.receipts(entries(third, to=[]))
        await erase(world, ErasureQuery(key="a"), _EVERYTHING)
        [begun] = await world.receipts(entries(an_event(key="a"), to=[]))

        assert (third_of_key.version, begun.version) == (3, 1)

    async def test_events_that_wait_are_left_until_they_have_arrived(self, world: World) -> None:
        event = an_event({"name": PLANTED})
        await world.publish(event)

        waiting = await erase(world, ErasureQuery(event_ids=(event.id,)))
        leased = await world.claim_one()
        running = await erase(world, ErasureQuery(event_ids=(event.id,)))
        await world.settle(leased, Delivered())
        arrived = await erase(world, ErasureQuery(event_ids=(event.id,)))

        assert waiting == running == ErasedBatch(left=(event.id,))
        assert leased.event == event
        assert arrived.events == (event.id,)

    async def test_events_that_wait_fail_before_they_are_erased_if_that_is_asked(
        self, world: World
    ) -> None:
        [event, running] = [an_event({"name": PLANTED}) for _ in range(2)]
        await world.publish(running)
        leased = await world.claim_one()
        [waiting] = await world.publish(event)
        chosen = ErasureQuery(event_ids=(event.id, running.id))

        erased = await erase(world, chosen, _FAILING)

        assert erased == ErasedBatch(
            events=(event.id,), deliveries=(waiting,), failed=(waiting,), left=(running.id,)
        )
        told = await world.show(waiting)
        assert (told.status, told.reason) == (Status.FAILED, FailureReason.CANCELLED)
        assert told.resolution is not None
        assert ids_of(await world.claim()) == []
        assert not await world.settle(leased, Delivered())

    async def test_dead_letters_of_erased_events_are_resolved_and_never_sent_again(
        self, world: World
    ) -> None:
        event = an_event({"name": PLANTED})
        letter = await world.dead_letter(event)

        await erase(world, ErasureQuery(event_ids=(event.id,)))

        resolution = (await world.show(letter)).resolution
        assert resolution is not None
        assert resolution.by == _OFFICER.by
        assert not await world.store.replay([letter], actor=_OFFICER)
        assert list(await world.store.erased_of([letter, DeliveryId(99)])) == [letter]
        assert await world.groups() == []

    async def test_what_waits_behind_an_erased_dead_letter_goes_on(self, world: World) -> None:
        head, behind = an_event(key="a"), an_event(key="a")
        await world.dead_letter(head, to="ledger")
        [next_one] = await world.publish(behind, to="ledger")
        assert ids_of(await world.claim("ledger")) == []

        await erase(world, ErasureQuery(event_ids=(head.id,)), _EVERYTHING)

        assert ids_of(await world.claim("ledger")) == [next_one]

    async def test_nobody_is_given_an_erased_event_any_more(self, world: World) -> None:
        event = an_event({"name": PLANTED})
        await world.append(entries(event, to=[]))
        await erase(world, ErasureQuery(event_ids=(event.id,)))
        await world.store.register([_LATE])

        missing = (await world.store.read_log("late")).missing
        given = await world.store.backfill("late", [1], actor=_OFFICER)
        taken = await world.store.take_over(
            [Tried(event=event, rest=(Rest(destination="billing"),))]
        )

        assert (missing, given.added, taken) == ((), 0, 0)
        assert ids_of(await world.claim("late", "billing")) == []

    async def test_an_exported_letter_of_an_erased_event_does_not_come_back(
        self, world: World
    ) -> None:
        event = an_event({"name": PLANTED})
        letter_id = await world.dead_letter(event)
        letter = only((await world.store.letters(_failed())).letters)
        await erase(world, ErasureQuery(event_ids=(event.id,)))
        await world.store.delete([letter_id], actor=_OFFICER)

        restored = await world.store.restore([letter], actor=_OFFICER)

        assert (restored.deliveries, restored.known) == ((), 1)

    async def test_a_projection_passes_erased_events_by_and_counts_them(self, world: World) -> None:
        reader = Reader(world)
        await world.version()
        events = [an_event({"name": PLANTED}), an_event()]
        await world.append(entries(*events, to=[]))
        await reader.begin()
        unread = await erase(world, ErasureQuery(event_ids=(events[0].id,)))
        await reader.project(2)
        read = await erase(world, ErasureQuery(event_ids=(events[0].id,)))
        reader.applied.clear()

        await world.store.reset_projection("ledger", to=LOG_START, actor=_OFFICER)
        await reader.begin()
        await reader.project(2)

        rebuild = (await reader.checkpoint()).rebuild
        assert (unread.left, read.events) == ((events[0].id,), (events[0].id,))
        assert reader.applied == [events[1].id]
        assert rebuild is not None
        assert rebuild.erased == 1

    async def test_only_events_within_a_scope_are_erased(self, world: World) -> None:
        mine, others = an_event({"n": 1}, tenant="mine"), an_event({"n": 2}, tenant="others")
        await world.append(entries(mine, others, to=[]))
        both = ErasureQuery(event_ids=(mine.id, others.id))

        at_billing = await erase(world, both, scope=Scope(destinations=("billing",)))
        of_mine = await erase(world, both, scope=Scope(tenant="mine"))

        assert at_billing == ErasedBatch()
        assert of_mine.events == (mine.id,)
        assert of_mine.left == ()
        assert await world.store.find_event(others.id) == others

    async def test_an_erasure_is_audited_by_ids_and_not_by_what_was_erased(
        self, world: World
    ) -> None:
        event = await plant(world)
        delivery = await world.find_one(event)

        await erase(world, ErasureQuery(key=_KEY), _EVERYTHING)

        entry = (await world.store.audit(limit=1))[0]
        assert (entry.action, entry.by, entry.why) == ("erase", _OFFICER.by, _OFFICER.why)
        assert (entry.count, entry.deliveries) == (1, (delivery.id,))
        assert entry.detail == f"by key: {event.id}"

    async def test_what_is_logged_of_an_erased_event_afterwards_says_nothing(
        self, world: World
    ) -> None:
        event = an_event({"name": PLANTED})
        await world.dead_letter(event)
        await erase(world, ErasureQuery(event_ids=(event.id,)))

        late = _request(world, event, DeliveryId(1))
        await world.store.log_requests({"billing": RequestBatch([late], 10)})

        [logged] = await world.store.logged_requests("billing", limit=10)
        assert logged == msgspec.structs.replace(late, error="erased")

    async def test_logs_of_requests_outlive_events_and_are_erased_by_tenant(
        self, world: World
    ) -> None:
        await world.version()
        pruned = _request(world, an_event(tenant=_TENANT), DeliveryId(1))
        other = _request(world, an_event(tenant="other"), DeliveryId(2))
        await world.store.log_requests({"billing": RequestBatch([pruned, other], 10)})

        await world.store.erase_traces(ErasureQuery(tenant=_TENANT), terms=_EVERYTHING)

        logged = await world.store.logged_requests("billing", limit=10)
        assert [(one.error, one.tenant) for one in logged] == [
            (f"no {PLANTED}", "other"),
            ("erased", None),
        ]

    async def test_what_is_remembered_of_a_tenant_is_erased_with_it(self, world: World) -> None:
        await world.publish(an_event(tenant=_TENANT))
        await world.run_all("billing")
        await world.store.pause_tenant(_TENANT, destination=None, actor=_OFFICER)
        query = ErasureQuery(tenant=_TENANT)

        await erase(world, query, _EVERYTHING)
        await world.store.erase_traces(query, terms=_EVERYTHING)

        assert not await world.store.tenants(tenant=_TENANT)

    async def test_what_a_replay_was_started_for_is_erased_once_it_is_over(
        self, world: World
    ) -> None:
        event = await plant(world)
        for sought in (Query(key=_KEY), Query(tenant=_TENANT), Query(text=PLANTED.lower())):
            chosen = Selection(query=sought)
            started = await world.store.start_replay(NewReplay(selection=chosen), actor=_OFFICER)
            assert started is not None
            await world.store.steer_replay(started.id, ReplayState.CANCELLED, actor=_OFFICER)
        query = ErasureQuery(tenant=_TENANT)

        await erase(world, ErasureQuery(event_ids=(event.id,)), _EVERYTHING)
        for one in (query, ErasureQuery(key=_KEY)):
            await world.store.erase_traces(one, terms=_EVERYTHING)

        queries = [one.query for one in await world.store.replays()]
        assert [(one.key, one.tenant, one.text) for one in queries if one] == [
            (None, None, "erased"),
            (None, "erased", None),
            ("erased", None, None),
        ]

    async def test_erasable_events_are_found_slice_by_slice_with_how_they_stand(
        self, world: World
    ) -> None:
        first, second, third = (an_event(tenant="a b") for _ in range(3))
        other = an_event({"said": "a b"}, tenant="other")
        await world.dead_letter(first)
        await world.append(entries(other, to=[]))
        await world.publish(second)
        await world.claim_one()
        await world.publish(third)

        slices = await _slices(world, ErasureQuery(tenant="a b"), limit=2)

        found = [one for piece in slices for one in piece.events]
        assert [(one.event_id, one.dead_letters, one.in_flight, one.pending) for one in found] == [
            (first.id, 1, 0, 0),
            (second.id, 0, 1, 0),
            (third.id, 0, 0, 1),
        ]
        assert sum(one.looked_at for one in slices) == 4

    @pytest.mark.parametrize("query", [ErasureQuery(key="a"), ErasureQuery(tenant="t")])
    async def test_what_is_erased_already_is_not_found_again(
        self, world: World, query: ErasureQuery
    ) -> None:
        await world.append(entries(an_event(key="a", tenant="t"), to=[]))
        await erase(world, query)

        [found] = await _slices(world, query)

        assert (found.events, found.erased) == ((), 1)

    async def test_parts_of_an_erased_event_can_be_erased_later(self, world: World) -> None:
        event = await plant(world)
        usual = await erase(world, ErasureQuery(key=_KEY))
        world.clock.advance("1h")

        later = await erase(world, ErasureQuery(key=_KEY), _EVERYTHING)

        assert usual.events == later.events == (event.id,)
        told = await _all_told(world, event)
        for planted in (_KEY, _TENANT, "header-planted", "idempotency-planted"):
            assert planted not in told
        found = await world.store.find_event(event.id)
        assert found is not None
        assert found.erased is not None
        assert found.erased.at == world.now - timedelta(hours=1)


async def plant(world: World) -> Event[msgspec.Raw]:
    """Have a text said wherever a store can have it, in the story of one dead letter."""
    event = planted_event()
    entry = Entry(event, ("billing",), unique=Unique(span=timedelta(days=1), by="unique-planted"))
    await world.append([entry])
    await _fail_once(world)
    world.clock.advance("1m")
    [letter] = await _fail_for_good(world)
    await _edit(world, letter)
    await world.store.replay([letter], actor=_OFFICER)
    await _fail_once(world)
    world.clock.advance("1m")
    await _fail_for_good(world)
    return event


def planted_event() -> Event[msgspec.Raw]:
    """Return an event that says the text in its payload, and has names to be erased."""
    return an_event(
        {"name": PLANTED, "order": 42},
        key=_KEY,
        tenant=_TENANT,
        source="shop",
        headers={"x-name": "header-planted"},
        idempotency_key="idempotency-planted",
    )


def planted_query() -> ErasureQuery:
    """Return what finds it."""
    return ErasureQuery(tenant=_TENANT)


async def erase(
    world: World,
    query: ErasureQuery,
    terms: ErasureTerms = _USUAL,
    *,
    scope: Scope = Scope(),  # noqa: B008 - a value
) -> ErasedBatch:
    """Erase what a query finds."""
    slices = await _slices(world, query, terms)
    places = [one.position for piece in slices for one in piece.events]
    return await world.store.erase(
        places, terms=terms, by=query.by, blame=blame, actor=_OFFICER, scope=scope
    )


async def _slices(
    world: World, query: ErasureQuery, terms: ErasureTerms = _USUAL, *, limit: int = 100
) -> list[ErasableSlice]:
    found: list[ErasableSlice] = []
    after = 0
    while True:
        piece = await world.store.find_erasable(query, terms=terms, after=after, limit=limit)
        if piece.last is None:
            return found
        found.append(piece)
        after = piece.last


async def _fail_once(world: World) -> None:
    leased = await world.claim_one()
    settlement = RetryAt(when=world.after("1m"), fault=_fault())
    await world.store.settle([_settled(leased, settlement)])
    await _log_request(world, leased)


async def _fail_for_good(world: World) -> Sequence[DeliveryId]:
    leased = await world.claim_one()
    settlement = Failed(reason=FailureReason.TERMINAL, fault=_fault())
    await world.store.settle([_settled(leased, settlement)])
    await _log_request(world, leased)
    return [leased.lease.delivery_id]


def _settled(leased: Leased, settlement: RetryAt | Failed) -> Settled:
    return Settled(
        lease=leased.lease,
        settlement=settlement,
        attempt=Attempt(
            number=leased.attempt,
            started_at=leased.claimed_at,
            ended_at=leased.claimed_at,
            worker="worker-1",
            result="retry",
            fault=_fault(),
        ),
        exchange=Exchange(
            method="POST",
            url=f"https://api.example.com/{PLANTED}",
            headers={"x-name": PLANTED},
            size=20,
            sent=f"name={PLANTED}",
            status=422,
            answer_headers={"x-name": PLANTED},
            body=f"no {PLANTED}",
        ),
        addressees=Addressees(accepted=(PLANTED,), refused={f"{PLANTED}@a.example": "unknown"}),
    )


def _fault() -> Fault:
    return Fault(
        error_class="UnknownCustomerError",
        message=f"no {PLANTED}",
        rule="default",
        code=PLANTED,
        stack=f"in find({PLANTED!r})",
        group="g1",
        title=f"UnknownCustomerError: no {PLANTED}",
    )


async def _log_request(world: World, leased: Leased) -> None:
    request = _request(world, leased.event, leased.lease.delivery_id)
    await world.store.log_requests({"billing": RequestBatch([request], 10)})


def _request(world: World, event: Event[msgspec.Raw], delivery: DeliveryId) -> LoggedRequest:
    return LoggedRequest(
        at=world.now,
        delivery=delivery,
        event_id=event.id,
        event_type=event.type,
        result="retry",
        attempt=1,
        latency=timedelta(seconds=1),
        status="422",
        error=f"no {PLANTED}",
        tenant=event.tenant,
    )


async def _edit(world: World, letter: DeliveryId) -> None:
    event = (await world.show(letter)).event_id
    found = await world.store.find_event(event)
    assert found is not None
    await world.store.edit(
        letter,
        before=found.payload,
        payload=msgspec.Raw(msgspec.json.encode({"name": f"{PLANTED}!"})),
        changes=(
            Change(path="$.name", kind=ChangeKind.CHANGED, before=PLANTED, after=f"{PLANTED}!"),
        ),
        more=0,
        is_replayed=False,
        actor=_OFFICER,
    )


def _failed() -> Query:
    return Query(status=Status.FAILED, with_resolved=True)


def _all_of(event: Event[msgspec.Raw]) -> EventQuery:
    return EventQuery(event_id=event.id)


async def _append(world: World, event: Event[msgspec.Raw]) -> object:
    [result] = (await world.append(entries(event))).results
    return result


async def _all_told(world: World, event: Event[msgspec.Raw]) -> str:
    """Return everything that the store tells of an event, as text."""
    found = [
        await world.store.find_event(event.id),
        await world.logged(1),
        [await world.show((await world.find_one(event)).id)],
        (await world.store.letters(_failed())).letters,
        await world.store.logged_requests("billing", limit=100),
        await world.groups(with_resolved=True),
        await world.store.audit(limit=100),
    ]
    return msgspec.json.encode(found).decode()
