"""The contract of a store as a machine of random steps, each compared with the model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Lease, Status
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId, Receipt
from redrive.model.outcome import Fault
from redrive.model.replay import Pace
from redrive.model.retention import Retention
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.store import (
    Allowance,
    Appended,
    AppendResult,
    ClaimRequest,
    Conflict,
    Entry,
    Figures,
    Later,
    NewReplay,
    Query,
    Rescue,
    Selection,
    Settled,
    Store,
)
from redrive.testing.clock import FakeClock
from tests.proof.grounds import Ground
from tests.proof.ledger import ORDERS, Journey, Ledger, Story, view_of

__all__ = ["Contract", "prove_contract"]

T = TypeVar("T")
ADA = Actor(by="ada", why="the proof")
DESTINATIONS = [
    Destination(name=name, patterns=("thing.*",), order=order) for name, order in ORDERS.items()
]
NAMES = sorted(ORDERS)
_MOST = 1_000
_RECENT = 12
_PUBLISHED_AT = datetime.fromisoformat("2026-01-01T11:59:59.5+00:00")


class Spec(NamedTuple):
    """An event to publish, as the machine draws it; times are seconds from now."""

    key: str | None
    tenant: str | None
    priority: int
    generation: str
    due: int | None
    deadline: int | None
    identity: str | None
    body: int
    to: frozenset[str]


SPECS = st.builds(
    Spec,
    key=st.sampled_from([None, "k1", "k1", "k2"]),
    tenant=st.sampled_from([None, "a", "b"]),
    priority=st.integers(-1, 1),
    generation=st.sampled_from(["default", "default", "default", "green"]),
    due=st.sampled_from([None, None, None, 0, 5, 60]),
    deadline=st.sampled_from([None, None, None, 20, 100]),
    identity=st.sampled_from([None, None, "i1", "i2", "i3"]),
    body=st.integers(0, 1),
    to=st.frozensets(st.sampled_from(NAMES), max_size=4),
)
PICKS = st.lists(st.integers(0, 10_000), min_size=1, max_size=4)
SPANS = st.sampled_from([0, 1, 5, 30, 100, 5000])
WHATS = st.sampled_from(["done", "retry", "retry", "down", "fail", "fail", "snooze"])
SETTLEMENTS = st.tuples(st.integers(0, 10_000), WHATS, SPANS)
ALLOWANCES = st.lists(
    st.builds(
        Allowance,
        destination=st.sampled_from(NAMES),
        total=st.integers(0, 8),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.destination,
)
RETENTIONS = st.sampled_from(
    [
        Retention(),
        msgspec.convert(
            {"delivered": 10.0, "events": 60.0, "idempotency": 60.0}, Retention, strict=False
        ),
        msgspec.convert(
            {"delivered": 0.0, "events": 30.0, "idempotency": 4000.0}, Retention, strict=False
        ),
    ]
)

NOTHING = ClaimRequest(
    worker="w0",
    allowances=(Allowance(destination="free", total=0),),
    generations=("default",),
    limit=1_000,
    lease=timedelta(seconds=1),
)


def _fault(message: str) -> Fault:
    return Fault(error_class="Hurts", message=message, rule="default", group="hurts")


def _blame(destination: str) -> Fault:
    return _fault(f"{destination} never got it")


def _plain(spec: Spec) -> Spec:
    """Return an event that leaves a claim nothing to decide."""
    return spec._replace(
        key=None, tenant=None, priority=0, generation="default", due=None, to=frozenset(["free"])
    )


def _plainly(request: ClaimRequest) -> ClaimRequest:
    """Return what the one worker of a plain run asks for."""
    total = max(one.total for one in request.allowances)
    return msgspec.structs.replace(
        request,
        worker=NOTHING.worker,
        allowances=(Allowance(destination="free", total=total),),
        generations=NOTHING.generations,
    )


def _mostly_done(what: str) -> str:
    return what if what == "snooze" else "done"


class Contract(RuleBasedStateMachine):
    """A store and the model side by side; one class for every store.

    In a plain run nothing has an order, a tenant or a priority, and most attempts succeed: what a
    store does in a quicker way, it does then.
    """

    def __init__(self, ground: Ground, *, is_plain: bool = False) -> None:
        super().__init__()
        self._ground = ground
        self._is_plain = is_plain
        self.model = Ledger()
        self.clock = FakeClock()
        self.leases: list[Lease] = []
        self.replays: dict[int, list[DeliveryId]] = {}
        self.sent: list[Event[msgspec.Raw]] = []
        self._numbers = count(1)
        self._steps = 0
        self._stack = ExitStack()
        # Not `run` of the runner, which asks for the handlers of signals each time.
        self._loop = self._stack.enter_context(asyncio.Runner()).get_loop()
        self._make = self._stack.enter_context(ground.fresh()).make
        self.store: Store = self._make(self.clock)
        self._run(self.store.open())
        self._version = self._run(self.store.register(DESTINATIONS)).version

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def teardown(self) -> None:
        has_failed = sys.exc_info()[0] is not None
        with self._stack:
            try:
                if not has_failed:
                    self._compare()
            finally:
                self._run(self.store.close())

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def after(self, seconds: int) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def picked(self, picks: Sequence[int]) -> list[DeliveryId]:
        ids = sorted(self.model.journeys)
        return [DeliveryId(ids[one % len(ids)]) for one in picks] if ids else [DeliveryId(99)]

    def lease(self, pick: int) -> Lease:
        """Return one of the leases there ever were; mostly a recent one."""
        recent = self.leases[-_RECENT:]
        return self.leases[pick % len(self.leases)] if pick % 4 == 0 else recent[pick % len(recent)]

    # Publishing

    @initialize(specs=st.lists(SPECS, min_size=4, max_size=8))
    def begin(self, specs: list[Spec]) -> None:
        self.publish(specs, all_or_nothing=False)

    @rule(specs=st.lists(SPECS, min_size=1, max_size=5), all_or_nothing=st.booleans())
    def publish(self, specs: list[Spec], *, all_or_nothing: bool) -> None:
        if self._is_plain:
            specs = [_plain(one) for one in specs]
        batch = [self._entry(spec) for spec in specs]
        expected: list[Receipt | Conflict] = []
        fresh: list[tuple[Entry, Spec]] = []
        known = dict(self.model.identities)
        for entry, spec in zip(batch, specs, strict=True):
            identity = None if spec.identity is None else ("proof", spec.identity)
            first = None if identity is None else known.get(identity)
            if first is None:
                story = _story(entry, spec, identity)
                fresh.append((entry, spec))
                expected.append(_receipt(entry))
                if identity is not None:
                    known[identity] = story
            elif first.body == spec.body and first.key == spec.key and first.tenant == spec.tenant:
                expected.append(
                    Receipt(
                        event_id=EventId(first.id),
                        destinations=first.destinations,
                        is_duplicate=True,
                    )
                )
            else:
                expected.append(Conflict(EventId(first.id)))

        answer = self._run(
            self.store.append(batch, routes_version=self._version, all_or_nothing=all_or_nothing)
        )

        assert isinstance(answer, Appended)
        assert [_without_version(one) for one in answer.results] == expected
        if all_or_nothing and any(isinstance(one, Conflict) for one in expected):
            return
        versions = {one.event_id: one.version for one in answer.results if isinstance(one, Receipt)}
        for entry, spec in fresh:
            assert versions[entry.event.id] == self.model.next_version(spec.key)
        noted = [one for entry, spec in fresh for one in self._note(entry, spec)]
        if noted:
            self._learn(noted)

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 10_000))
    def publish_again(self, pick: int) -> None:
        """Ask once more, as somebody does who never heard the answer."""
        event = self.sent[pick % len(self.sent)]
        story = self.model.stories.get(event.id)
        if story is None:
            return

        answer = self._run(
            self.store.append(
                [Entry(event, story.destinations)],
                routes_version=self._version,
                all_or_nothing=True,
            )
        )

        assert isinstance(answer, Appended)
        assert [_without_version(one) for one in answer.results] == [
            Receipt(event_id=event.id, destinations=story.destinations, is_duplicate=False)
        ]

    def _entry(self, spec: Spec) -> Entry:
        event = Event(
            id=EventId(f"01940000-0000-7000-8000-{next(self._numbers):012x}"),
            type="thing.made",
            payload=msgspec.Raw(str(spec.body).encode()),
            published_at=_PUBLISHED_AT,
            occurred_at=_PUBLISHED_AT,
            key=spec.key,
            tenant=spec.tenant,
            source="proof",
            idempotency_key=spec.identity,
            priority=spec.priority,
            generation=spec.generation,
            due=None if spec.due is None else self.after(spec.due),
            deadline=None if spec.deadline is None else self.after(spec.deadline),
        )
        return Entry(event, tuple(sorted(spec.to)))

    def _note(self, entry: Entry, spec: Spec) -> list[Journey]:
        identity = None if spec.identity is None else ("proof", spec.identity)
        story = _story(entry, spec, identity)
        self.sent.append(entry.event)
        self.model.stories[story.id] = story
        if identity is not None:
            self.model.identities[identity] = story
        if not entry.destinations:
            story.idle_since = self.now
        return [
            Journey(
                story=story,
                destination=name,
                enqueued_at=self.now,
                due=entry.event.due or self.now,
                generation=spec.generation,
                priority=spec.priority,
                deadline=entry.event.deadline,
            )
            for name in entry.destinations
        ]

    def _learn(self, journeys: Sequence[Journey]) -> None:
        """Find out which ids the store gave to deliveries; in each lane they grow."""
        page = self._run(self.store.find(Query(status=Status.PENDING), limit=_MOST))
        ids = {(one.event_id, one.destination): one.id for one in page.deliveries}
        last = max(self.model.journeys, default=0)
        lanes: dict[tuple[str, str], int] = {}
        for one in journeys:
            one.id = ids[EventId(one.story.id), one.destination]
            lane = self.model.lane(one)
            if lane is not None:
                assert one.id > lanes.get(lane, last), "not in publish order"
                lanes[lane] = one.id
            assert one.id not in self.model.journeys
            self.model.journeys[one.id] = one

    # Working

    @rule(
        allowances=ALLOWANCES,
        worker=st.sampled_from(["w1", "w2"]),
        generations=st.sampled_from([("default",), ("default", "green")]),
        limit=st.sampled_from([1_000, 1_000, 1, 5]),
        alone=st.sampled_from([False, False, False, True]),
        span=st.sampled_from([5, 30, 120]),
    )
    def claim(
        self,
        *,
        allowances: list[Allowance],
        worker: str,
        generations: tuple[str, ...],
        limit: int,
        alone: bool,
        span: int,
    ) -> None:
        request = ClaimRequest(
            worker=worker,
            allowances=tuple(allowances),
            generations=generations,
            lease=timedelta(seconds=span),
            limit=limit,
            alone=alone,
        )

        self._claim(request)

    @rule(
        worker=st.sampled_from(["w1", "w2"]),
        span=st.sampled_from([5, 30, 120]),
        total=st.integers(1, 5),
        whats=st.lists(WHATS, max_size=6),
        wait=SPANS,
    )
    def turn(self, worker: str, span: int, total: int, whats: list[str], wait: int) -> None:
        """Claim from everybody and settle some of it, as a worker does."""
        before = len(self.leases)
        if self._is_plain:
            whats = [_mostly_done(one) for one in whats]
        self._claim(
            ClaimRequest(
                worker=worker,
                allowances=tuple(Allowance(destination=name, total=total) for name in NAMES),
                generations=("default", "green"),
                limit=1_000,
                lease=timedelta(seconds=span),
            )
        )
        leases = self.leases[before:]
        batch = [
            Settled(lease=lease, settlement=self._settlement(what, wait))
            for lease, what in zip(leases, whats, strict=False)
        ]
        self._settle(batch)

    def _claim(self, request: ClaimRequest) -> None:
        if self._is_plain:
            request = _plainly(request)
        claim = self._run(self.store.claim(request))

        assert claim.now == self.now
        self.model.follow(request, claim)
        self.leases += [one.lease for one in claim.deliveries]

    @precondition(lambda self: self.leases)
    @rule(choices=st.lists(SETTLEMENTS, min_size=1, max_size=5))
    def settle(self, choices: list[tuple[int, str, int]]) -> None:
        batch = [
            Settled(lease=self.lease(pick), settlement=self._settlement(what, span))
            for pick, what, span in choices
        ]
        self._settle(batch)

    def _settle(self, batch: list[Settled]) -> None:
        refused = []
        for one in batch:
            journey = self._current(one.lease)
            if journey is None:
                refused.append(one.lease)
            else:
                self.model.settle(journey, one.settlement, now=self.now)
        self.model.refused += len(refused)

        assert _sorted(self._run(self.store.settle(batch))) == _sorted(refused)

    def _settlement(self, what: str, span: int) -> Settlement:
        match what:
            case "done":
                return Delivered()
            case "retry":
                return RetryAt(when=self.after(span), fault=_fault(f"again in {span} s"))
            case "down":
                fault = _fault("the destination is down")
                return RetryAt(when=self.after(span), fault=fault, spends=False)
            case "snooze":
                return Snoozed(until=self.after(span))
            case _:
                return Failed(reason=FailureReason.TERMINAL, fault=_fault("for good"))

    def _current(self, lease: Lease) -> Journey | None:
        return self.model.current(lease.delivery_id, lease.token, now=self.now)

    @precondition(lambda self: self.leases)
    @rule(picks=PICKS)
    def release(self, picks: list[int]) -> None:
        leases = list(dict.fromkeys(self.lease(pick) for pick in picks))
        refused = []
        for lease in leases:
            journey = self._current(lease)
            if journey is None:
                refused.append(lease)
            else:
                self.model.release(journey, now=self.now)

        assert _sorted(self._run(self.store.release(leases))) == _sorted(refused)

    @precondition(lambda self: self.leases)
    @rule(picks=PICKS, span=st.sampled_from([5, 60]))
    def extend(self, picks: list[int], span: int) -> None:
        leases = list(dict.fromkeys(self.lease(pick) for pick in picks))
        refused = []
        for lease in leases:
            journey = self._current(lease)
            if journey is None:
                refused.append(lease)
            else:
                journey.lease_until = self.after(span)

        answer = self._run(self.store.heartbeat("w1", leases, lease=timedelta(seconds=span)))

        assert _sorted(answer) == _sorted(refused)

    @precondition(lambda self: self.late_leases())
    @rule(pick=st.integers(0, 10_000), what=st.sampled_from(["settle", "release", "extend"]))
    def act_late(self, pick: int, what: str) -> None:
        """Come back with a lease that ran out, or that somebody else has by now."""
        late = self.late_leases()
        lease = late[pick % len(late)]
        if what == "settle":
            self._settle([Settled(lease=lease, settlement=Delivered())])
        elif what == "release":
            assert list(self._run(self.store.release([lease]))) == [lease]
        else:
            span = timedelta(seconds=60)
            assert list(self._run(self.store.heartbeat("w2", [lease], lease=span))) == [lease]

    def late_leases(self) -> list[Lease]:
        """Return those whose delivery somebody else has leased; without any, those run out."""
        flying = {
            one.id: one for one in self.model.journeys.values() if one.status is Status.IN_FLIGHT
        }
        late = [
            one for one in self.leases if one.delivery_id in flying and self._current(one) is None
        ]
        stale = [one for one in late if flying[one.delivery_id].token != one.token]
        return stale or late

    @rule(seconds=SPANS)
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(is_crash=st.booleans(), condemns=st.booleans(), span=SPANS)
    def rescue(self, *, is_crash: bool, condemns: bool, span: int) -> None:
        found = self._run(self.store.overdue())
        lost = sorted(
            self.model.overdue(self.now), key=lambda one: (one.lease_until or self.now, one.id)
        )
        assert sorted(one.lease.delivery_id for one in found) == sorted(one.id for one in lost)
        instants = [self.model.journeys[one.lease.delivery_id].lease_until for one in found]
        assert instants == sorted(one for one in instants if one is not None)
        batch = []
        for one in found:
            journey = self.model.journeys[one.lease.delivery_id]
            seen = one.lease.token, one.worker, one.attempt, one.crashes, one.was_alone
            assert seen == (
                *(journey.token, journey.worker, journey.attempts),
                *(journey.crashes, journey.is_alone),
            )
            recovery: Requeued | Failed = (
                Failed(reason=FailureReason.CRASH_LOOP, fault=_fault("it kills"))
                if condemns and one.was_alone
                else Requeued(when=self.after(span), crashes=one.crashes + is_crash)
            )
            batch.append(Rescue(one.lease, recovery))
            self.model.rescue(journey, recovery, now=self.now)

        assert list(self._run(self.store.rescue(batch))) == []

    @precondition(lambda self: self.leases)
    @rule(picks=PICKS)
    def rescue_too_soon(self, picks: list[int]) -> None:
        """Whoever decided about a lease that is not overdue, or no longer, is refused."""
        late = {(one.id, one.token) for one in self.model.overdue(self.now)}
        leases = [
            one
            for one in dict.fromkeys(self.lease(pick) for pick in picks)
            if (one.delivery_id, one.token) not in late
        ]
        batch = [Rescue(one, Requeued(when=self.now, crashes=9)) for one in leases]

        assert _sorted(self._run(self.store.rescue(batch))) == _sorted(leases)

    @rule()
    def expire(self) -> None:
        expected = [
            one
            for one in self.model.journeys.values()
            if one.status is Status.PENDING
            and one.deadline is not None
            and one.deadline <= self.now
        ]
        for one in expected:
            one.fail(FailureReason.EXPIRED, _blame(one.destination).message, now=self.now)

        found = self._run(self.store.expire(blame=_blame))

        assert sorted(one.id for one in found) == sorted(one.id for one in expected)

    # Operating

    @precondition(lambda self: self.model.journeys)
    @rule(picks=PICKS, generation=st.sampled_from([None, None, "green"]))
    def replay(self, picks: list[int], generation: str | None) -> None:
        ids = self.picked(picks)
        changed = [one for one in self.model.found(ids) if one.is_dead_letter]
        for one in changed:
            one.again(generation, now=self.now)

        answer = self._run(self.store.replay(ids, actor=ADA, generation=generation))

        self._concluded(answer, changed)

    @precondition(lambda self: self.model.journeys)
    @rule(picks=PICKS, what=st.sampled_from(["resolve", "reopen", "delete", "drop"]))
    def clear(self, picks: list[int], what: str) -> None:
        ids = self.picked(picks[:2])
        found = self.model.found(ids)
        if what == "resolve":
            changed = [one for one in found if one.is_dead_letter]
            for one in changed:
                one.resolved_at = self.now
            answer = self._run(self.store.resolve(ids, actor=ADA))
        elif what == "reopen":
            changed = [one for one in found if one.resolved_at is not None]
            for one in changed:
                one.resolved_at, one.was_passed_by = None, True
            answer = self._run(self.store.reopen(ids, actor=ADA))
        else:
            gone = Status.FAILED if what == "delete" else Status.PENDING
            changed = [one for one in found if one.status is gone]
            self.model.remove(changed, at=self.now)
            self.model.deleted += len(changed)
            remove = self.store.delete if what == "delete" else self.store.drop
            answer = self._run(remove(ids, actor=ADA))

        self._concluded(answer, changed)

    @rule(name=st.sampled_from(NAMES), limit=st.integers(1, 3))
    def discard(self, name: str, limit: int) -> None:
        letters = self._run(self.store.oldest_letters(name, limit=limit))
        dead = sorted(
            (one.finished_at, one.id)
            for one in self.model.journeys.values()
            if one.is_dead_letter and one.destination == name
        )
        assert [one.delivery.id for one in letters] == [number for _, number in dead[:limit]]
        changed = self.model.found(one.delivery.id for one in letters)
        self.model.remove(changed, at=self.now)
        self.model.exported += len(changed)

        answer = self._run(self.store.discard(letters, actor=ADA, detail="to a file"))

        self._concluded(answer, changed)

    @precondition(lambda self: self.model.journeys)
    @rule(
        picks=PICKS,
        what=st.sampled_from(["cancel", "reschedule", "prioritise"]),
        span=SPANS,
        priority=st.integers(-1, 1),
    )
    def intervene(self, picks: list[int], what: str, span: int, priority: int) -> None:
        ids, due = self.picked(picks[:2]), self.after(span)
        changed = [one for one in self.model.found(ids) if one.status is Status.PENDING]
        if what == "cancel":
            for one in changed:
                one.fail(FailureReason.CANCELLED, _blame(one.destination).message, now=self.now)
            answer = self._run(self.store.cancel(ids, blame=_blame, actor=ADA))
        elif what == "reschedule":
            for one in changed:
                one.due = due
            answer = self._run(self.store.reschedule(ids, due=due, actor=ADA))
        else:
            for one in changed:
                one.priority = priority
            answer = self._run(self.store.prioritise(ids, priority=priority, actor=ADA))

        self._concluded(answer, changed)

    def _concluded(self, answer: Sequence[DeliveryId], changed: Sequence[Journey]) -> None:
        assert sorted(answer) == sorted(one.id for one in changed)
        self.model.acted(answer)

    @rule(
        name=st.sampled_from(NAMES), tenant=st.sampled_from([None, "a", "b"]), is_shut=st.booleans()
    )
    def hold(self, *, name: str, tenant: str | None, is_shut: bool) -> None:
        """Pause or resume a destination, or a tenant there; `blocks` stands for everywhere."""
        if tenant is None:
            is_new = (name in self.model.paused) is not is_shut
            change = self.store.pause if is_shut else self.store.resume
            self.model.paused ^= {name} if is_new else set()
            answer = self._run(change(name, actor=ADA))
        else:
            where = None if name == "blocks" else name
            is_new = ((tenant, where) in self.model.paused_tenants) is not is_shut
            hold = self.store.pause_tenant if is_shut else self.store.resume_tenant
            self.model.paused_tenants ^= {(tenant, where)} if is_new else set()
            answer = self._run(hold(tenant, destination=where, actor=ADA))
        self.model.acts += is_new

        assert answer is is_new

    @rule(retention=RETENTIONS)
    def prune(self, retention: Retention) -> None:
        expected = self.model.prune(retention, now=self.now)

        assert self._run(self.store.prunable(retention)) == expected
        assert self._run(self.store.prune(retention)) == expected

    @rule(name=st.sampled_from([None, *NAMES]), wave=st.sampled_from([1, 3, 100]))
    def replay_many(self, name: str | None, wave: int) -> None:
        selected = [
            DeliveryId(one.id)
            for one in self.model.journeys.values()
            if one.is_dead_letter and name in (None, one.destination)
        ]
        pace = Pace(canary=wave, largest_wave=wave, failure_limit=1.0)
        new = NewReplay(selection=Selection(query=Query(destination=name)), pace=pace)

        started = self._run(self.store.start_replay(new, actor=ADA))

        assert (started.selected if started else 0) == len(selected)
        if started is not None:
            self.replays[started.id] = selected
            self.model.acts += 1
        self._advance()

    @precondition(lambda self: self.replays)
    @rule()
    def advance_replays(self) -> None:
        self._advance()

    def _advance(self) -> None:
        for step in self._run(self.store.advance_replays()).steps:
            left = self.replays[step.replay.id]
            for one in step.sent:
                left.remove(one)  # at most once by one replay
                journey = self.model.journeys[one]
                assert journey.is_dead_letter
                journey.again(None, now=self.now)

    @precondition(lambda self: self.store.capabilities.survives_restart)
    @rule()
    def restart(self) -> None:
        self._run(self.store.close())
        self.store = self._make(self.clock)
        self._run(self.store.open())

    # Comparing

    @invariant()
    def store_and_model_agree(self) -> None:
        self._steps += 1
        if self._steps % self._ground.compares_every == 0:
            self._compare()

    def _compare(self) -> None:
        if self._ground.frees_lanes_by_claims:
            self._run(self.store.claim(NOTHING))
        figures, deliveries = self._run(self._look())
        self._compare_deliveries(deliveries)
        self._compare_figures(figures)

    async def _look(self) -> tuple[Figures, list[Delivery]]:
        """Read everything, side by side: that is quicker than one after the other."""
        queries = [Query(status=status, with_resolved=True) for status in Status]
        figures, pages = await asyncio.gather(
            self.store.figures(),
            asyncio.gather(*(self.store.find(one, limit=_MOST) for one in queries)),
        )
        return figures, [one for page in pages for one in page.deliveries]

    def _compare_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        seen = {one.id: view_of(one) for one in deliveries}
        expected = self.model.views()

        assert sorted(seen) == sorted(expected)
        for number, view in expected.items():
            differing = [
                (name, seen[DeliveryId(number)][name], value)
                for name, value in view.items()
                if seen[DeliveryId(number)][name] != value
            ]
            assert not differing, f"Delivery {number}: (what, the store says, it is) {differing}"

    def _compare_figures(self, figures: Figures) -> None:
        model = self.model
        assert figures.events == len(model.stories)
        assert figures.unrouted == sum(not one.destinations for one in model.stories.values())
        counted = (figures.refused_settlements, figures.deleted, figures.exported, figures.pruned)
        assert counted == (model.refused, model.deleted, model.exported, model.pruned.total())
        assert figures.pruned_resolved == model.pruned_resolved
        assert figures.pruned_events == model.pruned_events
        for one in figures.destinations:
            counts = model.count(one.name, now=self.now)
            assert {name: getattr(one, name) for name in counts} == counts, one.name


def _sorted(leases: Sequence[Lease]) -> list[tuple[int, int]]:
    return sorted((one.delivery_id, one.token) for one in leases)


def _story(entry: Entry, spec: Spec, identity: tuple[str, str] | None) -> Story:
    return Story(
        id=entry.event.id,
        key=spec.key,
        tenant=spec.tenant,
        body=spec.body,
        identity=identity,
        destinations=entry.destinations,
    )


def _without_version(result: AppendResult | Later) -> AppendResult | Later:
    return msgspec.structs.replace(result, version=None) if isinstance(result, Receipt) else result


def _receipt(entry: Entry) -> Receipt:
    return Receipt(event_id=entry.event.id, destinations=entry.destinations)


def prove_contract(
    ground: Ground,
    *,
    examples: int,
    steps: int,
    seed: int | None = None,
    shrinks: bool = False,
    is_plain: bool = False,
) -> None:
    """Run the machine; without a seed always in the same way, so that a failure is no chance."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=seed is None,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
    )

    def machine() -> Contract:
        return Contract(ground, is_plain=is_plain)

    if seed is not None:
        hypothesis.seed(seed)(machine)
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type]
