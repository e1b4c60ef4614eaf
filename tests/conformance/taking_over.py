"""What a store promises about events that were tried before they were stored."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.delivery import Attempt, Kind, Status
from redrive.model.destination import Destination
from redrive.model.limits import Breaker, Limits, Rate, SharedRate
from redrive.model.outcome import Exchange
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, FailureReason
from redrive.store import Report, Rest, Tried
from tests.conformance.world import OPERATOR, World, a_fault, an_event, entries, ids_of, only

__all__ = ["TakingOverConformance"]

_BREAKER = Breaker(failures=1, open_for=timedelta(seconds=30))


def _an_attempt(world: World) -> Attempt:
    return Attempt(
        number=1,
        started_at=world.now,
        ended_at=world.now,
        worker="tracking",
        result="retry",
        fault=a_fault(group=""),
    )


class TakingOverConformance:
    """Nothing that was tried is lost, and nothing is taken over twice."""

    async def test_a_rest_that_was_not_tried_is_an_ordinary_delivery(self, world: World) -> None:
        await world.version()
        event = an_event({"order": 1}, tenant="acme", key="order-1", priority=5)

        made = await world.store.take_over(
            [Tried(event=event, rest=(Rest(destination="billing"),))]
        )

        leased = await world.claim_one()
        assert made == 1
        assert (leased.event, leased.attempt, leased.kind) == (event, 1, Kind.FIRST)
        assert await world.store.find_event(event.id) == event

    async def test_a_rest_that_was_tried_waits_for_its_retry_and_tells_of_its_try(
        self, world: World
    ) -> None:
        await world.version()
        event, attempt = an_event(), _an_attempt(world)
        exchange = Exchange(method="POST", url="https://a.example", headers={}, size=2, status=503)
        rest = Rest(
            destination="billing",
            due=world.after("5s"),
            kind=Kind.RETRY,
            attempts=1,
            fault=attempt.fault,
            attempt=attempt,
            exchange=exchange,
        )

        await world.store.take_over([Tried(event=event, rest=(rest,))])

        stored = await world.find_one(event)
        assert (stored.status, stored.attempts, stored.log) == (Status.PENDING, 1, (attempt,))
        assert stored.first_failed_at == stored.last_failed_at == world.now
        assert stored.fault == attempt.fault
        found = await world.store.find_delivery(stored.id)
        assert found is not None
        assert found.exchange == exchange
        assert ids_of(await world.claim()) == []
        world.clock.advance("5s")
        leased = await world.claim_one()
        assert (leased.attempt, leased.kind) == (2, Kind.RETRY)

    async def test_a_rest_with_a_reason_is_a_dead_letter_of_its_group(self, world: World) -> None:
        await world.version()
        event = an_event()
        rest = Rest(
            destination="billing", reason=FailureReason.RATE_LIMITED, fault=a_fault(group="limits")
        )

        await world.store.take_over([Tried(event=event, rest=(rest,))])

        letter = await world.find_one(event)
        assert letter.is_dead_letter
        assert (letter.reason, letter.attempts) == (FailureReason.RATE_LIMITED, 0)
        assert letter.settled_at == letter.first_failed_at == letter.last_failed_at == world.now
        assert only(await world.found(group="limits", status=Status.FAILED)) == letter
        await world.store.replay([letter.id], actor=OPERATOR)
        assert (await world.claim_one()).event == event

    async def test_what_was_taken_over_is_not_taken_over_again(self, world: World) -> None:
        await world.version()
        tried = Tried(event=an_event(), arrived=("mailing",), rest=(Rest(destination="billing"),))

        made = [await world.store.take_over([tried, tried]), await world.store.take_over([tried])]

        assert made == [1, 0]
        await world.settle(await world.claim_one(), Delivered())
        assert await world.store.take_over([tried]) == 0
        assert ids_of(await world.claim()) == []

    async def test_what_was_taken_over_and_pruned_is_not_taken_over_again(
        self, world: World
    ) -> None:
        await world.version()
        tried = Tried(event=an_event(), rest=(Rest(destination="billing"),))
        await world.store.take_over([tried])
        await world.settle(await world.claim_one(), Delivered())
        world.clock.advance("2d")
        pruned = await world.store.prune(Retention(delivered=timedelta(days=1)))

        again = await world.store.take_over([tried])

        assert (pruned.delivered, again) == (1, 0)

    async def test_what_fails_elsewhere_later_joins_the_same_event(self, world: World) -> None:
        await world.version()
        event = an_event(key="k")
        await world.store.take_over([Tried(event=event, rest=(Rest(destination="billing"),))])

        made = await world.store.take_over(
            [Tried(event=event, rest=(Rest(destination="billing"), Rest(destination="mailing")))]
        )

        assert made == 1
        assert (await world.find_one(event, "mailing")).event_id == event.id
        assert [one.version for one in await world.store.read_key("k")] == [1]

    async def test_where_an_event_has_arrived_it_is_not_given_again(self, world: World) -> None:
        await world.version()
        event = an_event()
        await world.store.take_over(
            [Tried(event=event, arrived=("mailing",), rest=(Rest(destination="billing"),))]
        )

        log = await world.store.read_log("mailing")

        assert [position for position, _ in log.missing] == []
        assert len(log.given) == 1

    async def test_a_later_arrival_is_noted_of_events_that_are_known_alone(
        self, world: World
    ) -> None:
        await world.version()
        known, unknown = an_event(), an_event()
        await world.store.take_over([Tried(event=known, rest=(Rest(destination="billing"),))])

        made = await world.store.take_over(
            [Tried(event=one, arrived=("mailing",)) for one in (known, unknown)]
        )

        log = await world.store.read_log("mailing")
        assert made == 0
        assert len(log.given) == 1
        assert log.missing == ()
        assert await world.store.find_event(unknown.id) is None

    async def test_what_is_taken_over_joins_its_lane_at_the_end(self, world: World) -> None:
        first, *others = [an_event({"n": number}, key="k") for number in range(3)]
        await world.publish(first, to="ledger")

        await world.store.take_over(
            [Tried(event=one, rest=(Rest(destination="ledger"),)) for one in others]
        )

        seen = []
        for _ in range(3):
            leased = only((await world.claim("ledger")).deliveries)
            seen.append(leased.event)
            await world.settle(leased, Delivered())
        assert seen == [first, *others]

    async def test_a_publish_after_what_was_taken_over_waits_behind_it(self, world: World) -> None:
        await world.version()
        tracked, published = an_event(key="k"), an_event(key="k")
        await world.store.take_over([Tried(event=tracked, rest=(Rest(destination="ledger"),))])
        await world.append(entries(published, to=["ledger"]))

        leased = only((await world.claim("ledger")).deliveries)

        assert leased.event == tracked

    async def test_a_destination_that_is_not_known_is_added_as_removed(self, world: World) -> None:
        await world.version()
        event = an_event()

        await world.store.take_over([Tried(event=event, rest=(Rest(destination="gone"),))])

        assert (await world.find_one(event, "gone")).status is Status.PENDING
        assert "gone" not in [one.name for one in (await world.store.routes()).destinations]

    async def test_the_deadline_of_what_is_taken_over_is_that_of_its_destination(
        self, world: World
    ) -> None:
        brief = Destination(name="brief", patterns=("*",), expire_after=timedelta(minutes=1))
        await world.declare(brief)
        event = an_event()

        await world.store.take_over([Tried(event=event, rest=(Rest(destination="brief"),))])

        assert (await world.find_one(event, "brief")).deadline == world.after("1m")

    async def test_an_open_gate_admits_what_is_wanted(self, world: World) -> None:
        version = await world.version()

        admissions = await world.store.admit({"billing": 7, "nobody": 1})

        assert {name: one.passes for name, one in admissions.of.items()} == {"billing": 7}
        assert (admissions.routes_version, admissions.paused) == (version, ())

    async def test_a_gate_that_is_not_fully_open_admits_nothing(self, world: World) -> None:
        slow = Limits(breaker=_BREAKER)
        await world.declare(
            Destination(name="down", patterns=("*",), limits=slow),
            Destination(name="slowed", patterns=("*",), limits=slow),
            Destination(name="paused", patterns=("*",), limits=slow),
            Destination(name="open", patterns=("*",), limits=slow),
        )
        await world.store.report(
            [
                Report(destination="down", generation=0, is_success=False),
                Report(destination="slowed", generation=0, slow_for=timedelta(seconds=30)),
            ],
            chance=0.0,
        )
        await world.store.pause("paused", actor=OPERATOR)
        wanted = dict.fromkeys(("down", "slowed", "paused", "open"), 1)

        shut = await world.store.admit(wanted)
        world.clock.advance("31s")
        probing = await world.store.admit(wanted)

        passes = {name: one.passes for name, one in shut.of.items()}
        assert passes == {"down": 0, "slowed": 0, "paused": 0, "open": 1}
        assert probing.of["down"].passes == 0
        assert probing.of["slowed"].passes == 1

    async def test_a_gate_whose_ramp_goes_on_admits_nothing(self, world: World) -> None:
        await world.declare(
            Destination(name="back", patterns=("*",), limits=Limits(breaker=_BREAKER))
        )
        await world.store.pause("back", actor=OPERATOR)
        await world.store.resume("back", actor=OPERATOR)

        begun = await world.store.admit({"back": 1})
        world.clock.advance("1h")
        over = await world.store.admit({"back": 1})

        assert (begun.of["back"].passes, over.of["back"].passes) == (0, 1)

    async def test_tokens_are_taken_in_blocks_and_by_all_together(self, world: World) -> None:
        limits = Limits(rate=Rate(per_second=10.0, burst=10.0))
        await world.declare(Destination(name="limited", patterns=("*",), limits=limits))
        event = an_event()

        first = await world.store.admit({"limited": 6})
        second = await world.store.admit({"limited": 6})
        await world.publish(event, to="limited")
        nothing = await world.claim("limited")
        world.clock.advance("1s")
        later = await world.claim("limited")

        assert (first.of["limited"].passes, second.of["limited"].passes) == (6, 4)
        assert ids_of(nothing) == []
        assert len(ids_of(later)) == 1

    async def test_nothing_is_given_away_of_a_rate_that_is_shared(self, world: World) -> None:
        limits = Limits(shared_rate=SharedRate("acme", "100/s"))
        await world.declare(Destination(name="sharing", patterns=("*",), limits=limits))

        assert (await world.store.admit({"sharing": 1})).of["sharing"].passes == 0

    async def test_tenants_that_are_paused_are_told(self, world: World) -> None:
        await world.version()
        await world.store.pause_tenant("acme", destination=None, actor=OPERATOR)
        await world.store.pause_tenant("blue", destination="billing", actor=OPERATOR)

        admissions = await world.store.admit({"billing": 1})

        assert sorted(admissions.paused, key=str) == [("acme", None), ("blue", "billing")]
