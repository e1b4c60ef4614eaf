"""Replays on PostgreSQL: from psql as from Python, and by many at once."""

from __future__ import annotations

import asyncio
from datetime import datetime

import asyncpg
import msgspec
import pytest

from redrive.model.audit import Actor
from redrive.model.delivery import Cycle, Delivery, DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.event import EventId
from redrive.model.gate import Gate, Pause
from redrive.model.outcome import Exchange
from redrive.model.replay import AutoReplay, ReplayState
from redrive.model.settlement import Delivered, Failed, FailureReason
from redrive.store import Settled
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import named, read_address
from redrive.testing.clock import FakeClock
from tests.conformance import World, an_event
from tests.conformance.letters import (
    advance,
    counts_of,
    found,
    letters_of,
    start,
)
from tests.conformance.world import OPERATOR, a_fault, an_attempt, entries, only
from tests.servers.waiting import until_somebody_waits
from tests.waiting import PATIENCE_SECONDS

SOMETIME = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


async def in_psql(url: str, statement: str, *values: object) -> object:
    """Return what a person sees who has nothing but the database."""
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        return await connection.fetchval(named(statement, address.schema), *values)
    finally:
        await connection.close()


async def a_letter_with_a_past(world: World) -> DeliveryId:
    """Return a dead letter that was replayed once, retried, crashed and has an exchange."""
    event = an_event({"total": 1}, tenant="t", deadline=world.after("36500d"))
    letter = await world.dead_letter(event)
    await world.store.replay([letter], actor=OPERATOR)
    await world.retry(await world.claim_one(), "10s")
    world.clock.advance("10s")
    await world.crash()
    leased = await world.claim_one()
    settled = Settled(
        lease=leased.lease,
        settlement=Failed(reason=FailureReason.EXHAUSTED, fault=a_fault("no more")),
        attempt=an_attempt(leased),
        exchange=Exchange(
            method="POST", url="https://example.com", headers={}, size=0, status=410, body="gone"
        ),
    )
    assert not await world.store.settle([settled])
    return letter


def timeless(delivery: Delivery) -> Delivery:
    """Return a delivery as if everything of its replay had happened at one instant."""
    *earlier, last = delivery.cycles
    last = msgspec.structs.replace(last, replayed_at=SOMETIME)
    return msgspec.structs.replace(
        delivery, due=SOMETIME, event_id=EventId(""), cycles=(*earlier, last)
    )


async def test_a_replay_from_psql_is_one_from_python(world: World, postgres_url: str) -> None:
    async with World.opened(MemoryStore, history=20) as reference:
        expected = await a_letter_with_a_past(reference)
        await reference.store.replay([expected], actor=OPERATOR, generation="green")
        letter = await a_letter_with_a_past(world)

        assert await in_psql(postgres_url, "SELECT redrive.replay($1, 'green', 'ada')", letter)

        assert timeless(await world.show(letter)) == timeless(await reference.show(expected))
        entry, expected_entry = (await world.store.audit())[0], (await reference.store.audit())[0]
        assert (entry.action, entry.by, entry.count, entry.deliveries, entry.detail) == (
            expected_entry.action,
            expected_entry.by,
            expected_entry.count,
            (letter,),
            expected_entry.detail,
        )


@pytest.mark.parametrize(
    ("generation", "by", "says"),
    [
        ("green", None, "needs a name in the audit log: replayed_by is NULL"),
        ("green", " ", "needs a name in the audit log: replayed_by is ' '"),
        ("green", "a" * 201, "needs a name in the audit log: replayed_by is 'aaa"),
        ("", "ada", "new_generation is ''"),
        (" \t", "ada", "new_generation is"),
        ("g" * 201, "ada", "new_generation is 'ggg"),
    ],
)
async def test_psql_refuses_what_python_does(
    generation: str, by: str | None, says: str, world: World, postgres_url: str
) -> None:
    letter = await world.dead_letter()
    before = await world.show(letter)

    with pytest.raises(asyncpg.InvalidParameterValueError, match=says):
        await in_psql(postgres_url, "SELECT redrive.replay($1, $2, $3)", letter, generation, by)

    assert await world.show(letter) == before


async def test_psql_refuses_to_replay_what_is_no_dead_letter(
    world: World, postgres_url: str
) -> None:
    resolved, letter = await world.dead_letter(), await world.dead_letter()
    await world.store.resolve([resolved], actor=OPERATOR)
    await in_psql(postgres_url, "SELECT redrive.replay($1, NULL, 'ada')", letter)

    for number, says in (
        (letter, f"Delivery {letter} is pending, so it cannot be sent again"),
        (resolved, f"Delivery {resolved} is resolved"),
        (letter + 100, f"There is no delivery {letter + 100}"),
        (None, "There is no delivery NULL"),
    ):
        with pytest.raises(asyncpg.PostgresError, match=says):
            await in_psql(postgres_url, "SELECT redrive.replay($1, NULL, 'ada')", number)

    assert [entry.action for entry in await world.store.audit()] == ["replay", "resolve"]


async def test_the_view_tells_the_earlier_cycles_and_shows_no_payload(
    world: World, postgres_url: str
) -> None:
    letter = await a_letter_with_a_past(world)

    told = await in_psql(
        postgres_url,
        "SELECT to_jsonb(one) FROM redrive.dead_letters AS one WHERE delivery = $1",
        letter,
    )

    shown = msgspec.json.decode(str(told))
    assert not {"payload", "headers", "document", "exchange"} & set(shown)
    assert (shown["last_error"], shown["earlier_cycles"]) == ("no more", 1)
    assert msgspec.convert(shown["failure_history"], tuple[Cycle, ...]) == (
        (await world.show(letter)).cycles
    )


async def test_the_dead_letters_of_an_event_are_replayed_from_psql_by_its_id(
    world: World, postgres_url: str
) -> None:
    event, other = an_event(), an_event()
    await world.append(entries(event, to=["billing", "mailing"]))
    letters = [(await world.find_one(event, to)).id for to in ("billing", "mailing")]
    await world.fail(await world.claim_one("billing"))
    await world.fail(await world.claim_one("mailing"))
    untouched = await world.dead_letter(other)
    statement = "SELECT redrive.replay_event($1, 'green', 'ada')"

    assert await in_psql(postgres_url, statement, event.id) == 2

    assert [(await world.show(one)).generation for one in letters] == ["green", "green"]
    assert (await world.show(untouched)).status is Status.FAILED
    assert [(one.action, one.by) for one in await world.store.audit()] == [("replay", "ada")] * 2
    with pytest.raises(asyncpg.NoDataFoundError, match=f"The event {event.id} has no dead letter"):
        await in_psql(postgres_url, statement, event.id)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="needs a name in the audit log"):
        await in_psql(postgres_url, "SELECT redrive.replay_event($1, NULL, ' ')", other.id)


async def test_of_two_people_in_psql_one_wins(world: World, postgres_url: str) -> None:
    letter = await world.dead_letter()
    statement = "SELECT redrive.replay($1, NULL, $2)"

    tries = await asyncio.gather(
        *(in_psql(postgres_url, statement, letter, by) for by in ("ada", "ben", "cid")),
        return_exceptions=True,
    )

    assert tries.count(True) == 1
    late = [one for one in tries if one is not True]
    assert all(isinstance(one, asyncpg.ObjectNotInPrerequisiteStateError) for one in late)
    assert len((await world.show(letter)).cycles) == 1


async def test_psql_keeps_as_many_cycles_as_workers_were_told_to(postgres_url: str) -> None:
    def make_store(clock: FakeClock) -> PostgresStore:
        return PostgresStore(postgres_url, clock=clock, history=3)

    async with World.opened(make_store, history=3) as world:
        letter = await world.dead_letter(an_event())
        for _ in range(5):
            await in_psql(postgres_url, "SELECT redrive.replay($1, NULL, 'ada')", letter)
            await world.fail(await world.claim_one())

        assert len((await world.show(letter)).cycles) == 3


async def test_a_history_that_was_made_shorter_is_cut(world: World, postgres_url: str) -> None:
    letter = await world.dead_letter(an_event())
    for _ in range(5):
        await world.store.replay([letter], actor=OPERATOR)
        await world.fail(await world.claim_one())

    await in_psql(postgres_url, "UPDATE redrive.settings SET value = 2 WHERE name = 'history'")
    await in_psql(postgres_url, "SELECT redrive.replay($1, NULL, 'ada')", letter)

    cycles = (await world.show(letter)).cycles
    assert len(cycles) == 2
    assert cycles[-1].replayed_by == "ada"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x00b\x00", "a\ufffdb\ufffd"),
        ("\\u0000", "\\u0000"),
        ("\\\x00", "\\\ufffd"),
        ("\\\\u0000\x00", "\\\\u0000\ufffd"),
    ],
)
async def test_psql_reads_payloads_with_a_nul(
    name: str, shown: str, world: World, postgres_url: str
) -> None:
    await world.dead_letter(an_event({"name": name}))
    statement = "SELECT redrive.payload_of(document) ->> 'name' FROM redrive.events"

    assert await in_psql(postgres_url, statement) == shown


async def test_whoever_deletes_a_delivery_its_exchange_goes_too(
    world: World, postgres_url: str
) -> None:
    kept, deleted = [await a_letter_with_a_past(world) for _ in range(2)]

    await in_psql(postgres_url, "DELETE FROM redrive.deliveries WHERE id = $1", deleted)

    assert await in_psql(postgres_url, "SELECT array_agg(delivery) FROM redrive.exchanges") == [
        kept
    ]


async def test_however_many_act_at_once_a_letter_is_sent_once(world: World) -> None:
    letters = await letters_of(world, 30)
    replays = [await start(world, canary=30) for _ in range(3)]

    async with world.another() as other:
        await asyncio.gather(
            *[store.advance_replays() for store in (world.store, other.store) for _ in range(4)],
            world.store.replay(letters[10:], actor=Actor("eve", "now")),
            other.store.replay(list(reversed(letters[:20])), actor=Actor("bob", "me too")),
            *[
                other.store.edit(
                    letter,
                    before=msgspec.Raw(b"null"),
                    payload=msgspec.Raw(b"1"),
                    changes=(),
                    more=0,
                    actor=OPERATOR,
                    is_replayed=True,
                )
                for letter in letters[::3]
            ],
        )
    await advance(world)

    deliveries = [await world.show(letter) for letter in letters]
    assert [(one.status, len(one.cycles)) for one in deliveries] == [(Status.PENDING, 1)] * 30
    after = [await found(world, replay) for replay in replays]
    assert [one.sent + one.skipped for one in after] == [30] * 3
    assert sum(one.sent for one in after) == sum(one.replay is not None for one in deliveries)


async def test_workers_that_settle_at_once_are_all_counted(world: World, postgres_url: str) -> None:
    """They meet neither in the replay's row nor in each other's way."""
    await letters_of(world, 40)
    one, other = await start(world, canary=20), await start(world, canary=20)
    await advance(world)
    leased = (await world.claim(total=40)).deliveries
    assert len(leased) == 40

    async def settle(number: int) -> None:
        settlement = (
            Failed(reason=FailureReason.TERMINAL, fault=a_fault()) if number % 4 else Delivered()
        )
        await world.settle(leased[number], settlement)

    await asyncio.gather(
        *[settle(number) for number in range(40)],
        *[world.store.advance_replays() for _ in range(10)],
    )

    counts = [counts_of(await found(world, replay)) for replay in (one, other)]
    assert sum(delivered for _, _, delivered, _, _ in counts) == 10
    assert sum(failed for _, _, _, failed, _ in counts) == 30
    await advance(world)
    for replay in (one, other):
        await world.store.steer_replay(replay.id, ReplayState.RUNNING, actor=OPERATOR)
    assert await in_psql(postgres_url, "SELECT count(*) FROM redrive.replay_outcomes") == 0
    assert [counts_of(await found(world, replay)) for replay in (one, other)] == counts


async def test_a_replay_does_not_hold_up_whoever_settles(world: World, postgres_url: str) -> None:
    """A step under way locks its replay; the outcome of its letters is not kept waiting."""
    await letters_of(world, 2)
    replay = await start(world)
    await advance(world)
    leased = await world.claim_one()
    address = read_address(postgres_url)
    connection = await asyncpg.connect(address.dsn)
    try:
        async with connection.transaction():
            await connection.execute(
                named("SELECT FROM redrive.replays FOR UPDATE", address.schema)
            )
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert not await world.settle(leased, Delivered())
    finally:
        await connection.close()

    assert (await found(world, replay)).delivered == 1
    assert only(await world.found(status=Status.DELIVERED)).id == leased.lease.delivery_id


async def test_a_step_waits_for_whoever_is_at_a_letter(world: World, postgres_url: str) -> None:
    """What was sent and failed again meanwhile is another failure than the one selected."""
    letter = await world.dead_letter()
    replay = await start(world)
    address = read_address(postgres_url)
    connection = await asyncpg.connect(address.dsn)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ $1"
    try:
        async with connection.transaction(), asyncio.timeout(PATIENCE_SECONDS):
            await connection.execute(
                named("UPDATE redrive.deliveries SET token = token + 1", address.schema)
            )
            step = asyncio.ensure_future(advance(world))
            while not step.done() and not await in_psql(postgres_url, waiting, address.schema):
                await asyncio.wait([step], timeout=0.01)
    finally:
        await connection.close()

    assert await step == []
    assert counts_of(await found(world, replay)) == (1, 0, 0, 0, 1)
    assert (await world.show(letter)).status is Status.FAILED


async def test_no_auto_replay_begins_at_a_gate_that_is_being_shut(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Whoever has paused a destination sees no replay begin there from then on."""
    await world.version()
    auto_replay = AutoReplay(cron="0 * * * *")
    await world.store.register(
        [Destination(name="hourly", patterns=("order.*",), auto_replay=auto_replay)]
    )
    await world.store.start_auto_replays(due=lambda *_: True)
    await world.dead_letter(to="hourly")
    paused = msgspec.json.encode(Gate(pause=Pause(by="me", why="", at=SOMETIME))).decode()

    async with asyncio.TaskGroup() as group, person.transaction():
        await person.execute("UPDATE gates SET document = $1", paused)
        starting = group.create_task(world.store.start_auto_replays(due=lambda *_: True))
        await until_somebody_waits(person)

    assert list(starting.result()) == []
    await world.store.resume("hourly", actor=OPERATOR)
    assert only(await world.store.start_auto_replays(due=lambda *_: True)).selected == 1
