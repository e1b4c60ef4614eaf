"""Replays by an auto-replay are watched: when they begin, how many they take, how often."""

import pytest

from redrive.model.delivery import DeliveryId
from redrive.model.gate import Closed, Open
from redrive.model.replay import AutoReplay, ReplayState
from redrive.model.settlement import Failed, FailureReason
from redrive.store import AUTO_REPLAY, Advance, Replay, ReplayStep
from tests.proof.checkers.records import Healed
from tests.proof.checkers.scene import FAULT, Scene

EXHAUSTED = Failed(reason=FailureReason.EXHAUSTED, fault=FAULT)


@pytest.fixture
def scene() -> Scene:
    """A destination with a dead letter, that is replayed every minute, two letters at a time."""
    scene = Scene(auto_replay=AutoReplay(cron="* * * * *", batch=2, cycles=1), max_attempts=1)
    scene.publish()
    scene.settle(scene.claim(1), EXHAUSTED)
    return scene


def replay_of(scene: Scene, *, selected: int = 1) -> Replay:
    return Replay(
        id=1,
        state=ReplayState.RUNNING,
        by=AUTO_REPLAY,
        why="* * * * *",
        started_at=scene.time,
        changed_at=scene.time,
        selected=selected,
        destinations=("d",),
    )


def start(scene: Scene, *, selected: int = 1) -> None:
    scene.call("start_auto_replays", [replay_of(scene, selected=selected)])


def send(scene: Scene) -> None:
    step = ReplayStep(replay=replay_of(scene), sent=(DeliveryId(1),))
    scene.call("advance_replays", Advance(now=scene.time, steps=(step,)))


def test_a_replay_when_it_is_due_breaks_nothing(scene: Scene) -> None:
    scene.wait(60)
    start(scene)
    send(scene)
    scene.deliver(1)
    scene.wait(60)
    start(scene)

    assert scene.wrong == []


def test_a_replay_before_it_is_due(scene: Scene) -> None:
    scene.wait(59)
    start(scene)

    assert scene.wrong == ["I12 auto-replay"]


def test_two_replays_for_one_due_time(scene: Scene) -> None:
    scene.wait(60)
    start(scene)
    scene.wait(1)
    start(scene)

    assert scene.wrong == ["I12 auto-replay"]


def test_a_replay_while_the_breaker_is_open(scene: Scene) -> None:
    opened = Open(generation=1, since=scene.time, until=None)
    scene.call("open_breaker", scene.change(Closed(), opened), destination="d")
    scene.wait(60)
    start(scene)

    assert scene.wrong == ["I12 auto-replay"]


def test_a_replay_of_more_than_a_batch(scene: Scene) -> None:
    scene.wait(60)
    start(scene, selected=3)

    assert scene.wrong == ["I12 auto-replay"]


def test_a_letter_that_is_sent_by_itself_too_often(scene: Scene) -> None:
    scene.wait(60)
    start(scene)
    send(scene)
    scene.settle(scene.claim(1), EXHAUSTED)
    send(scene)

    assert scene.wrong == ["I12 auto-replay"]


def test_a_letter_that_no_auto_replay_ever_takes(scene: Scene) -> None:
    scene.hear(Healed(at=scene.at, bound=scene.at))
    scene.look(is_final=True)

    assert "I12 auto-replay" in scene.wrong
