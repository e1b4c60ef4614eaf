"""The ring: whom a worker asks next when it serves many destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

import pytest_asyncio

from redrive.claiming.allowance import Allowance, Places
from redrive.model.audit import Actor
from redrive.model.destination import Destination
from redrive.model.event import DEFAULT_GENERATION
from redrive.model.limits import Breaker, Limits, Rate, SharedRate
from redrive.policies.terms import Terms
from redrive.store import MOST_BYTES, Claim, ClaimRequest, Report, Work
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.transport import Endpoint
from redrive.worker.ring import Ring
from tests.conformance import an_event, entries
from tests.unit.nowhere import Nowhere

MANY = 50
LEASE = timedelta(seconds=30)
ACTOR = Actor(by="ada", why="to see")


class Looks(MemoryStore):
    """A store that counts how often somebody looks for work."""

    looks = 0

    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        self.looks += 1
        return await super().find_work(generations, after=after, limit=limit)


class Round:
    """A worker's claims, one after the other; nothing that was claimed ever ends.

    `limits` are those of `d01`.
    """

    def __init__(
        self,
        *,
        count: int,
        concurrency: int = 100,
        limits: Limits | None = None,
        every: Limits = Limits(),  # noqa: B008 - it never changes
    ) -> None:
        self.clock = FakeClock()
        self.store = Looks(self.clock)
        self.served = {
            f"d{number:02}": Endpoint(
                destination=Destination(
                    name=f"d{number:02}",
                    patterns=("*",),
                    limits=limits if limits and number == 1 else every,
                ),
                terms=Terms(),
                transport=Nowhere(),
            )
            for number in range(count)
        }
        self.places = Places(concurrency=concurrency)
        self.ring = Ring(self.store, (DEFAULT_GENERATION,), self.places, self.clock)
        self.running: Counter[str] = Counter()
        self.claimed: Counter[str] = Counter()
        self.asked: list[str] = []

    async def publish(self, *names: str, count: int = 1, due: datetime | None = None) -> None:
        registered = await self.store.register([one.destination for one in self.served.values()])
        for name in names:
            batch = entries(*(an_event(due=due) for _ in range(count)), to=[name])
            await self.store.append(batch, routes_version=registered.version, all_or_nothing=True)

    async def turn(
        self, *, limit: int = 100, stays: bool = False, most_bytes: int = MOST_BYTES
    ) -> Claim:
        """Claim until somebody has something; its deliveries end at once unless they stay."""
        self.ring.begin()
        self.asked = []
        while True:
            asked = await self.ring.ask(self.served, self.running)
            if isinstance(asked, Claim):
                return asked
            self.asked += [one.destination for one in asked]
            claim = await self.store.claim(self._request(asked, limit, most_bytes))
            self.ring.heed(claim, limit=limit)
            if claim.deliveries or not self.ring.is_crowded:
                break
        given = Counter(one.destination for one in claim.deliveries)
        self.claimed += given
        if stays:
            self.running += given
        return claim

    def _request(self, asked: Sequence[Allowance], limit: int, most_bytes: int) -> ClaimRequest:
        return ClaimRequest(
            worker="worker-1",
            allowances=tuple(asked),
            generations=(DEFAULT_GENERATION,),
            lease=LEASE,
            limit=limit,
            most_bytes=most_bytes,
        )

    def later(self) -> None:
        self.clock.advance("1s")


@pytest_asyncio.fixture
async def many() -> AsyncIterator[Round]:
    crowd = Round(count=MANY)
    await crowd.store.open()
    yield crowd
    await crowd.store.close()


async def test_few_destinations_are_all_asked_and_take_turns() -> None:
    few = Round(count=3)
    await few.publish()

    firsts = []
    for _ in range(4):
        await few.turn()
        assert sorted(few.asked) == ["d00", "d01", "d02"]
        firsts.append(few.asked[0])

    assert firsts == ["d00", "d01", "d02", "d00"]
    assert few.store.looks == 0


async def test_of_many_only_those_with_work_are_asked(many: Round) -> None:
    await many.publish("d07", "d41", count=3)

    await many.turn()

    assert sorted(many.asked) == ["d07", "d41"]
    assert many.claimed == {"d07": 3, "d41": 3}


async def test_a_lap_that_finds_nobody_tells_when_to_look_again(many: Round) -> None:
    await many.publish()

    claim = await many.turn()

    assert many.asked == []
    assert (claim.now, claim.deliveries, claim.next_due) == (many.clock.now(), (), None)


async def test_everybody_is_served_however_many_have_work(many: Round) -> None:
    await many.publish(*many.served, count=2)

    turns = 0
    while (await many.turn(limit=10)).deliveries:
        turns += 1

    assert many.claimed == Counter(dict.fromkeys(many.served, 2))
    assert turns <= MANY  # in each claim several, and none of them in vain for long


async def test_places_are_parted_evenly_where_there_are_too_few(many: Round) -> None:
    """What was published together is claimed together, and lies side by side in a store."""
    names = ["d01", "d02", "d03", "d04", "d05"]
    await many.publish(*names, count=30)

    claim = await many.turn(limit=100)

    given = Counter(one.destination for one in claim.deliveries)
    assert given == dict.fromkeys(names, 20)


async def test_who_was_not_reached_is_the_first_next_time(many: Round) -> None:
    names = ["d01", "d02", "d03"]
    await many.publish(*names, count=5)

    served = []
    for _ in range(3):
        claim = await many.turn(limit=1)
        served += [one.destination for one in claim.deliveries]

    assert sorted(served) == names


async def test_who_holds_its_share_of_the_places_is_passed(many: Round) -> None:
    many.places.concurrency = 8
    await many.publish("d01", count=100)
    await many.turn(stays=True)
    assert many.running == {"d01": 2}

    await many.publish("d02")
    many.later()
    await many.turn()

    assert many.asked == ["d02"]


async def test_a_shut_gate_is_not_asked_until_it_opens() -> None:
    limits = Limits(breaker=Breaker(failures=1, open_for="10s"))
    crowd = Round(count=MANY, limits=limits)
    await crowd.publish("d01")
    report = Report(destination="d01", generation=0, is_success=False)
    await crowd.store.report([report], chance=0.0)
    opens_at = crowd.clock.now() + timedelta(seconds=10)

    asked = []
    for _ in range(12):
        claim = await crowd.turn()
        asked.append(crowd.asked)
        assert crowd.claimed or claim.next_due == opens_at
        crowd.later()

    assert asked == [["d01"]] + [[]] * 9 + [["d01"], []]
    assert crowd.claimed == {"d01": 1}


async def test_when_a_gate_opens_is_told_so_that_it_is_open_by_then() -> None:
    """0.1 + 0.2 is more than 0.3: at the instant that was told, it would still be shut."""
    limits = Limits(breaker=Breaker(failures=1, open_for="200ms"))
    crowd = Round(count=MANY, limits=limits)
    await crowd.publish("d01")
    crowd.clock.advance("100ms")
    report = Report(destination="d01", generation=0, is_success=False)
    await crowd.store.report([report], chance=0.0)
    await crowd.turn()

    while not crowd.claimed:
        claim = await crowd.turn()
        assert claim.next_due is None or claim.next_due > claim.now or crowd.claimed
        crowd.clock.advance(timedelta(0) if claim.next_due is None else claim.next_due - claim.now)


async def test_who_shares_a_rate_is_asked_at_its_turn() -> None:
    shared = SharedRate("acme", Rate(per_second=1.0))
    crowd = Round(count=20, every=Limits(shared_rate=shared))
    await crowd.publish(*crowd.served, count=3)
    await crowd.turn()  # all are asked, and one is served

    asked = []
    for _ in range(9):
        crowd.later()
        await crowd.turn()
        asked.append(crowd.asked)

    assert [len(one) for one in asked] == [1] * 9
    assert len({name for names in asked for name in names}) == 9
    assert sum(crowd.claimed.values()) == 10


async def test_a_gate_that_somebody_opens_is_asked_at_once(many: Round) -> None:
    await many.publish("d01")
    await many.store.pause("d01", actor=ACTOR)
    await many.turn()
    many.later()
    await many.turn()
    assert many.asked == []

    await many.store.resume("d01", actor=ACTOR)
    many.later()
    await many.turn()

    assert many.claimed == {"d01": 1}


async def test_who_is_served_no_longer_leaves_the_ring(many: Round) -> None:
    await many.publish("d01", "d02", count=200)
    await many.turn(limit=10)
    many.served = without(many.served, "d01")

    many.later()
    await many.turn(limit=10)

    assert many.asked == ["d02"]


def without(served: Mapping[str, Endpoint], name: str) -> dict[str, Endpoint]:
    return {one: endpoint for one, endpoint in served.items() if one != name}


async def test_no_more_are_asked_than_there_are_places(many: Round) -> None:
    many.places.concurrency = 6
    await many.publish(*many.served)
    many.running = Counter({"d00": 1, "d01": 1, "d02": 1})

    await many.turn(limit=3)

    assert len(many.asked) == 3


async def test_a_newcomer_is_found_while_all_others_always_have_work(many: Round) -> None:
    *busy, newcomer = many.served
    many.places.concurrency = 4
    await many.publish(*busy, count=50)
    for _ in range(len(busy)):
        await many.turn(limit=1)
        many.clock.advance("10ms")
    await many.publish(newcomer)

    for _ in range(2 * MANY):
        await many.turn(limit=1)
        many.clock.advance("10ms")

    assert many.claimed[newcomer] == 1


async def test_who_is_asked_in_vain_is_asked_ever_more_seldom() -> None:
    """Or a thousand that are held back would be asked over and over beside one that is busy."""
    crowd = Round(count=MANY, limits=Limits(rate=Rate(per_second=0.01, burst=1.0)))
    await crowd.publish("d01", count=2)
    await crowd.turn()
    assert crowd.claimed == {"d01": 1}

    await crowd.publish("d02", count=600)
    vain = 0
    for _ in range(250):  # two and a half seconds, in which somebody else always has work
        await crowd.turn(limit=2)
        vain += "d01" in crowd.asked
        crowd.clock.advance("10ms")

    assert 4 <= vain <= 20


async def test_who_has_work_again_is_asked_at_once(many: Round) -> None:
    await many.publish("d01")
    await many.turn()
    many.clock.advance("30ms")

    for _ in range(5):
        await many.turn()  # in vain
        await many.publish("d01")
        many.clock.advance("30ms")
        await many.turn()

    assert many.claimed == {"d01": 6}


async def test_a_turn_in_vain_has_asked_everybody_and_tells_when_to_ask_again() -> None:
    crowd = Round(count=300, every=Limits(rate=Rate(per_second=0.1, burst=1.0)))
    await crowd.publish(*crowd.served, count=2)
    while (await crowd.turn()).deliveries:
        pass
    assert crowd.claimed == Counter(dict.fromkeys(crowd.served, 1))

    claim = await crowd.turn()

    assert sorted(crowd.asked) == sorted(crowd.served)
    assert claim.next_due == crowd.clock.now() + timedelta(seconds=10)
    assert crowd.store.looks < 40


async def test_what_comes_due_elsewhere_is_told_while_somebody_is_held_back() -> None:
    crowd = Round(count=MANY, limits=Limits(rate=Rate(per_second=0.01, burst=1.0)))
    await crowd.publish("d01", count=2)
    await crowd.turn()
    due = crowd.clock.now() + timedelta(milliseconds=100)
    await crowd.publish("d02", due=due)

    claim = await crowd.turn()

    assert crowd.asked == ["d01"]
    assert claim.next_due == due


async def test_who_is_cut_off_by_a_large_payload_is_the_next(many: Round) -> None:
    await many.publish("d01", count=3)
    await many.publish("d02", count=1)

    firsts = []
    for _ in range(2):
        claim = await many.turn(most_bytes=1)
        firsts += [one.destination for one in claim.deliveries]

    assert firsts == ["d01", "d02"]
