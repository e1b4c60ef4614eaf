"""What a store promises about the steps of a replay: what is sent, when, and what stops it."""

from __future__ import annotations

import asyncio

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Kind, Status
from redrive.model.destination import Destination, Order
from redrive.model.limits import Rate
from redrive.model.replay import ReplayState
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt
from redrive.store import NewReplay, Rescue, Selection
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
    blame,
    only,
)

__all__ = ["SendingConformance"]


class SendingConformance:
    """`Replays.advance_replays`."""

    async def test_one_goes_first_and_twice_as_many_after_each_success(self, world: World) -> None:
        letters = await letters_of(world, 20)
        replay = await start(world, largest_wave=8)
        waves = []

        while wave := await advance(world):
            waves.append(wave)
            assert sorted(await deliver(world)) == wave

        after = await found(world, replay)
        assert [len(wave) for wave in waves] == [1, 2, 4, 8, 5]
        assert [one for wave in waves for one in wave] == letters
        assert counts_of(after) == (20, 20, 20, 0, 0)
        assert after.state is ReplayState.DONE

    async def test_a_wave_waits_for_every_letter_of_the_one_before(self, world: World) -> None:
        await letters_of(world, 9)
        await start(world, canary=2)
        await advance(world)
        delivered, slow = (await world.claim()).deliveries
        await world.settle(delivered, Delivered())

        early = await advance(world)
        await world.settle(slow, RetryAt(when=world.after("10s"), fault=a_fault()))
        still = await advance(world)
        world.clock.advance("10s")
        await deliver(world)

        assert (early, still) == ([], [])
        assert len(await advance(world)) == 4

    async def test_a_letter_that_is_sent_begins_a_cycle_of_the_one_who_started(
        self, world: World
    ) -> None:
        letter = await world.dead_letter()
        new = NewReplay(selection=EVERYTHING, generation="green")
        replay = await world.store.start_replay(new, actor=Actor("eve", "deployed"))
        assert replay is not None

        await advance(world)

        delivery = await world.show(letter)
        assert (delivery.status, delivery.kind) == (Status.PENDING, Kind.REPLAY)
        assert (delivery.generation, delivery.replay) == ("green", replay.id)
        assert only(delivery.cycles).replayed_by == "eve"
        assert delivery.due == world.now

    async def test_a_failed_canary_stops_the_replay(self, world: World) -> None:
        letters = await letters_of(world, 5)
        replay = await start(world, failure_limit=1.0)
        await advance(world)

        await world.fail(await world.claim_one())
        await advance(world)

        after = await found(world, replay)
        assert after.state is ReplayState.STOPPED
        assert after.reason == "1 of 1 in the canary failed again"
        assert counts_of(after) == (5, 1, 0, 1, 0)
        for letter in letters[1:]:
            delivery = await world.show(letter)
            assert (delivery.status, delivery.cycles) == (Status.FAILED, ())

    async def test_later_only_too_large_a_share_stops_it(self, world: World) -> None:
        await letters_of(world, 40)
        replay = await start(world, canary=10, failure_limit=0.1)
        await advance(world)
        await deliver(world)
        await advance(world)
        wave = (await world.claim()).deliveries
        assert len(wave) == 20

        for leased in wave[:2]:
            await world.fail(leased)
        await advance(world)
        within = await found(world, replay)
        await world.fail(wave[2])
        await advance(world)
        beyond = await found(world, replay)

        assert within.state is ReplayState.RUNNING
        assert (beyond.state, beyond.reason) == (
            ReplayState.STOPPED,
            "3 of 20 in wave 2 failed again",
        )

    async def test_a_stopped_replay_goes_on_with_a_new_canary(self, world: World) -> None:
        letters = await letters_of(world, 5)
        replay = await start(world, canary=2)
        await advance(world)
        one, other = (await world.claim()).deliveries
        await world.fail(one)
        await advance(world)
        await world.store.steer_replay(replay.id, ReplayState.RUNNING, actor=OPERATOR)

        early = await advance(world)
        await world.settle(other, Delivered())

        assert early == []
        assert await advance(world) == letters[2:4]
        assert await deliver(world) == letters[2:4]
        assert await advance(world) == letters[4:]

    async def test_what_is_settled_after_the_end_stillcounts_of(self, world: World) -> None:
        """Figures of a replay that is over must not lie for ever."""
        await letters_of(world, 4)
        replay = await start(world, canary=3)
        await advance(world)
        first, second, third = (await world.claim()).deliveries
        await world.fail(first)
        await advance(world)

        await world.settle(second, Delivered())
        await world.fail(third)

        after = await found(world, replay)
        assert after.state is ReplayState.STOPPED
        assert counts_of(after) == (4, 3, 1, 2, 0)

    async def test_however_a_letter_ends_it_is_counted_once(self, world: World) -> None:
        """Settled, crashed, cancelled, dropped, expired; and acted on afterwards."""
        await letters_of(world, 4)
        await world.dead_letter(an_event(deadline=world.after("1h")))
        replay = await start(world, canary=5)
        sent = await advance(world)
        delivered, crashed = (await world.claim(total=2)).deliveries
        await world.settle(delivered, Delivered())
        await world.cancel([sent[2]])
        await world.store.drop([sent[3]], actor=OPERATOR)
        world.clock.advance("1h")
        condemned = Failed(reason=FailureReason.CRASH_LOOP, fault=a_fault())
        await world.store.rescue([Rescue(crashed.lease, condemned)])
        await world.store.expire(blame=blame)

        await world.store.delete([sent[1]], actor=OPERATOR)
        await world.store.resolve([sent[2]], actor=OPERATOR)
        await world.store.replay([sent[4]], actor=OPERATOR)
        await deliver(world)

        assert counts_of(await found(world, replay)) == (5, 5, 1, 4, 0)

    async def test_what_somebody_else_dealt_with_is_skipped(self, world: World) -> None:
        first, replayed, resolved, deleted, again, last = await letters_of(world, 6)
        replay = await start(world, canary=2)
        await world.store.replay([replayed, again], actor=OPERATOR)
        await world.store.resolve([resolved], actor=OPERATOR)
        await world.store.delete([deleted], actor=OPERATOR)
        for leased in (await world.claim()).deliveries:
            await world.fail(leased)

        sent = await advance(world)
        await deliver(world)
        await advance(world)

        after = await found(world, replay)
        assert sent == [first, last]
        assert counts_of(after) == (6, 2, 2, 0, 4)
        assert after.state is ReplayState.DONE

    async def test_of_two_replays_each_letter_is_sent_by_one(self, world: World) -> None:
        letters = await letters_of(world, 6)
        one = await start(world, canary=6)
        other = await start(world, canary=6)

        sent = await advance(world)
        await deliver(world)
        await advance(world)

        counts = [counts_of(await found(world, replay)) for replay in (one, other)]
        assert sorted(sent) == letters
        assert counts == [(6, 6, 6, 0, 0), (6, 0, 0, 0, 6)]

    async def test_what_one_replay_sent_in_vain_the_other_does_not_send_again(
        self, world: World
    ) -> None:
        """It is another failure than the one that was selected."""
        letter = await world.dead_letter()
        one, other = await start(world), await start(world, canary=1)
        await world.store.steer_replay(other.id, ReplayState.PAUSED, actor=OPERATOR)
        await advance(world)
        await world.fail(await world.claim_one())
        await world.store.steer_replay(other.id, ReplayState.RUNNING, actor=OPERATOR)

        sent = await advance(world)

        assert sent == []
        assert (await world.show(letter)).status is Status.FAILED
        assert counts_of(await found(world, one)) == (1, 1, 0, 1, 0)
        assert counts_of(await found(world, other)) == (1, 0, 0, 0, 1)

    async def test_many_who_drive_it_at_once_exceed_no_wave(self, world: World) -> None:
        await letters_of(world, 20)
        replay = await start(world, canary=4)

        advances = await asyncio.gather(*[world.store.advance_replays() for _ in range(8)])

        sent = [one for one_of in advances for step in one_of.steps for one in step.sent]
        assert len(sent) == len(set(sent)) == 4
        assert (await found(world, replay)).sent == 4

    async def test_a_rate_bounds_what_is_sent_in_every_stretch_of_time(self, world: World) -> None:
        await letters_of(world, 40)
        await start(world, canary=40, rate=Rate(per_second=10.0, burst=5.0))
        sent = []

        for _ in range(20):
            sent.append(len(await advance(world)))
            world.clock.advance("100ms")

        for begin in range(20):
            for end in range(begin + 1, 21):
                assert sum(sent[begin:end]) <= 10 * (end - begin - 1) / 10 + 5
        assert sum(sent) == 5 + 15

    async def test_a_rate_says_when_it_goes_on(self, world: World) -> None:
        await letters_of(world, 9)
        replay = await start(world, canary=9, rate=Rate(per_second=2.0, burst=2.0))
        await advance(world)

        step = await world.store.advance_replays()

        assert (step.now, step.next_at) == (world.now, world.after("1s"))
        assert (await found(world, replay)).next_at == world.after("1s")
        assert step.running == 1

    async def test_a_replay_that_waits_for_its_letters_says_no_time(self, world: World) -> None:
        await letters_of(world, 3)
        await start(world)
        await advance(world)

        step = await world.store.advance_replays()

        assert (step.steps, step.running, step.next_at) == ((), 1, None)

    async def test_letters_of_one_key_go_in_publish_order(self, world: World) -> None:
        letters = await world.publish(*[an_event(key="k") for _ in range(4)], to="ledger")
        await world.cancel(letters[1:])
        await world.fail(await world.claim_one("ledger"))
        replay = await start(world, canary=4)
        order = []

        assert await advance(world) == list(letters)
        while ran := await deliver(world, "ledger"):
            order.append(ran)
        await advance(world)

        assert order == [[one] for one in letters]
        assert (await found(world, replay)).state is ReplayState.DONE

    async def test_a_letter_behind_a_dead_letter_that_stays_is_left_alone(
        self, world: World
    ) -> None:
        """Sent, it would only leave the list of dead letters, to wait where nobody looks."""
        head, behind = await world.publish(an_event(key="k"), an_event(key="k"), to="ledger")
        await world.cancel([behind])
        await world.fail(await world.claim_one("ledger"))

        replay = await start(world, Selection(ids=(behind,)))
        await advance(world)

        after = await found(world, replay)
        assert (after.state, counts_of(after)) == (ReplayState.DONE, (1, 0, 0, 0, 1))
        assert (await world.show(behind)).status is Status.FAILED
        assert (await world.show(head)).cycles == ()

    async def test_letters_behind_one_that_fails_again_do_not_hold_the_replay(
        self, world: World
    ) -> None:
        letters = await world.publish(*[an_event(key="k") for _ in range(3)], to="ledger")
        other = await world.dead_letter(an_event(key="other"), to="mailing")
        await world.cancel(letters[1:])
        await world.fail(await world.claim_one("ledger"))
        replay = await start(world, canary=4, failure_limit=1.0)
        await advance(world)
        await world.fail(await world.claim_one("ledger"))

        waiting = await found(world, replay)
        assert await deliver(world, "mailing") == [other]
        await advance(world)

        after = await found(world, replay)
        assert waiting.state is ReplayState.RUNNING
        assert (after.state, counts_of(after)) == (ReplayState.DONE, (4, 4, 1, 1, 0))
        assert after.under_way == 2
        assert after.reason == "2 of the letters sent wait behind a dead letter of their key"

    async def test_the_letters_of_a_destination_that_blocks_go_together(self, world: World) -> None:
        """One that stays behind would hold all the others."""
        strict = Destination(name="strict", patterns=("order.*",), order=Order.BLOCK)
        await world.version()
        await world.store.register([strict])
        letters = await world.publish(*[an_event(key=key) for key in "abc"], to="strict")
        for leased in (await world.claim("strict")).deliveries:
            await world.fail(leased)
        others = await letters_of(world, 2)
        replay = await start(world)

        sent = await advance(world)
        ran = await deliver(world, "strict")
        await advance(world)

        assert sent == ran == list(letters)
        assert await deliver(world) == others
        await advance(world)
        assert counts_of(await found(world, replay)) == (5, 5, 5, 0, 0)

    async def test_a_part_of_the_letters_of_a_destination_that_blocks_is_left_alone(
        self, world: World
    ) -> None:
        """Whatever its key, the one that stays holds all the others."""
        strict = Destination(name="strict", patterns=("order.*",), order=Order.BLOCK)
        await world.version()
        await world.store.register([strict])
        letters = await world.publish(*[an_event(key=key) for key in "kkx"], to="strict")
        await world.cancel(letters)
        selection = Selection(ids=letters[:1])

        survey = await world.store.survey(selection)
        replay = await start(world, selection)
        sent = await advance(world)
        await advance(world)

        after = await found(world, replay)
        assert (sent, survey.behind) == ([], 1)
        assert (after.state, counts_of(after)) == (ReplayState.DONE, (1, 0, 0, 0, 1))
        assert after.behind == 1
        assert after.reason == ("1 skipped, held by a dead letter that was not sent with them")
        assert (await world.show(letters[0])).status is Status.FAILED

    async def test_a_start_that_finds_nothing_uses_no_number(self, world: World) -> None:
        [letter] = await letters_of(world, 1)
        first = await start(world)
        nothing = NewReplay(selection=Selection(ids=(DeliveryId(letter + 1),)))

        assert await world.store.start_replay(nothing, actor=OPERATOR) is None

        assert (await start(world)).id == first.id + 1

    async def test_what_is_sent_wakes_who_waits(self, world: World) -> None:
        await world.dead_letter()
        await start(world)

        assert await world.wakes(lambda: advance(world))
