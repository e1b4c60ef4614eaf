"""Keeping on PostgreSQL: what goes and moves while others publish, prune and claim."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import msgspec
import pytest

from redrive.errors import ConfigurationError
from redrive.model.destination import Destination
from redrive.model.event import EventId, Receipt
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Appended, Entry, Moved, Pruned, Query, Settled
from redrive.stores.postgres import append, idempotency
from redrive.stores.postgres.connection import Address, named, read_address
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sealed import PLAIN
from redrive.stores.sql import figures, regrouping, rerouting, retention, shedding
from redrive.stores.sql.session import Either
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR, only
from tests.waiting import PATIENCE_SECONDS

MANY = 600
_WAITS = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))
)
"""


@pytest.fixture
def address(postgres_url: str) -> Address:
    return read_address(postgres_url)


@asynccontextmanager
async def a_link(address: Address) -> AsyncIterator[PostgresSession]:
    """Open a transaction of somebody else's; it is committed at the end."""
    connection = await asyncpg.connect(address.dsn)
    try:
        async with connection.transaction():
            yield PostgresSession(connection, address.schema, PLAIN)
    finally:
        await connection.close()


async def publish_within(world: World, link: PostgresSession, *batch: Entry) -> Appended:
    appended = await append.append(
        link, batch, routes_version=await world.version(), all_or_nothing=False, now=world.now
    )
    assert isinstance(appended, Appended)
    return appended


async def deliver_all(world: World, *, limit: int = MANY, destination: str = "billing") -> None:
    claimed = (await world.claim(destination, total=limit)).deliveries
    await world.store.settle([Settled(lease=one.lease, settlement=Delivered()) for one in claimed])


async def prune(world: World, *, limit: int = 500) -> Pruned:
    """Prune, and fail if that waits for anybody."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await world.store.prune(Retention(), limit=limit)


async def test_two_pruners_at_once_remove_everything_once(world: World) -> None:
    await world.append(
        entries(*[an_event(n, idempotency_key=str(n), key=str(n % 7)) for n in range(MANY)])
    )
    await world.append(entries(*[an_event(n) for n in range(10)], to=[]))
    await deliver_all(world)
    world.clock.advance("31d")

    async def until_nothing_is_left(one: World) -> list[Pruned]:
        rounds = [await prune(one, limit=50)]
        while rounds[-1].most:
            rounds.append(await prune(one, limit=50))
        return rounds

    async with world.another() as other:
        done = await asyncio.gather(until_nothing_is_left(world), until_nothing_is_left(other))
    rest = await until_nothing_is_left(world)

    rounds = [*itertools.chain(*done), *rest]
    figures = await world.store.figures()
    assert sum(one.delivered for one in rounds) == MANY == figures.pruned
    assert sum(one.events for one in rounds) == MANY + 10 == figures.pruned_events
    assert sum(one.keys for one in rounds) == MANY
    assert (figures.events, figures.unrouted) == (0, 0)


async def test_a_prune_does_not_wait_for_who_publishes(world: World, address: Address) -> None:
    first = an_event({"n": 1}, key="k", idempotency_key="once")
    await world.publish(first, to="ledger")
    await deliver_all(world, destination="ledger")
    world.clock.advance("31d")
    again = msgspec.structs.replace(first, id=an_event().id)
    later = an_event({"n": 2}, key="k", idempotency_key="twice")

    async with a_link(address) as link:
        appended = await publish_within(
            world, link, *entries(again, later, to=["ledger"]), *entries(an_event(), to=[])
        )
        pruned = await prune(world)

    claimed = await world.claim("ledger")
    figures = await world.store.figures()
    known = await world.append(entries(msgspec.structs.replace(later, id=an_event().id)))
    assert pruned == Pruned(delivered=1, events=1, keys=1)
    assert appended.results[0] == Receipt(
        event_id=first.id, destinations=("ledger",), is_duplicate=True, version=1
    )
    assert [one.event.id for one in claimed.deliveries] == [later.id]
    assert (figures.events, figures.unrouted) == (2, 1)
    assert known.results[0] == Receipt(
        event_id=later.id, destinations=("ledger",), is_duplicate=True, version=2
    )


async def test_a_key_that_goes_while_it_is_wanted_is_taken(
    world: World, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds a key taken and then nobody who holds it takes it himself."""
    first = an_event({"n": 1}, idempotency_key="once")
    await world.publish(first)
    await deliver_all(world)
    world.clock.advance("31d")
    fetch = Link.fetch
    pruned: list[Pruned] = []

    async def prune_before_looking(self: Link, statement: str, *values: object) -> list[object]:
        if statement == idempotency._HOLDERS and not pruned:
            pruned.append(await prune(world))
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Link, "fetch", prune_before_looking)
    second = an_event({"n": 2}, idempotency_key="once")
    async with a_link(address) as link:
        appended = await publish_within(world, link, *entries(second))
    third = await world.append(entries(an_event({"n": 2}, idempotency_key="once")))

    assert pruned == [Pruned(delivered=1, events=1, keys=1)]
    assert appended.results == (Receipt(event_id=second.id, destinations=("billing",)),)
    assert third.results == (
        Receipt(event_id=second.id, destinations=("billing",), is_duplicate=True),
    )


@pytest.mark.parametrize("is_committed", [True, False])
async def test_an_event_that_is_being_given_to_somebody_stays(
    world: World, address: Address, *, is_committed: bool
) -> None:
    await world.append(entries(an_event(), to=[]))
    position = only((await world.store.read_log("mailing")).missing)[0]
    world.clock.advance("31d")

    connection = await asyncpg.connect(address.dsn)
    transaction = connection.transaction()
    await transaction.start()
    session = PostgresSession(connection, address.schema, PLAIN)
    session.now = world.now
    added = await rerouting.backfill(
        session, "mailing", [position], actor=OPERATOR, generation=None
    )
    during = await prune(world)
    await (transaction.commit() if is_committed else transaction.rollback())
    await connection.close()
    after = await prune(world)

    assert added.added == 1
    assert during == Pruned()
    assert after == (Pruned() if is_committed else Pruned(events=1))
    if is_committed:
        await deliver_all(world, destination="mailing")
        world.clock.advance("31d")
        assert await prune(world) == Pruned(delivered=1, events=1)


async def test_a_lane_goes_on_when_all_events_of_its_key_have_gone(world: World) -> None:
    await world.publish(an_event(key="k"), an_event(key="l"), to="ledger")
    await deliver_all(world, limit=1, destination="ledger")
    world.clock.advance("31d")

    await prune(world)

    await world.publish(an_event({"n": 2}, key="k"), to="ledger")
    assert len((await world.claim("ledger")).deliveries) == 2


async def test_a_key_that_is_published_to_is_busy_for_a_move(
    world: World, address: Address
) -> None:
    free, taken = await world.publish(an_event(key="free"), an_event(key="taken"))
    later = an_event({"n": 2}, key="taken")

    async with a_link(address) as link:
        await publish_within(world, link, *entries(later, to=["ledger"]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            during = await world.store.move([free, taken], target="ledger", actor=OPERATOR)
    after = await world.store.move([taken], target="ledger", actor=OPERATOR)

    assert during == Moved(moved=(free,), busy=1)
    assert after == Moved(moved=(taken,))
    claimed = [one.lease.delivery_id for one in (await world.claim("ledger")).deliveries]
    assert claimed == [free, taken]


async def test_a_dropped_head_frees_a_lane_that_is_published_to(
    world: World, address: Address
) -> None:
    (head,) = await world.publish(an_event(key="k"), to="ledger")
    later = an_event({"n": 2}, key="k")

    async with a_link(address) as link:
        await publish_within(world, link, *entries(later, to=["ledger"]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await world.store.drop([head], actor=OPERATOR)

    await world.claim("ledger")  # finds the lane that was put off
    figures = await world.store.figures()
    ledger = only([one for one in figures.destinations if one.name == "ledger"])
    assert ledger.in_flight + ledger.due == 1


async def test_two_imports_of_the_same_letters_restore_them_once(world: World) -> None:
    for number in range(20):
        await world.dead_letter(an_event(number, key=str(number % 3), idempotency_key=str(number)))
    letters = (await world.store.letters(Query())).letters
    await world.store.discard(letters, actor=OPERATOR, detail="")
    world.clock.advance("31d")
    await prune(world)

    async with world.another() as other:
        one, two = await asyncio.gather(
            world.store.restore(letters, actor=OPERATOR),
            other.store.restore(letters[::-1], actor=OPERATOR),
        )

    assert len(one.deliveries) + len(two.deliveries) == one.known + two.known == 20
    assert (await world.store.figures()).letters.count == 20


async def test_an_import_waits_for_the_prune_of_its_event(world: World, address: Address) -> None:
    await world.dead_letter(an_event({"n": 1}, idempotency_key="once"))
    letters = (await world.store.letters(Query())).letters
    await world.store.discard(letters, actor=OPERATOR, detail="")
    world.clock.advance("31d")

    async with a_link(address) as link:
        link.now = world.now
        await retention.prune(link, Retention(), retention.Bookmark(), limit=10)
        restoring = asyncio.ensure_future(world.store.restore(letters, actor=OPERATOR))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await link.value(_WAITS):
                pass
    restored = await restoring

    again = await world.append(entries(an_event({"n": 1}, idempotency_key="once")))
    assert len(restored.deliveries) == 1
    assert isinstance(again.results[0], Receipt)
    assert again.results[0].is_duplicate


async def test_an_id_that_is_no_uuid_is_refused(world: World) -> None:
    await world.dead_letter(an_event())
    (letter,) = (await world.store.letters(Query())).letters
    strange = Letter(
        event=msgspec.structs.replace(letter.event, id=EventId("one")),
        delivery=msgspec.structs.replace(letter.delivery, event_id=EventId("one")),
    )

    with pytest.raises(ConfigurationError, match="'one' is not a UUID"):
        await world.store.restore([strange], actor=OPERATOR)


async def test_old_changes_of_routes_are_forgotten_once_they_are_done(
    world: World, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.stores.sql.retention._CHANGES_KEPT", 2)
    await world.publish(an_event())
    for number in range(5):
        await world.store.register([Destination(name=f"new-{number}", patterns=("never.*",))])

    async def versions() -> list[int]:
        async with a_link(address) as link:
            found = await link.fetch("SELECT version FROM redrive.route_changes ORDER BY version")
        return [row[0] for row in found]

    async def prune() -> None:
        """Prune when there is something to: the changes go along with it."""
        await world.publish(an_event())
        await deliver_all(world)
        world.clock.advance("2d")
        assert (await world.store.prune(Retention())).delivered

    before = await versions()
    await prune()
    undone = await versions()
    while not await is_done(address):
        await world.store.catch_up()
    await prune()

    assert undone == before
    assert len(before) > 2
    assert await versions() == before[-2:]


async def is_done(address: Address) -> bool:
    async with a_link(address) as link:
        found = await link.fetch(
            "SELECT NOT EXISTS (SELECT FROM redrive.route_changes WHERE NOT is_done)"
        )
    return bool(found[0][0])


async def test_looking_for_what_may_go_reads_indexes(world: World, address: Address) -> None:
    now, day = world.now, timedelta(days=1)
    statements: dict[str | Either, tuple[object, ...]] = {
        retention._HAS_PRUNABLE: (now, day, day, day, day, day),
        regrouping._HAS_OUTDATED: ("g",),
        regrouping._OUTDATED: ("g", 1),
        regrouping._REGROUP: ("[]",),
        retention._DELIVERED: (now, 1),
        retention._RESOLVED: (now, 1),
        retention._IDLE: (now, now, 1, 1),
        retention._LOCK_IDLE: ([1], now),
        retention._LOCK_EVENTS: ([1],),
        retention._FINISHED: ("[]", now),
        retention._UNCHANGED: ("[]",),
        retention._LETTER_QUOTAS: (now,),
        retention._OUTLIVE: ("[]",),
        retention._FORGET_KEYS: ("[]",),
        retention._FORGET_REMAINS: (now, 1),
        retention._LEAVE_INBOX: ("[]",),
        retention._PAST_INBOX: (now, 1),
        retention._KEEP_INBOX: ("[]",),
        retention._FORGET_INBOX: ("[]", now),
        rerouting._HEADS: (["k"], 1),
        rerouting._LATEST: (["k"], 1, True),
        figures._DESTINATIONS: (),
        figures._KEPT: (),
        figures._IN_FLIGHT: (),
        figures._COME_DUE: (now,),
        figures._PUT_OFF: (now,),
        figures._LONGEST_DUE: ([1], 1, 1),
        figures._LATELY: (now, now),
        figures._WORKLOAD: (now,),
        shedding._DUE: (1, None, now, 1),
    }
    tables = ("deliveries", "events", "idle", "idempotency", "inbox", "keys")

    async with a_link(address) as link:
        await link.fetch("SET LOCAL enable_seqscan = off")
        for statement, values in statements.items():
            words = statement.postgres if isinstance(statement, Either) else statement
            plan = [
                row[0]
                for row in await link.fetch(named(f"EXPLAIN {words}", address.schema), *values)
            ]
            scans = [line for line in plan for table in tables if f"Seq Scan on {table}" in line]
            assert scans == [], statement
