"""Each checker complains when its invariant is broken, and only then."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Lease
from redrive.model.destination import Order
from redrive.model.event import EventId, Receipt
from redrive.model.fairness import Fairness
from redrive.model.gate import Closed, HalfOpen, Open
from redrive.model.limits import Breaker, Limits, Rate
from redrive.model.position import LogPosition
from redrive.model.settlement import Delivered, Failed, FailureReason, Requeued, RetryAt, Snoozed
from redrive.store import FORGOTTEN_AFTER, Appended, Conflict, Entry, Settled
from tests.proof.checkers import CHECKS
from tests.proof.checkers.records import (
    Acknowledged,
    ClockSet,
    Died,
    GivenUp,
    Healed,
    Left,
    Made,
    Modelled,
    Refused,
    Served,
    Silenced,
    Stopped,
    Stopping,
    Wanted,
)
from tests.proof.checkers.scene import FAULT, LEASE, NOW, Scene

EXHAUSTED = Failed(reason=FailureReason.EXHAUSTED, fault=FAULT)
TERMINAL = Failed(reason=FailureReason.TERMINAL, fault=FAULT)
CRASH_LOOP = Failed(reason=FailureReason.CRASH_LOOP, fault=FAULT)


def test_every_checker_has_a_name_and_says_what_must_hold() -> None:
    names = [one.name for one in CHECKS]

    assert len(set(names)) == len(names)
    assert all(one.__doc__ for one in CHECKS)
    assert {int(name.split()[0][1:]) for name in names} == {*range(1, 17)}


def test_an_ordinary_life_breaks_nothing() -> None:
    scene = Scene(order=Order.PARK)
    scene.born()
    scene.publish(key="k")
    scene.publish(key="k")
    scene.retry(scene.claim(1), after=1)
    scene.wait(1)
    lease = scene.claim(1, attempt=2)
    scene.wait(5)
    scene.heartbeat(lease)
    scene.wait(8)
    scene.settle(lease, Delivered())
    scene.settle(scene.claim(2), Snoozed(until=scene.time), outcome="snooze")
    scene.deliver(2)
    scene.hear(Stopping(at=scene.at, worker="w", within=5))
    scene.hear(Stopped(at=scene.at, worker="w"))
    scene.hear(Left(at=scene.at, machine="m", tasks=0))
    scene.hear(Healed(at=scene.at, bound=scene.at))

    assert scene.wrong == []


class TestNothingLost:
    def test_an_acknowledged_event_that_is_not_stored(self) -> None:
        scene = Scene()
        receipt = Receipt(event_id=EventId("e9"), destinations=("d",))
        scene.hear(Acknowledged(at=0, offer=9, receipt=receipt))

        assert scene.wrong == ["I1 lost nothing"]

    def test_a_delivery_that_is_gone(self) -> None:
        scene = Scene()
        scene.publish()
        scene.look(without=[1])

        assert scene.wrong == ["I1 lost nothing"]

    def test_one_that_was_delivered_may_be_pruned_and_is_counted(self) -> None:
        scene = Scene()
        scene.publish()
        scene.deliver(1)
        scene.look(without=[1], pruned=1)
        assert scene.wrong == []

        scene.look(without=[1])
        assert scene.wrong == ["I1 lost nothing"]

    def test_one_that_a_person_deleted(self) -> None:
        scene = Scene()
        scene.publish()
        scene.settle(scene.claim(1), TERMINAL, outcome="terminal")
        scene.call("delete", [1], ids=[1], actor=Actor("me"))
        scene.look(without=[1], deleted=1)

        assert scene.wrong == []


class TestWaitsForSomebody:
    def test_one_that_waits_behind_itself(self) -> None:
        scene = Scene(order=Order.PARK)
        scene.publish(key="k")
        scene.look(behind={1: 1})

        assert scene.wrong == ["I13 waiting"]

    def test_one_that_waits_behind_what_is_over(self) -> None:
        scene = Scene(order=Order.PARK)
        scene.publish(key="k")
        scene.publish(key="k")
        scene.deliver(1)
        scene.look(behind={2: 1})

        assert scene.wrong == ["I13 waiting"]

    def test_one_that_the_store_tells_of(self) -> None:
        scene = Scene()
        scene.publish()
        scene.look(stuck=(DeliveryId(1),))

        assert scene.wrong == ["I13 waiting"]

    def test_one_that_waits_behind_another_is_well(self) -> None:
        scene = Scene(order=Order.PARK)
        scene.publish(key="k")
        scene.publish(key="k")
        scene.look(behind={2: 1})

        assert scene.wrong == []


class TestNoPhantom:
    def test_an_event_that_nobody_offered(self) -> None:
        scene = Scene()
        event = msgspec.structs.replace(Scene().publish(), payload=msgspec.Raw(b"{}"))
        receipt = Receipt(event_id=event.id, destinations=("d",))
        made = (Made(event.id, "d", DeliveryId(1)),)
        scene.call("append", Appended((receipt,)), made=made, entries=[Entry(event, ("d",))])

        assert scene.wrong == ["I2 no phantom"]

    def test_an_event_without_a_delivery_for_each_who_wants_it(self) -> None:
        scene = Scene()
        event = Scene().publish()
        scene.offer(1, event)
        receipt = Receipt(event_id=event.id, destinations=("d",))
        scene.call("append", Appended((receipt,)), entries=[Entry(event, ("d",))])

        assert scene.wrong == ["I2 no phantom"]

    def test_an_idempotency_key_that_is_stored_twice(self) -> None:
        scene = Scene()
        events = [scene.publish(source="s", idempotency_key="i") for _ in range(2)]
        scene.look(events=events)

        assert scene.wrong == ["I2 no phantom"]

    def test_a_receipt_for_another_body(self) -> None:
        scene = Scene()
        event = scene.publish(idempotency_key="i")
        scene.offer(2, msgspec.structs.replace(event, payload=msgspec.Raw(b"2")))
        receipt = Receipt(event_id=event.id, destinations=("d",), is_duplicate=True)
        scene.hear(Acknowledged(at=0, offer=2, receipt=receipt))

        assert scene.wrong == ["I2 no phantom"]

    def test_a_batch_of_which_only_a_part_is_stored(self) -> None:
        scene = Scene()
        event = scene.publish()
        scene.offer(7, event, batch=1)
        scene.offer(8, msgspec.structs.replace(event, payload=msgspec.Raw(b"8")), batch=1)
        scene.look()

        assert scene.wrong == ["I2 no phantom"]

    def test_a_conflict_stores_nothing(self) -> None:
        scene = Scene()
        event = msgspec.structs.replace(scene.publish(), id=EventId("e2"))
        scene.offer(2, event)
        scene.call("append", Appended((Conflict(EventId("e1")),)), entries=[Entry(event, ("d",))])
        scene.hear(Refused(at=0, offer=2))
        scene.look()

        assert scene.wrong == []


class TestLeases:
    def test_a_lease_that_is_settled_twice(self) -> None:
        scene = Scene()
        scene.publish()
        lease = scene.claim(1)
        scene.settle(lease, Delivered())
        scene.settle(lease, Delivered())

        assert "I3 settled once" in scene.wrong

    def test_a_refused_settlement_is_well(self) -> None:
        scene = Scene()
        scene.publish()
        lease = scene.claim(1)
        scene.settle(lease, Delivered())
        scene.settle(lease, Delivered(), refused=True)

        assert scene.wrong == []

    def test_a_settlement_from_an_older_lease(self) -> None:
        scene = Scene()
        scene.publish()
        old = scene.claim(1)
        scene.retry(old)
        scene.claim(1, attempt=2)
        scene.settle(Lease(DeliveryId(1), 0), Delivered())

        assert scene.wrong == ["I4 stale refused"]

    @pytest.mark.parametrize("act", ["settle", "heartbeat"])
    def test_a_lease_that_has_run_out(self, act: str) -> None:
        scene = Scene()
        scene.publish()
        lease = scene.claim(1)
        scene.wait(LEASE.total_seconds())
        if act == "settle":
            scene.settle(lease, Delivered())
        else:
            scene.heartbeat(lease)

        assert scene.wrong == ["I4 stale refused"]

    def test_a_rescue_from_a_lease_that_lasts(self) -> None:
        scene = Scene()
        scene.born()
        scene.publish()
        lease = scene.claim(1)
        scene.rescue(lease, Requeued(when=scene.time, crashes=0))

        assert scene.wrong == ["I4 stale refused"]


class TestReading:
    @pytest.mark.parametrize(
        ("numbers", "is_well"),
        [((1, 2, 3), True), ((1, 3), False), ((1, 2, 2, 3), False), ((1, 3, 2), False)],
        ids=["all", "gap", "twice", "late"],
    )
    def test_every_event_is_read_once_and_in_order(
        self, numbers: tuple[int, ...], *, is_well: bool
    ) -> None:
        scene = Scene(follows=False)
        for number in (1, 2, 3):
            scene.publish()
            scene.deliver(number)
        for number in numbers:
            scene.read(number)
        scene.look(is_final=True)

        assert scene.wrong == ([] if is_well else ["I11 projection"])

    def test_a_key_is_read_in_the_order_of_its_versions(self) -> None:
        scene = Scene(follows=False)
        scene.publish()
        scene.publish()
        scene.read(1, key="k", version=2)
        scene.read(2, key="k", version=1)

        assert scene.wrong == ["I11 projection"]


MODEL = Modelled(
    at=0.0,
    projection="orders",
    keeps_order=True,
    wanted=tuple(Wanted(LogPosition(0, one), EventId(f"e{one}"), "k") for one in (1, 2, 3)),
    applied=(EventId("e1"), EventId("e2"), EventId("e3")),
    handed_over=frozenset(),
    unfinished=frozenset(),
    reached=(LogPosition(0, 3),),
    is_told_caught_up=True,
)


class TestReadModels:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"applied": ["e1"], "reached": 1, "is_told_caught_up": False},
            {"applied": ["e1"], "reached": [1, 3], "is_told_caught_up": False},
            {"applied": ["e1"], "unfinished": ["e2", "e3"]},
            {"applied": ["e1", "e3", "e2"], "handed_over": ["e2"], "keeps_order": False},
            {"applied": ["e3"], "is_reset": True},
        ],
        ids=[
            "all applied",
            "behind",
            "its partition behind",
            "parked",
            "skipped and replayed",
            "still to be emptied",
        ],
    )
    def test_one_that_equals_the_log_is_right(self, changes: dict[str, Any]) -> None:
        assert _wrong_about(changes) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"applied": ["e1", "e2"]},
            {"applied": ["e1", "e2", "e2", "e3"]},
            {"applied": ["e1", "e3", "e2"]},
            {"applied": ["e1", "e3", "e2"], "keeps_order": False},
            {"applied": ["e1", "e3"], "unfinished": ["e2"]},
            {"applied": ["e1", "e2", "e3", "e4"]},
            {"reached": 2, "is_told_caught_up": False},
            {"reached": [1, 3], "is_told_caught_up": False},
            {"unfinished": ["e3"]},
            {"applied": ["e1"], "reached": 1},
            {"applied": ["e1"], "reached": 1, "is_told_caught_up": False, "is_final": True},
            {"is_reset": True, "is_final": True},
        ],
        ids=[
            *("missed", "twice", "out of order", "out of order without failing", "passed"),
            *(
                "phantom",
                "checkpoint behind",
                "partition behind",
                "applied and waiting",
                "untrue lag",
                "never read",
            ),
            "never emptied",
        ],
    )
    def test_one_that_does_not_is_wrong(self, changes: dict[str, Any]) -> None:
        assert set(_wrong_about(changes)) == {"I11 read model"}

    def test_what_a_person_gave_up_may_be_missing(self) -> None:
        scene = Scene()
        scene.hear(GivenUp(at=0.0, projection="orders", event_id=EventId("e2")))
        scene.hear(msgspec.structs.replace(MODEL, applied=(EventId("e1"), EventId("e3"))))

        assert scene.wrong == []


class TestReaders:
    @pytest.mark.parametrize(
        ("then", "wrong"),
        [(["e1", "e2", "e3"], []), (["e1"], ["I11 readers"]), (["e3"], ["I11 readers"])],
        ids=["more", "half built", "another part"],
    )
    def test_they_keep_what_they_had(self, then: list[str], wrong: list[str]) -> None:
        scene = Scene()
        for events in (["e1", "e2"], then):
            scene.hear(_served(events))

        assert scene.wrong == wrong

    def test_what_a_person_gave_up_may_go(self) -> None:
        scene = Scene()
        scene.hear(_served(["e1", "e2"]))
        scene.hear(GivenUp(at=0.0, projection="orders.v2", event_id=EventId("e2")))
        scene.hear(_served(["e1"]))

        assert scene.wrong == []


def _served(events: list[str]) -> Served:
    return Served(at=0.0, projection="orders", events=frozenset(map(EventId, events)))


def _wrong_about(changes: dict[str, Any]) -> list[str]:
    given = dict(changes)
    for name in ("handed_over", "unfinished"):
        given[name] = frozenset(map(EventId, given.get(name, ())))
    if "applied" in given:
        given["applied"] = tuple(map(EventId, given["applied"]))
    if "reached" in given:
        reached = given["reached"]
        parts = [reached] if isinstance(reached, int) else reached
        given["reached"] = tuple(LogPosition(0, one) for one in parts)
    scene = Scene()
    scene.hear(msgspec.structs.replace(MODEL, **given))
    return scene.wrong


class TestOrder:
    def test_a_delivery_that_is_claimed_twice_at_once(self) -> None:
        scene = Scene()
        scene.publish()
        scene.claim(1)
        scene.claim(1)

        assert scene.wrong == ["I5 one at a time"]

    def test_one_that_overtakes_another_of_its_key(self) -> None:
        scene = Scene(order=Order.PARK)
        scene.publish(key="k")
        scene.publish(key="k")
        scene.retry(scene.claim(1), after=60)
        scene.claim(2)

        assert scene.wrong == ["I5 order"]

    def test_other_keys_go_on(self) -> None:
        scene = Scene(order=Order.PARK)
        scene.publish(key="k")
        scene.publish(key="other")
        scene.retry(scene.claim(1), after=60)
        scene.deliver(2)

        assert scene.wrong == []

    @pytest.mark.parametrize(
        ("order", "key", "wrong"),
        [
            (Order.PARK, "k", ["I5 order"]),
            (Order.PARK, "other", []),
            (Order.BLOCK, "other", ["I5 order"]),
            (Order.SKIP, "k", []),
        ],
    )
    def test_behind_a_dead_letter(self, order: Order, key: str, wrong: list[str]) -> None:
        scene = Scene(order=order)
        scene.publish(key="k")
        scene.publish(key=key)
        scene.settle(scene.claim(1), TERMINAL, outcome="terminal")
        scene.claim(2)

        assert scene.wrong == wrong

    @pytest.mark.parametrize(("since", "wrong"), [(1.0, []), (3.0, ["I5 order"])])
    def test_who_claims_need_not_see_a_dead_letter_that_comes_meanwhile(
        self, since: float, wrong: list[str]
    ) -> None:
        scene = Scene(order=Order.BLOCK)
        scene.publish(key="k")
        scene.publish(key="other")
        lease = scene.claim(1)
        scene.wait(2)
        scene.settle(lease, TERMINAL, outcome="terminal")
        scene.wait(2)
        scene.claim(2, since=since)

        assert scene.wrong == wrong


class TestAttempts:
    def test_a_try_that_is_not_counted(self) -> None:
        scene = Scene()
        scene.publish()
        scene.retry(scene.claim(1))
        scene.claim(1, attempt=1)

        assert scene.wrong == ["I6 attempts bounded"]

    def test_a_snooze_that_spends_a_try(self) -> None:
        scene = Scene()
        scene.publish()
        scene.settle(scene.claim(1), Snoozed(until=scene.time), outcome="snooze")
        scene.claim(1, attempt=2)

        assert scene.wrong == ["I6 attempts bounded"]

    def test_one_try_too_many(self) -> None:
        scene = Scene(max_attempts=1)
        scene.publish()
        scene.retry(scene.claim(1))
        scene.claim(1, attempt=2)

        assert scene.wrong == ["I6 settled as answered", "I6 attempts bounded"]

    @pytest.mark.parametrize(
        ("outcome", "settlement", "is_well"),
        [
            ("succeeded", Delivered(), True),
            ("succeeded", RetryAt(when=NOW, fault=FAULT), False),
            ("terminal", TERMINAL, True),
            ("terminal", RetryAt(when=NOW, fault=FAULT), False),
            ("transient", Delivered(), False),
            ("transient", EXHAUSTED, False),
            ("throttled", Snoozed(until=NOW), True),
            ("cancel", Delivered(), False),
        ],
    )
    def test_settled_as_answered(
        self, outcome: str, settlement: Delivered | RetryAt | Failed | Snoozed, *, is_well: bool
    ) -> None:
        scene = Scene()
        scene.publish()
        scene.settle(scene.claim(1), settlement, outcome=outcome)

        assert scene.wrong == ([] if is_well else ["I6 settled as answered"])

    def test_delivered_and_never_sent(self) -> None:
        scene = Scene()
        scene.publish()
        lease = scene.claim(1)
        scene.call("settle", [], batch=[Settled(lease=lease, settlement=Delivered())])

        assert scene.wrong == ["I6 settled as answered"]


class TestCrashes:
    def lost(self, *, dies: bool, silenced: bool = False) -> tuple[Scene, Lease]:
        scene = Scene()
        scene.born()
        scene.publish()
        lease = scene.claim(1)
        if dies:
            scene.hear(Died(at=scene.at, machine="m"))
        if silenced:
            scene.hear(Silenced(at=scene.at, machine="m", why="it is frozen"))
        scene.wait(LEASE.total_seconds())
        return scene, lease

    @pytest.mark.parametrize(
        ("dies", "silenced", "crashes", "is_well"),
        [
            (True, False, 1, True),
            (True, False, 0, False),
            (False, False, 1, False),
            (False, True, 1, True),
            (False, False, 0, True),
        ],
    )
    def test_a_crash_is_counted_and_only_a_crash(
        self, *, dies: bool, silenced: bool, crashes: int, is_well: bool
    ) -> None:
        scene, lease = self.lost(dies=dies, silenced=silenced)
        scene.rescue(lease, Requeued(when=scene.time, crashes=crashes))

        assert scene.wrong == ([] if is_well else ["I6 crashes counted"])

    @pytest.mark.parametrize(("seconds", "is_well"), [(9, False), (10, True)])
    def test_a_crash_of_a_worker_that_was_heard_of_within_a_lease(
        self, *, seconds: int, is_well: bool
    ) -> None:
        scene, lease = self.lost(dies=True)
        scene.heartbeat(Lease(DeliveryId(9), 9), refused=True)
        scene.wait(seconds)
        scene.rescue(lease, Requeued(when=scene.time, crashes=1, last_crash_at=scene.time))

        assert scene.wrong == ([] if is_well else ["I6 crashes counted"])

    def test_a_worker_that_ends_after_it_retired_has_not_crashed(self) -> None:
        scene, lease = self.lost(dies=True)
        scene.call("retire", None, worker="w")
        scene.rescue(lease, Requeued(when=scene.time, crashes=0))

        assert scene.wrong == []

    def test_a_worker_that_was_forgotten_after_a_day_is_not_known_to_have_crashed(self) -> None:
        scene, lease = self.lost(dies=True)
        scene.wait(FORGOTTEN_AFTER.total_seconds())
        scene.heartbeat(Lease(DeliveryId(9), 9), worker="another", refused=True)
        scene.rescue(lease, Requeued(when=scene.time, crashes=0))

        assert scene.wrong == []

    def test_a_crash_of_a_worker_that_had_retired(self) -> None:
        scene, lease = self.lost(dies=True)
        scene.call("retire", None, worker="w")
        scene.wait(LEASE.total_seconds())
        scene.rescue(lease, Requeued(when=scene.time, crashes=1, last_crash_at=scene.time))

        assert scene.wrong == ["I6 crashes counted"]

    def test_condemned_without_having_crashed_alone(self) -> None:
        scene, lease = self.lost(dies=True)
        scene.rescue(lease, CRASH_LOOP)

        assert scene.wrong == ["I6 crashes counted"]

    @pytest.mark.parametrize("is_alone", [True, False])
    def test_a_suspect_runs_alone(self, *, is_alone: bool) -> None:
        scene, lease = self.lost(dies=True)
        scene.rescue(lease, Requeued(when=scene.time, crashes=1))
        scene.born("w2", "m")
        second = scene.claim(1, worker="w2")
        scene.hear(Died(at=scene.at, machine="m"))
        scene.wait(LEASE.total_seconds())
        scene.rescue(second, Requeued(when=scene.time, crashes=2))
        scene.claim(1, worker="w3", is_alone=is_alone)

        assert scene.wrong == ([] if is_alone else ["I6 crashes counted"])


class TestGates:
    LIMITS = Limits(breaker=Breaker(probes=1))

    def opened(self, scene: Scene) -> Open:
        opened = Open(generation=1, since=NOW, until=NOW + timedelta(seconds=60))
        scene.report(scene.change(Closed(), opened), generation=0)
        return opened

    def test_a_claim_while_the_breaker_is_open(self) -> None:
        scene = Scene(limits=self.LIMITS)
        scene.publish()
        self.opened(scene)
        scene.claim(1, breaker_generation=1)

        assert scene.wrong == ["I7 breaker"]

    @pytest.mark.parametrize("spends", [True, False])
    def test_a_failed_probe_spends_no_attempt(self, *, spends: bool) -> None:
        scene = Scene(limits=self.LIMITS)
        scene.publish()
        changes = [scene.change(self.opened(scene), HalfOpen(generation=2, since=NOW, times=1))]
        lease = scene.claim(1, breaker_generation=2, is_probe=True, changes=changes)
        scene.settle(lease, RetryAt(when=scene.time, fault=FAULT, spends=spends))

        assert scene.wrong == (["I6 settled as answered"] if spends else [])

    def test_a_failure_at_a_closed_breaker_spends_an_attempt(self) -> None:
        scene = Scene(limits=self.LIMITS)
        scene.publish()
        scene.settle(scene.claim(1), RetryAt(when=scene.time, fault=FAULT, spends=False))

        assert scene.wrong == ["I6 settled as answered"]

    @pytest.mark.parametrize("claims", [1, 2])
    def test_probes_of_a_breaker_that_is_half_open(self, claims: int) -> None:
        scene = Scene(limits=self.LIMITS)
        scene.publish()
        scene.publish()
        opened = self.opened(scene)
        half_open = HalfOpen(generation=2, since=NOW, times=1)
        changes = [scene.change(opened, half_open)]
        scene.claim(1, breaker_generation=2, is_probe=True, changes=changes)
        if claims > 1:
            scene.claim(2, breaker_generation=2, is_probe=True)

        assert scene.wrong == ([] if claims == 1 else ["I7 breaker"])

    def test_results_of_another_generation_change_nothing(self) -> None:
        scene = Scene(limits=self.LIMITS)
        opened = Open(generation=1, since=NOW)
        scene.report(scene.change(Closed(), opened), generation=7)

        assert scene.wrong == ["I7 breaker"]

    def test_a_claim_while_the_destination_is_paused(self) -> None:
        scene = Scene()
        scene.publish()
        scene.call("pause", answer=True, destination="d", actor=Actor("me"))
        scene.claim(1)

        assert scene.wrong == ["I7 breaker"]

    @pytest.mark.parametrize(("gap", "is_well"), [(0.0, False), (0.5, False), (1.0, True)])
    def test_more_than_the_rate(self, gap: float, *, is_well: bool) -> None:
        scene = Scene(limits=Limits(rate=Rate(per_second=1.0, burst=1.0)))
        for number in (1, 2):
            scene.publish()
            scene.claim(number)
            scene.wait(gap)

        assert scene.wrong == ([] if is_well else ["I8 limits"])

    @pytest.mark.parametrize(("claims", "is_well"), [(2, True), (3, False)])
    def test_a_tenant_has_one_more_when_the_clock_was_set_back(
        self, claims: int, *, is_well: bool
    ) -> None:
        scene = Scene(fairness=Fairness(rate=Rate(per_second=1e-6, burst=1.0)))
        scene.publish(tenant="acme")
        scene.claim(1)
        scene.wait(-60)
        for number in range(2, claims + 1):
            scene.publish(tenant="acme")
            scene.claim(number)

        assert scene.wrong == ([] if is_well else ["I8 limits"])

    def test_more_at_once_than_the_destination_takes(self) -> None:
        scene = Scene(limits=Limits(concurrency=1))
        for number in (1, 2):
            scene.publish()
            scene.claim(number)

        assert scene.wrong == ["I8 limits"]


class TestFairness:
    @pytest.mark.parametrize(("claims", "is_well"), [(2, True), (3, False)])
    def test_a_tenant_waits_one_round(self, claims: int, *, is_well: bool) -> None:
        scene = Scene(fairness=Fairness(turn=1))
        for _ in range(claims):
            scene.publish(tenant="hog")
        scene.publish(tenant="small")
        for number in range(claims):
            scene.claim(number + 1)

        assert scene.wrong == ([] if is_well else ["I9 fairness"])

    @pytest.mark.parametrize("was_a_probe", [True, False])
    def test_what_was_a_probe_waits_for_what_was_not(self, *, was_a_probe: bool) -> None:
        """The next probe is another delivery, whosever it is."""
        scene = Scene(limits=Limits(breaker=Breaker(probes=9)), fairness=Fairness(turn=1))
        for tenant in ("small", "hog", "hog", "hog"):
            scene.publish(tenant=tenant)
        opened, half_open = (
            Open(generation=1, since=NOW),
            HalfOpen(generation=2, since=NOW, times=1),
        )
        scene.report(scene.change(Closed(), opened), generation=0)
        scene.report(scene.change(opened, half_open), generation=1)
        if was_a_probe:
            lease = scene.claim(1, breaker_generation=2, is_probe=True)
            scene.call("release", [], leases=[lease])
        for number in (2, 3, 4):
            scene.claim(number, breaker_generation=2, is_probe=True)

        assert scene.wrong == ([] if was_a_probe else ["I9 fairness"])

    def test_a_tenant_whose_work_is_not_due_waits_for_that(self) -> None:
        scene = Scene(fairness=Fairness(turn=1))
        for _ in range(5):
            scene.publish(tenant="hog")
        scene.publish(tenant="small", due=NOW + timedelta(hours=1))
        for number in range(5):
            scene.claim(number + 1)

        assert scene.wrong == []


class TestReplays:
    def failed(self) -> Scene:
        scene = Scene()
        scene.publish()
        scene.settle(scene.claim(1), TERMINAL, outcome="terminal")
        return scene

    def test_a_replay_begins_a_new_cycle(self) -> None:
        scene = self.failed()
        scene.replay(1)
        scene.claim(1, attempt=1)

        assert scene.wrong == []

    def test_a_replay_of_what_has_not_failed(self) -> None:
        scene = Scene()
        scene.publish()
        scene.replay(1)

        assert scene.wrong == ["I10 one winner"]

    def test_two_winners(self) -> None:
        scene = self.failed()
        scene.replay(1)
        scene.replay(1)

        assert scene.wrong == ["I10 one winner"]

    def test_another_payload(self) -> None:
        scene = Scene()
        event = scene.publish()
        scene.claim(1, event=msgspec.structs.replace(event, payload=msgspec.Raw(b"{}")))

        assert scene.wrong == ["I10 identity kept"]


class TestTimes:
    def test_before_it_is_due(self) -> None:
        scene = Scene()
        scene.publish(due=NOW + timedelta(seconds=5))
        scene.claim(1)

        assert scene.wrong == ["I12 due time"]

    def test_due_once_is_due_though_the_clock_was_set_back(self) -> None:
        scene = Scene()
        scene.publish(due=NOW + timedelta(seconds=5))
        scene.wait(5)
        scene.publish()
        scene.wait(-60)
        scene.claim(1)

        assert scene.wrong == []

    @pytest.mark.parametrize(("came_to", "is_well"), [(4, False), (5, True)])
    def test_due_before_the_clock_was_set_back(self, came_to: int, *, is_well: bool) -> None:
        scene = Scene()
        scene.publish(due=NOW + timedelta(seconds=5))
        scene.hear(ClockSet(at=scene.at, was=NOW + timedelta(seconds=came_to)))
        scene.claim(1)

        assert scene.wrong == ([] if is_well else ["I12 due time"])

    def test_a_lease_of_another_instant_than_its_claim(self) -> None:
        scene = Scene()
        scene.publish()
        scene.claim(1, claimed_at=NOW - timedelta(milliseconds=58))

        assert scene.wrong == ["I12 due time"]

    def test_past_its_deadline(self) -> None:
        scene = Scene()
        scene.publish(deadline=NOW + timedelta(seconds=5))
        scene.wait(5)
        scene.claim(1)

        assert scene.wrong == ["I12 due time"]

    def test_of_another_generation(self) -> None:
        scene = Scene()
        scene.publish(generation="blue")
        scene.claim(1)

        assert scene.wrong == ["I12 due time"]


class TestEndings:
    @pytest.mark.parametrize(("bound", "is_well"), [(100.0, True), (0.0, False)])
    def test_work_that_does_not_settle(self, bound: float, *, is_well: bool) -> None:
        scene = Scene()
        scene.publish()
        scene.hear(Healed(at=0, bound=bound))
        scene.look(is_final=True)

        assert scene.wrong == ([] if is_well else ["I13 liveness"])

    def test_figures_that_are_wrong(self) -> None:
        scene = Scene()
        scene.publish()
        scene.look(deleted=1)

        assert scene.wrong == ["I14 counters"]

    def test_a_worker_that_stops_too_late(self) -> None:
        scene = Scene()
        scene.born()
        scene.hear(Stopping(at=0, worker="w", within=5))
        scene.hear(Stopped(at=6, worker="w"))

        assert scene.wrong == ["I15 shutdown"]

    def test_what_is_both_settled_and_given_back(self) -> None:
        scene = Scene()
        scene.publish()
        lease = scene.claim(1)
        scene.settle(lease, Delivered())
        scene.call("release", [lease], leases=[lease])

        assert scene.wrong == ["I15 shutdown"]

    def test_tasks_that_are_left_behind(self) -> None:
        scene = Scene()
        scene.hear(Left(at=0, machine="m", tasks=1))

        assert scene.wrong == ["I16 no drip"]
