"""What a store promises about replays that begin by themselves, and about edits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.limits import Breaker, Limits
from redrive.model.replay import AutoReplay
from redrive.model.settlement import Delivered
from redrive.store import AUTO_REPLAY, Replay
from tests.conformance.letters import CHANGES, edit
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["AutoReplayConformance", "EditConformance"]

_HOURLY = AutoReplay(cron="0 * * * *", batch=3, max_age="1d", cycles=2)


def _is_due(auto_replay: AutoReplay, since: datetime, now: datetime) -> bool:
    assert auto_replay == _HOURLY
    return now - since >= timedelta(hours=1)


async def _with_auto_replay(world: World) -> None:
    """Register a destination that is replayed by itself every hour, and let it be seen."""
    await world.version()
    limits = Limits(breaker=Breaker(failures=1))
    await world.store.register(
        [Destination(name="hourly", patterns=("order.*",), limits=limits, auto_replay=_HOURLY)]
    )
    await _run(world)


async def _run(world: World) -> Sequence[Replay]:
    return await world.store.start_auto_replays(due=_is_due)


async def _finish(world: World) -> list[DeliveryId]:
    """Let every replay run to its end with nothing failing, and return what it sent."""
    sent: list[DeliveryId] = []
    while (advance := await world.store.advance_replays()).steps:
        sent += [one for step in advance.steps for one in step.sent]
        for leased in (await world.claim("hourly")).deliveries:
            await world.settle(leased, Delivered())
    return sent


class AutoReplayConformance:
    """`Replays.start_auto_replays`."""

    async def test_an_auto_replay_counts_from_when_it_is_first_seen(self, world: World) -> None:
        await _with_auto_replay(world)
        await world.dead_letter(to="hourly")

        world.clock.advance("59m")
        early = list(await _run(world))
        world.clock.advance("1m")

        assert early == []
        assert only(await _run(world)).selected == 1

    async def test_an_automatic_replay_is_like_any_other(self, world: World) -> None:
        await _with_auto_replay(world)
        letter = await world.dead_letter(to="hourly")
        await world.dead_letter()
        world.clock.advance("1h")

        replay = only(await _run(world))

        assert (replay.by, replay.why, replay.is_automatic) == (AUTO_REPLAY, "0 * * * *", True)
        assert [one.id for one in await world.store.replays()] == [replay.id]
        entry = (await world.store.audit())[0]
        assert (entry.action, entry.by, entry.count) == ("start_replay", AUTO_REPLAY, 1)
        assert await _finish(world) == [letter]
        assert (await world.show(letter)).auto_replays == 1

    async def test_a_due_time_starts_one_replay_whoever_asks(self, world: World) -> None:
        await _with_auto_replay(world)
        await world.dead_letter(to="hourly")
        world.clock.advance("3h")

        started = await asyncio.gather(*[_run(world) for _ in range(6)])
        await _finish(world)
        await world.dead_letter(to="hourly")

        assert sorted(len(one) for one in started) == [0, 0, 0, 0, 0, 1]
        assert list(await _run(world)) == []

    async def test_a_due_time_with_nothing_to_send_passes(self, world: World) -> None:
        await _with_auto_replay(world)
        world.clock.advance("1h")

        assert list(await _run(world)) == []
        await world.dead_letter(to="hourly")
        assert list(await _run(world)) == []
        assert list(await world.store.replays()) == []

    async def test_a_run_takes_a_batch_in_publish_order(self, world: World) -> None:
        await _with_auto_replay(world)
        letters = [await world.dead_letter(to="hourly") for _ in range(5)]
        world.clock.advance("1h")

        assert only(await _run(world)).selected == 3
        assert await _finish(world) == letters[:3]

    async def test_what_is_too_old_is_left_for_a_person(self, world: World) -> None:
        await _with_auto_replay(world)
        await world.dead_letter(to="hourly")
        world.clock.advance("1h")
        young = await world.dead_letter(to="hourly")
        world.clock.advance("23h30m")

        await _run(world)

        assert await _finish(world) == [young]

    async def test_a_letter_is_sent_by_itself_only_so_often(self, world: World) -> None:
        await _with_auto_replay(world)
        letter = await world.dead_letter(to="hourly")
        runs = []

        for _ in range(4):
            world.clock.advance("1h")
            runs.append(len(await _run(world)))
            await world.store.advance_replays()
            for leased in (await world.claim("hourly")).deliveries:
                await world.fail(leased)
            await world.store.advance_replays()

        assert runs == [1, 1, 0, 0]
        assert (await world.show(letter)).auto_replays == 2

    async def test_letters_that_were_sent_least_often_go_first(self, world: World) -> None:
        """A letter that always fails must not keep the others from their turn."""
        await _with_auto_replay(world)
        letters = [await world.dead_letter(to="hourly") for _ in range(4)]
        world.clock.advance("1h")
        await _run(world)
        await world.store.advance_replays()
        await world.fail(await world.claim_one("hourly"))
        await world.store.advance_replays()
        world.clock.advance("1h")

        await _run(world)

        assert await _finish(world) == letters[1:]

    async def test_nothing_begins_while_the_destination_is_held(self, world: World) -> None:
        await _with_auto_replay(world)
        await world.dead_letter(to="hourly")
        world.clock.advance("1h")

        await world.store.pause("hourly", actor=OPERATOR)
        paused = list(await _run(world))
        await world.store.resume("hourly", actor=OPERATOR)
        await world.store.open_breaker("hourly", until=None, actor=OPERATOR)
        broken = list(await _run(world))
        await world.store.reset_breaker("hourly", actor=OPERATOR)

        assert (paused, broken) == ([], [])
        assert len(await _run(world)) == 1

    async def test_nothing_begins_while_the_last_one_goes_on(self, world: World) -> None:
        await _with_auto_replay(world)
        for _ in range(5):
            await world.dead_letter(to="hourly")
        world.clock.advance("1h")
        await _run(world)
        world.clock.advance("1h")

        meanwhile = list(await _run(world))
        await _finish(world)

        assert meanwhile == []
        assert only(await _run(world)).selected == 2

    async def test_nothing_begins_for_a_destination_that_was_removed(self, world: World) -> None:
        await _with_auto_replay(world)
        await world.dead_letter(to="hourly")
        await world.store.unregister("hourly", actor=OPERATOR)
        world.clock.advance("1h")

        assert list(await _run(world)) == []
        assert list(await world.store.auto_replays()) == []

    async def test_auto_replays_tell_since_when_they_count(self, world: World) -> None:
        await _with_auto_replay(world)
        seen_at = world.now
        world.clock.advance("30m")

        auto_replay = only(await world.store.auto_replays())

        assert (auto_replay.destination, auto_replay.auto_replay) == ("hourly", _HOURLY)
        assert auto_replay.since == seen_at


class EditConformance:
    """`Editing`."""

    async def test_every_later_try_carries_the_edited_payload(self, world: World) -> None:
        event = an_event({}, key="k", tenant="t", idempotency_key="i")
        letter = await world.dead_letter(event)
        payload = b'{"total":1.50,"big":12345678901234567890,"text":"\\u00e9 \xc3\xa9"}'

        assert await edit(world, letter, payload)
        await world.store.replay([letter], actor=OPERATOR)
        first = await world.claim_one()
        await world.retry(first, "0s")
        second = await world.claim_one()
        await world.fail(second)
        await world.store.replay([letter], actor=OPERATOR)
        third = await world.claim_one()

        for leased in (first, second, third):
            assert bytes(leased.event.payload) == payload
            assert msgspec.structs.replace(leased.event, payload=event.payload) == event

    async def test_the_event_stays_as_it_was(self, world: World) -> None:
        event = an_event({})
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.fail(await world.claim_one())
        letter = (await world.find_one(event)).id

        await edit(world, letter)

        assert await world.store.find_event(event.id) == event
        assert [one.event for one in await world.read_events()] == [event]
        assert (await world.claim_one("mailing")).event == event

    async def test_what_was_changed_by_whom_and_why_is_kept(self, world: World) -> None:
        letter = await world.dead_letter(an_event({}))

        await edit(world, letter)

        delivery = await world.show(letter)
        made = only(delivery.edits)
        assert (made.by, made.why, made.at) == ("ada", "it lacked a total", world.now)
        assert (made.changes, made.more) == (CHANGES, 7)
        assert delivery.payload is not None
        assert bytes(delivery.payload) == b'{"total":1}'
        assert delivery.status is Status.FAILED
        entry = only(await world.store.audit())
        assert (entry.action, entry.by, entry.deliveries) == ("edit", "ada", (letter,))

    async def test_only_the_last_edits_are_kept(self, world: World) -> None:
        letter = await world.dead_letter(an_event(0))
        for number in range(world.history + 2):
            payload, before = str(number + 1).encode(), str(number).encode()
            assert await edit(world, letter, payload, before=before, by=f"editor {number}")

        edits = (await world.show(letter)).edits

        assert [one.by for one in edits] == [f"editor {n}" for n in range(2, world.history + 2)]

    async def test_an_edit_of_what_is_no_longer_there_is_refused(self, world: World) -> None:
        """Two people who edit at once must not undo each other unseen."""
        letter = await world.dead_letter(an_event({}))

        answers = await asyncio.gather(
            edit(world, letter, b"1", by="ada"), edit(world, letter, b"2", by="bob")
        )

        assert sorted(answers) == [False, True]
        assert len((await world.show(letter)).edits) == 1

    async def test_only_an_unresolved_dead_letter_can_be_edited(self, world: World) -> None:
        [pending] = await world.publish(an_event({}), to="mailing")
        [delivered] = await world.publish(an_event({}))
        await world.settle(await world.claim_one(), Delivered())
        resolved = await world.dead_letter(an_event({}))
        await world.store.resolve([resolved], actor=OPERATOR)

        for one in (pending, delivered, resolved, DeliveryId(99)):
            assert not await edit(world, one)
        assert (await world.show(pending)).payload is None

    async def test_edit_and_replay_are_one_stroke(self, world: World) -> None:
        letter = await world.dead_letter(an_event({}))

        assert await edit(world, letter, is_replayed=True)

        assert (await world.show(letter)).status is Status.PENDING
        assert only((await world.show(letter)).cycles).replayed_by == "ada"
        assert [one.action for one in await world.store.audit()] == ["replay", "edit"]
        assert bytes((await world.claim_one()).event.payload) == b'{"total":1}'

    async def test_an_edited_payload_can_be_searched(self, world: World) -> None:
        letter = await world.dead_letter(an_event({}))
        await edit(world, letter, b'{"name":"Zaphod"}')

        assert [one.id for one in await world.found(text="zaphod")] == [letter]
