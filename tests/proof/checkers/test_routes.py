"""Moves, backfills and destinations that come late are watched like everything else."""

from redrive.model.delivery import Kind
from redrive.model.destination import Order
from redrive.model.settlement import Delivered, Failed, FailureReason
from tests.proof.checkers.records import Backfilled
from tests.proof.checkers.scene import FAULT, Scene

TERMINAL = Failed(reason=FailureReason.TERMINAL, fault=FAULT)


def test_an_ordinary_move_and_an_ordinary_backfill_break_nothing() -> None:
    scene = Scene(order=Order.PARK)
    scene.join("e", order=Order.PARK)
    scene.publish(key="k")
    scene.publish(key="k")
    scene.move(1, "e")
    scene.settle(scene.claim(1, destination="e"), Delivered())
    scene.deliver(2)
    scene.backfill("e", 2, first=3)
    scene.settle(scene.claim(3, destination="e", kind=Kind.REPLAY), Delivered())

    assert scene.wrong == []


def test_an_event_is_moved_to_who_has_it() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.backfill("e", 1, first=2)
    scene.move(1, "e")

    assert scene.wrong == ["I2 given once"]


def test_what_is_in_flight_is_moved() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.claim(1)
    scene.move(1, "e")

    assert scene.wrong == ["I2 given once"]


def test_what_was_moved_is_sent_to_where_it_was() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.move(1, "e")
    scene.claim(1, destination="d")

    assert scene.wrong == ["I10 identity kept"]


def test_a_delivery_is_moved_in_front_of_one_of_its_key_in_flight() -> None:
    scene = Scene()
    scene.join("e", order=Order.PARK)
    scene.publish(key="k")
    scene.publish(key="k")
    scene.move(2, "e")
    scene.claim(2, destination="e")
    scene.move(1, "e")

    assert scene.wrong == ["I5 order"]


def test_what_was_moved_is_tried_once_more_than_it_was_but_not_twice() -> None:
    scene = Scene(max_attempts=3)
    scene.join("e", max_attempts=1)
    scene.publish()
    scene.retry(scene.claim(1))
    scene.move(1, "e")
    scene.retry(scene.claim(1, attempt=2, destination="e"))
    assert "I6 attempts bounded" not in scene.wrong

    scene.claim(1, attempt=3, destination="e")

    assert "I6 attempts bounded" in scene.wrong


def test_an_event_is_backfilled_twice() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.backfill("e", 1, first=2)
    scene.backfill("e", 1, first=3)

    assert scene.wrong == ["I2 given once"]


def test_a_backfill_miscounts() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.backfill("e", 1, first=2, told=2)

    assert scene.wrong == ["I2 given once"]


def test_an_event_is_backfilled_behind_a_later_one_of_its_key() -> None:
    scene = Scene()
    scene.join("e", order=Order.PARK)
    scene.publish(key="k")
    scene.publish(key="k")
    scene.move(2, "e")
    scene.backfill("e", 1, first=3)

    assert scene.wrong == ["I5 order"]


def test_a_backfill_leaves_an_event_out() -> None:
    scene = Scene()
    scene.join("e")
    scene.publish()
    scene.publish()
    scene.deliver(1)
    scene.deliver(2)
    scene.backfill("e", 1, first=3)
    scene.settle(scene.claim(3, destination="e", kind=Kind.REPLAY), Delivered())
    scene.hear(Backfilled(at=scene.at, destination="e"))
    scene.look(is_final=True, destinations=())

    assert scene.wrong == ["I1 lost nothing"]


def test_a_delivery_that_was_dropped_is_out_of_the_way_of_its_lane() -> None:
    scene = Scene(order=Order.PARK)
    scene.publish(key="k")
    scene.publish(key="k")
    scene.call("drop", [1], ids=[1])
    scene.deliver(2)

    assert scene.wrong == []


def test_an_event_goes_to_a_destination_that_was_removed() -> None:
    scene = Scene()
    scene.call("unregister", answer=True, destination="d")
    scene.publish()

    assert scene.wrong == ["I2 no phantom"]


def test_an_event_may_be_stored_by_the_routes_of_when_its_transaction_began() -> None:
    scene = Scene()
    scene.wait(2)
    scene.call("unregister", answer=True, destination="d")
    scene.publish(since=1.0)

    assert scene.wrong == []


def test_an_event_is_stored_by_routes_that_had_ended() -> None:
    scene = Scene()
    scene.wait(2)
    scene.call("unregister", answer=True, destination="d")
    scene.wait(2)
    scene.publish(since=3.0)

    assert scene.wrong == ["I2 no phantom"]


def test_an_event_that_was_stored_by_older_routes_gets_what_it_lacks() -> None:
    scene = Scene()
    scene.join("e")
    scene.wait(2)
    scene.register("d", "e")
    scene.publish(since=1.0)
    scene.catch_up(1, first=2)
    scene.deliver(1)
    scene.settle(scene.claim(2, destination="e"), Delivered())
    scene.look(is_final=True, destinations=())

    assert scene.wrong == []


def test_an_event_that_was_stored_by_older_routes_never_gets_what_it_lacks() -> None:
    scene = Scene()
    scene.join("e")
    scene.wait(2)
    scene.register("d", "e")
    scene.publish(since=1.0)
    scene.deliver(1)
    scene.look(is_final=True, destinations=())

    assert scene.wrong == ["I1 lost nothing"]


def test_nothing_is_lacking_of_who_was_removed_meanwhile() -> None:
    scene = Scene()
    scene.join("e")
    scene.wait(2)
    scene.register("d", "e")
    scene.publish(since=1.0)
    scene.call("unregister", answer=True, destination="e")
    scene.deliver(1)
    scene.look(is_final=True, destinations=())

    assert scene.wrong == []


def test_an_event_gets_what_no_routes_since_then_gave_it() -> None:
    scene = Scene()
    scene.join("e")
    scene.wait(1)
    scene.publish()
    scene.catch_up(1, first=2)

    assert scene.wrong == ["I2 given once"]


def test_an_event_gets_what_it_has() -> None:
    scene = Scene()
    scene.join("e")
    scene.register("d", "e")
    scene.publish(since=0.0)
    scene.catch_up(1, first=2)
    scene.catch_up(1, first=3)

    assert scene.wrong == ["I2 given once"]


def test_what_events_get_later_is_miscounted() -> None:
    scene = Scene()
    scene.join("e")
    scene.register("d", "e")
    scene.publish(since=0.0)
    scene.catch_up(1, first=2, told=2)

    assert scene.wrong == ["I2 given once"]
