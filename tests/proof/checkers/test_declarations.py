"""What the checker of declarations finds, and what it lets pass."""

from __future__ import annotations

import msgspec

from redrive.model.destination import Destination, Order, Routes
from redrive.model.limits import Limits, Rate
from redrive.store import PUBLISHER, Declarer, Registered
from tests.proof.checkers.records import ClockSet
from tests.proof.checkers.scene import LEASE, Scene

OLD = Destination(name="d", patterns=("*",))
NEW = Destination(name="d", patterns=("*",), order=Order.PARK)


def bring(
    scene: Scene,
    declared: Destination,
    *,
    worker: str = "",
    found: Destination,
    since: float | None = None,
) -> None:
    """Have somebody bring a declaration, after which this one is found to be in force."""
    by = Declarer(worker=worker, lease=LEASE) if worker else PUBLISHER
    answer = Registered(routes=Routes(1, [found]))
    scene.call("register", answer, destinations=[declared], by=by, since=since)


def released() -> Scene:
    """Return a scene where a worker of the old and one of the new release are at work."""
    scene = Scene()
    bring(scene, OLD, found=OLD)
    bring(scene, OLD, worker="old", found=OLD)
    bring(scene, NEW, worker="new", found=NEW)
    return scene


def test_a_new_declaration_of_a_worker_takes_effect() -> None:
    scene = released()

    bring(scene, OLD, worker="old", found=NEW)

    assert scene.wrong == []


def test_a_new_declaration_without_effect_is_found() -> None:
    scene = Scene()
    bring(scene, OLD, found=OLD)
    bring(scene, OLD, worker="old", found=OLD)

    bring(scene, NEW, worker="new", found=OLD)

    assert scene.wrong == ["I2 in force"]


def test_one_that_comes_back_beside_live_workers_is_found() -> None:
    scene = released()

    bring(scene, OLD, worker="old", found=OLD)

    assert scene.wrong == ["I2 in force"]


def test_one_may_come_back_when_the_others_are_silent_or_have_left() -> None:
    for leaves in (True, False):
        scene = released()
        if leaves:
            scene.call("retire", (), worker="new")
        else:
            scene.wait(LEASE.total_seconds())

        bring(scene, OLD, worker="old", found=OLD)

        assert scene.wrong == []


def test_a_heartbeat_keeps_what_a_worker_declares() -> None:
    scene = released()
    scene.wait(6)
    scene.call("heartbeat", [], worker="new", leases=[], lease=LEASE)
    scene.wait(6)

    bring(scene, OLD, worker="old", found=OLD)

    assert scene.wrong == ["I2 in force"]


def test_who_brings_one_back_may_not_hear_of_a_heartbeat_meanwhile() -> None:
    for since, wrong in ((LEASE.total_seconds(), []), (30.0, ["I2 in force"])):
        scene = released()
        scene.wait(LEASE.total_seconds() + 1)
        scene.call("heartbeat", [], worker="new", leases=[], lease=LEASE)

        bring(scene, OLD, worker="old", found=OLD, since=since)

        assert scene.wrong == wrong


def test_who_registers_sees_who_registered_meanwhile() -> None:
    scene = released()
    scene.wait(1)

    bring(scene, OLD, worker="old", found=OLD, since=0.0)

    assert scene.wrong == ["I2 in force"]


def test_who_was_heard_of_by_another_clock_may_seem_silent() -> None:
    scene = released()
    scene.hear(ClockSet(at=scene.at, was=scene.time))

    bring(scene, OLD, worker="old", found=OLD)

    assert scene.wrong == []


def test_who_publishes_may_add_patterns_and_nothing_else() -> None:
    wide = msgspec.structs.replace(OLD, patterns=("*", "mail.sent"))
    for found, wrong in ((wide, []), (NEW, ["I2 in force"])):
        scene = Scene()
        bring(scene, OLD, found=OLD)

        bring(scene, found, found=found)

        assert scene.wrong == wrong


def test_order_is_held_from_when_it_is_in_force() -> None:
    scene = released()
    for _ in range(2):
        scene.publish(key="a")

    scene.claim(2)

    assert scene.wrong == ["I5 order"]


def test_what_failed_while_others_passed_it_by_holds_up_nobody() -> None:
    scene = Scene(order=Order.SKIP)
    skips = scene.destination
    bring(scene, skips, worker="old", found=skips)
    for _ in range(2):
        scene.publish(key="a")
    scene.call("cancel", [1], ids=[1])

    bring(scene, NEW, worker="new", found=NEW)
    scene.claim(2)

    assert scene.wrong == []


def test_starts_are_held_to_the_looser_rate() -> None:
    slow, quick = [
        msgspec.structs.replace(OLD, limits=Limits(rate=Rate(per_second=1, burst=burst)))
        for burst in (1, 3)
    ]
    scene = Scene(limits=slow.limits)
    bring(scene, slow, worker="old", found=slow)
    for _ in range(4):
        scene.publish()
    bring(scene, quick, worker="new", found=quick)
    for number in (1, 2, 3):
        scene.claim(number)
    assert scene.wrong == []

    scene.claim(4)

    assert scene.wrong == ["I8 limits"]
