"""What a store promises about replays of many dead letters, and what a person may tell them."""

from __future__ import annotations

from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.replay import ReplayState
from redrive.model.settlement import FailureReason
from redrive.store import NewReplay, Query, Selection
from tests.conformance.letters import (
    EVERYTHING,
    advance,
    counts_of,
    deliver,
    found,
    letters_of,
    start,
)
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
)

__all__ = ["ReplaysConformance", "SurveyConformance"]


class ReplaysConformance:
    """`Replays`: what a replay is made of, and what a person may tell it."""

    async def test_a_replay_begins_with_what_its_selection_finds(self, world: World) -> None:
        first, _, third = await letters_of(world, 3)
        resolved = await world.dead_letter()
        await world.store.resolve([resolved], actor=OPERATOR)
        await world.dead_letter(to="mailing")

        by_query = await start(world, Selection(query=Query(destination="billing")))
        by_ids = await start(world, Selection(ids=(third, first, third, resolved)))

        assert (by_query.selected, by_ids.selected) == (3, 2)
        assert by_query.destinations == ("billing",)
        assert (by_query.state, by_query.by, by_query.why) == (
            ReplayState.RUNNING,
            OPERATOR.by,
            OPERATOR.why,
        )
        assert (await world.show(first)).status is Status.FAILED

    async def test_nothing_to_replay_leaves_no_trace(self, world: World) -> None:
        await world.version()

        started = await world.store.start_replay(NewReplay(selection=EVERYTHING), actor=OPERATOR)

        assert started is None
        assert list(await world.store.replays()) == []
        assert list(await world.store.audit()) == []

    async def test_what_fails_later_is_counted_and_not_sent(self, world: World) -> None:
        old = await world.dead_letter()
        replay = await start(world)
        world.clock.advance("1s")
        late = await world.dead_letter()

        sent = await advance(world)
        assert await deliver(world) == [old]
        await advance(world)

        after = await found(world, replay)
        assert sent == [old]
        assert (after.state, after.newcomers) == (ReplayState.DONE, 1)
        assert (await world.show(late)).status is Status.FAILED

    async def test_what_fails_again_is_no_newcomer(self, world: World) -> None:
        await letters_of(world, 2)
        replay = await start(world)
        await advance(world)
        world.clock.advance("1s")

        await world.fail(await world.claim_one())

        assert (await found(world, replay)).newcomers == 0

    async def test_each_act_of_a_person_is_on_record(self, world: World) -> None:
        await letters_of(world, 3)
        replay = await start(world)
        for state in (ReplayState.PAUSED, ReplayState.RUNNING, ReplayState.CANCELLED):
            world.clock.advance("1s")
            assert await world.store.steer_replay(replay.id, state, actor=Actor("bob", "because"))
        after = await found(world, replay)
        entries = await world.store.audit()

        assert [(one.action, one.by, one.count, one.detail) for one in reversed(entries)] == [
            ("start_replay", "ada", 3, str(replay.id)),
            ("pause_replay", "bob", 1, str(replay.id)),
            ("resume_replay", "bob", 1, str(replay.id)),
            ("cancel_replay", "bob", 1, str(replay.id)),
        ]
        assert (after.state, after.reason) == (ReplayState.CANCELLED, "because")
        assert (after.changed_by, after.changed_at) == ("bob", world.now)

    async def test_a_paused_replay_sends_nothing_until_it_is_resumed(self, world: World) -> None:
        letters = await letters_of(world, 3)
        replay = await start(world, canary=2)
        await world.store.steer_replay(replay.id, ReplayState.PAUSED, actor=OPERATOR)

        while_paused = await advance(world)
        await world.store.steer_replay(replay.id, ReplayState.RUNNING, actor=OPERATOR)

        assert while_paused == []
        assert await advance(world) == letters[:2]

    async def test_a_cancelled_replay_leaves_the_rest_alone(self, world: World) -> None:
        first, *rest = await letters_of(world, 3)
        replay = await start(world)
        await advance(world)

        await world.store.steer_replay(replay.id, ReplayState.CANCELLED, actor=OPERATOR)
        assert await deliver(world) == [first]

        assert await advance(world) == []
        assert not await world.store.steer_replay(replay.id, ReplayState.RUNNING, actor=OPERATOR)
        assert counts_of(await found(world, replay)) == (3, 1, 1, 0, 0)
        assert [(await world.show(one)).status for one in rest] == [Status.FAILED] * 2

    async def test_acts_that_mean_nothing_change_nothing(self, world: World) -> None:
        await world.dead_letter()
        replay = await start(world)
        store = world.store

        assert not await store.steer_replay(replay.id, ReplayState.RUNNING, actor=OPERATOR)
        assert not await store.steer_replay(replay.id + 1, ReplayState.PAUSED, actor=OPERATOR)
        await advance(world)
        await deliver(world)
        await advance(world)

        assert not await store.steer_replay(replay.id, ReplayState.PAUSED, actor=OPERATOR)
        assert not await store.steer_replay(replay.id, ReplayState.CANCELLED, actor=OPERATOR)
        assert await store.find_replay(replay.id + 1) is None
        assert [one.action for one in await store.audit()] == ["start_replay"]

    async def test_replays_are_listed_the_latest_first(self, world: World) -> None:
        await world.dead_letter()
        first, second, third = [(await start(world)).id for _ in range(3)]

        assert [one.id for one in await world.store.replays(limit=2)] == [third, second]
        assert [one.id for one in await world.store.replays(before=second)] == [first]


class SurveyConformance:
    """`Replays.survey`."""

    async def test_a_survey_counts_what_a_replay_would_take(self, world: World) -> None:
        for tenant in ("a", "b", "b", None):
            await world.dead_letter(an_event(tenant=tenant))
        await world.dead_letter(
            to="mailing", reason=FailureReason.EXHAUSTED, fault=a_fault(group="itches")
        )
        resolved = await world.dead_letter()
        await world.store.resolve([resolved], actor=OPERATOR)

        survey = await world.store.survey(EVERYTHING)

        assert survey.selected == 5
        assert survey.destinations == (("billing", 4), ("mailing", 1))
        assert survey.reasons == ((FailureReason.TERMINAL, 4), (FailureReason.EXHAUSTED, 1))
        assert survey.groups == (("hurts", "all that hurts", 4), ("itches", "all that itches", 1))
        assert survey.tenants == (("b", 2), ("a", 1))
        assert (survey.in_lanes, survey.behind) == (0, 0)

    async def test_a_survey_keeps_to_its_selection_and_changes_nothing(self, world: World) -> None:
        first, second = await letters_of(world, 2)
        await world.dead_letter(to="mailing")
        before = await world.found()

        by_ids = await world.store.survey(Selection(ids=(first, second, first)))
        by_query = await world.store.survey(Selection(query=Query(destination="mailing")))

        assert (by_ids.selected, by_query.selected) == (2, 1)
        assert await world.found() == before
        assert list(await world.store.audit()) == []

    async def test_a_survey_tells_of_lanes(self, world: World) -> None:
        head, behind = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
        await world.cancel([behind])
        await world.fail(await world.claim_one("ledger"))
        await world.dead_letter()

        whole = await world.store.survey(EVERYTHING)
        part = await world.store.survey(Selection(ids=(behind,)))

        assert (whole.selected, whole.in_lanes, whole.behind) == (3, 2, 0)
        assert (part.selected, part.in_lanes, part.behind) == (1, 1, 1)
        assert (await world.show(head)).status is Status.FAILED
