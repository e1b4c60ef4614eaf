"""Routes on PostgreSQL that change while others publish: nothing committed later misses them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from redrive import Event, NewEvent, Redrive
from redrive.model.delivery import Leased
from redrive.model.destination import Destination, Order
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.observer import EventsCompleted
from redrive.store import CaughtUp, Query, Store
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import Address, read_address
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.letters import restore
from redrive.testing.clock import FakeClock
from tests.app.recorder import Recorder
from tests.conformance.world import (
    BILLING,
    LEDGER,
    MAILING,
    OPERATOR,
    World,
    an_event,
    entries,
)
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def address(postgres_url: str) -> Address:
    return read_address(postgres_url)


class Shop:
    """An app whose destinations remember what they got, and to which one comes late."""

    def __init__(self, url: str) -> None:
        self.got: dict[str, list[object]] = {"early": [], "late": []}
        self.publisher = Redrive(url)
        self.worker = self._an_app(url, "early")
        self.later = self._an_app(url, "early", "late")
        self.recorder = Recorder()
        self.later.observe(self.recorder)

    def _an_app(self, url: str, *names: str) -> Redrive:
        app = Redrive(url)
        for name in names:
            order = Order.PARK if name == "late" else Order.NONE
            app.handler("order.*", name=name, order=order)(self._handler(name))
        return app

    def _handler(self, name: str) -> Callable[[Event[object]], None]:
        return lambda event: self.got[name].append(event.payload)

    async def deliver(self) -> None:
        """Run a worker of the later code until nothing is left to do."""
        async with self.later:
            await self.later.drain()


@pytest.fixture
async def shop(postgres_url: str) -> AsyncIterator[Shop]:
    shop = Shop(postgres_url)
    async with shop.worker, shop.publisher:
        yield shop


@asynccontextmanager
async def a_transaction(address: Address, isolation: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(address.dsn)
    try:
        async with connection.transaction(isolation=isolation):
            await connection.execute("SELECT 1 FROM pg_class LIMIT 1")
            yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_transaction_that_cannot_see_new_routes_is_completed(
    shop: Shop, address: Address, key: str | None
) -> None:
    """It took its view before the registration, and publishes long after."""
    before = await shop.publisher.publish("order.paid", "before")
    async with a_transaction(address, "repeatable_read") as connection:
        async with shop.later:
            pass
        await shop.deliver()
        receipt = await shop.publisher.publish("order.paid", "old", key=key, within=connection)
        other = await shop.publisher.publish("mail.sent", "other", within=connection)
        during = await shop.publisher.publish("order.paid", "new", key="n")
        await shop.deliver()
        assert shop.got == {"early": ["before", "new"], "late": ["new"]}
    await shop.deliver()
    await shop.deliver()

    assert before.destinations == receipt.destinations == ("early",)
    assert (other.destinations, during.destinations) == ((), ("early", "late"))
    assert shop.got == {"early": ["before", "new", "old"], "late": ["new", "old"]}
    assert shop.recorder.of(EventsCompleted) == [EventsCompleted(deliveries=1)]
    figures = await shop.publisher.operations.status()
    assert (figures.events, figures.unrouted) == (4, 1)


async def test_what_was_published_before_and_commits_after_is_completed(
    shop: Shop, address: Address
) -> None:
    """It saw the routes of its time, and nobody could tell it that they would change."""
    await shop.publisher.publish("order.paid", "before")
    async with a_transaction(address, "read_committed") as connection:
        await shop.publisher.publish("order.paid", "old", within=connection)
        async with shop.later:
            pass
        await shop.publisher.publish("order.paid", "new", within=connection)
        await shop.deliver()
        assert shop.got["late"] == []
    await shop.deliver()
    await shop.deliver()

    assert Counter(shop.got["early"]) == Counter(["before", "old", "new"])
    assert Counter(shop.got["late"]) == Counter(["old", "new"])


async def test_what_rolls_back_is_not_completed(shop: Shop, address: Address) -> None:
    connection = await asyncpg.connect(address.dsn)
    transaction = connection.transaction()
    await transaction.start()
    await shop.publisher.publish("order.paid", "old", within=connection)
    async with shop.later:
        pass
    await transaction.rollback()
    await connection.close()
    await shop.deliver()

    assert shop.got == {"early": [], "late": []}
    assert (await shop.publisher.operations.status()).events == 0


async def test_a_running_worker_completes_events_by_itself(shop: Shop, address: Address) -> None:
    async with a_transaction(address, "repeatable_read") as connection:
        async with shop.later:
            pass
        await shop.publisher.publish("order.paid", "old", within=connection)

    async with shop.later, shop.later.worker(), asyncio.timeout(PATIENCE_SECONDS):
        await shop.recorder.wait_for(EventsCompleted)
    await shop.deliver()

    assert shop.got == {"early": ["old"], "late": ["old"]}


async def test_many_who_publish_while_routes_change_lose_nothing(
    postgres_url: str, address: Address
) -> None:
    """Every event that was committed after a destination was registered is at that destination."""
    apps = [Redrive(postgres_url) for _ in range(3)]
    registered: dict[str, set[str]] = {}
    committed: set[str] = set()
    enough = asyncio.Event()
    is_over = False

    async def publish(app: Redrive, number: int) -> None:
        connection = await asyncpg.connect(address.dsn)
        isolation = ("read_committed", "repeatable_read", "read_committed")[number]
        while not is_over:
            async with connection.transaction(isolation=isolation):
                one = await app.publish("order.paid", key=str(number), within=connection)
                many = await app.publish_many(
                    [NewEvent(type="order.sent") for _ in range(2)], within=connection
                )
            committed.update(receipt.event_id for receipt in (one, *many))
            enough.set()
        await connection.close()

    async def register() -> None:
        nonlocal is_over
        for number in range(12):
            app = Redrive(postgres_url)
            app.handler("order.*", name=f"d{number}")(lambda _: None)
            async with app:
                registered[f"d{number}"] = set(committed)
            enough.clear()
            await enough.wait()
        is_over = True

    async with apps[0], apps[1], apps[2]:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            for number, app in enumerate(apps):
                group.create_task(publish(app, number))
            group.create_task(register())
        store = PostgresStore(postgres_url, clock=FakeClock())
        await store.open()
        await catch_up_all(store, address)
        await store.close()
        rows = await asyncpg_rows(address, "SELECT id::text, destinations FROM {}.events")
        doubles = await asyncpg_rows(
            address,
            "SELECT position, destination FROM {}.deliveries GROUP BY 1, 2 HAVING count(*) > 1",
        )

    assert {row[0] for row in rows} == committed
    for name, before in registered.items():
        missing = {event for event, names in rows if name not in names}
        assert missing <= before, name
    assert doubles == []


async def is_open(address: Address) -> bool:
    """Tell whether anything is still to be caught up with, sooner or later."""
    changes = await asyncpg_rows(address, "SELECT 1 FROM {}.route_changes WHERE NOT is_done")
    return bool(changes or await asyncpg_rows(address, "SELECT 1 FROM {}.late_events"))


async def catch_up_all(store: Store, address: Address) -> int:
    """Catch up until nothing is left; returns how many deliveries that added."""
    added = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await is_open(address):
            added += (await store.catch_up()).added
    return added


async def asyncpg_rows(address: Address, statement: str) -> list[Any]:
    connection = await asyncpg.connect(address.dsn)
    try:
        return list(map(tuple, await connection.fetch(statement.format(address.schema))))
    finally:
        await connection.close()


async def publish_by_old_routes(world: World, address: Address, count: int) -> None:
    """Publish events in a transaction that is open while two destinations are registered."""
    version = (await world.store.register([BILLING])).version
    connection = await asyncpg.connect(address.dsn)
    async with connection.transaction():
        for _ in range(count):
            await world.store.append(
                entries(an_event(key="k")),
                routes_version=version,
                all_or_nothing=True,
                within=connection,
            )
        await world.store.register([LEDGER])
        await world.store.register([MAILING])
    await connection.close()


async def test_late_events_are_completed_in_stretches(
    world: World, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.stores.postgres.late_events._MOST_AT_ONCE", 3)
    await publish_by_old_routes(world, address, 7)

    added = await catch_up_all(world.store, address)

    assert added == 14
    assert await world.store.catch_up() == CaughtUp()
    assert len(await world.run_all("ledger")) == 7
    assert len(await world.run_all("mailing")) == 7


async def test_late_events_are_completed_for_their_tenant_alone(
    world: World, address: Address
) -> None:
    version = (await world.store.register([BILLING])).version
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(*[an_event(tenant=one) for one in ("acme", "zoe", None)]),
            routes_version=version,
            all_or_nothing=True,
            within=connection,
        )
        await world.store.register([msgspec.structs.replace(MAILING, tenant="acme")])

    added = await catch_up_all(world.store, address)

    assert added == 1
    assert [one.event.tenant for one in (await world.claim("mailing")).deliveries] == ["acme"]


async def test_late_events_that_name_whom_they_are_for_are_complete(
    world: World, address: Address
) -> None:
    version = (await world.store.register([BILLING])).version
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(an_event(to=("billing",)), an_event(key="k", to=("billing",))),
            routes_version=version,
            all_or_nothing=True,
            within=connection,
        )
        await world.store.register([MAILING])

    assert await catch_up_all(world.store, address) == 0
    assert (await world.claim("mailing")).deliveries == ()


async def test_two_workers_at_once_complete_each_event_once(world: World, address: Address) -> None:
    await publish_by_old_routes(world, address, 20)

    async with world.another() as other:
        added = await asyncio.gather(
            catch_up_all(world.store, address), catch_up_all(other.store, address)
        )

    assert sum(added) == 40
    assert len(await world.run_all("ledger")) == len(await world.run_all("mailing")) == 20


async def test_an_event_whose_key_is_published_to_waits_its_turn(
    world: World, address: Address
) -> None:
    """Completing waits for nobody: a caller's transaction may stay open for long."""
    await publish_by_old_routes(world, address, 1)
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(an_event(key="k"), to=["ledger"]),
            routes_version=(await world.store.routes()).version,
            all_or_nothing=True,
            within=connection,
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(6):
                await world.store.catch_up()
        assert await is_open(address)
    await catch_up_all(world.store, address)

    assert len(await world.run_all("ledger")) == 2
    assert len(await world.run_all("mailing")) == 1


async def test_late_events_go_behind_what_is_in_their_lane(world: World, address: Address) -> None:
    await publish_by_old_routes(world, address, 2)
    [early] = await world.receipts(entries(an_event(key="k"), to=["ledger"]))
    await catch_up_all(world.store, address)

    starts = []
    while claimed := (await world.claim("ledger", total=5)).deliveries:
        starts.append([one.event.id for one in claimed])
        for one in claimed:
            await world.settle(one, Delivered())

    assert [len(one) for one in starts] == [1, 1, 1]
    assert starts[0] == [early.event_id]


async def publish_before_order(world: World, address: Address, *numbers: int) -> None:
    """Publish events whose publisher could not know that order is kept from now on."""
    version = (await world.store.register([BILLING])).version
    await catch_up_all(world.store, address)
    async with a_transaction(address, "read_committed") as connection:
        for number in numbers:
            await world.store.append(
                entries(an_event(number, key="k")),
                routes_version=version,
                all_or_nothing=True,
                within=connection,
            )
        await world.declare(msgspec.structs.replace(BILLING, order=Order.PARK))


async def starts(world: World, *early: Leased) -> list[list[bytes]]:
    """Return what a worker starts at once, until nothing is left; first it ends what it has."""
    found: list[list[bytes]] = []
    now: Sequence[Leased] = early
    while True:
        for one in now:
            await world.settle(one, Delivered())
        now = (await world.claim("billing", total=5)).deliveries
        if not now:
            return found
        found.append([bytes(one.event.payload) for one in now])


async def test_order_holds_for_what_was_stored_before_it_was_kept(
    world: World, address: Address
) -> None:
    await publish_before_order(world, address, 1, 2)
    await world.append(entries(an_event(3, key="k")))

    assert await starts(world) == [[bytes(an_event(number).payload)] for number in (1, 2, 3)]


async def test_what_was_claimed_before_order_was_kept_holds_up_what_follows(
    world: World, address: Address
) -> None:
    await publish_before_order(world, address, 1)
    [first] = (await world.claim("billing", total=5)).deliveries
    await asyncpg_rows(address, "UPDATE {}.deliveries SET lane = NULL")  # as claimed before
    await world.append(entries(an_event(2, key="k")))

    meanwhile = (await world.claim("billing", total=5)).deliveries
    afterwards = await starts(world, first)

    assert meanwhile == ()
    assert afterwards == [[bytes(an_event(2).payload)]]


async def test_what_lacks_its_lane_waits_while_somebody_publishes_to_its_key(
    world: World, address: Address
) -> None:
    """Nobody else waits for them."""
    await publish_before_order(world, address, 1)
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(an_event(2, key="k")),
            routes_version=await world.version(),
            all_or_nothing=True,
            within=connection,
        )
        await world.append(entries(an_event(3, key="other")))
        async with asyncio.timeout(PATIENCE_SECONDS):
            meanwhile = await starts(world)

    assert meanwhile == [[bytes(an_event(3).payload)]]
    assert await starts(world) == [[bytes(an_event(number).payload)] for number in (1, 2)]


async def test_what_lacks_its_lane_waits_at_each_of_its_destinations(
    world: World, address: Address
) -> None:
    both = [msgspec.structs.replace(one, order=Order.NONE) for one in (BILLING, MAILING)]
    version = (await world.store.register(both)).version
    await catch_up_all(world.store, address)
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(an_event(1, key="k"), to=["billing", "mailing"]),
            routes_version=version,
            all_or_nothing=True,
            within=connection,
        )
        await world.declare(*[msgspec.structs.replace(one, order=Order.PARK) for one in both])
    async with a_transaction(address, "read_committed") as connection:
        await world.store.append(
            entries(an_event(2, key="k")),
            routes_version=await world.version(),
            all_or_nothing=True,
            within=connection,
        )
        meanwhile = (await world.claim("billing", "mailing", total=5)).deliveries

    assert meanwhile == ()
    assert len((await world.claim("billing", "mailing", total=5)).deliveries) == 2


async def test_publishing_waits_for_nobody_when_a_destination_is_new(
    world: World, address: Address
) -> None:
    """Nobody can have published to it yet, so its lanes are as they seem to be."""
    await world.store.register([LEDGER])
    await world.append(entries(an_event(key="k"), to=["ledger"]))

    late = await asyncpg_rows(address, "SELECT * FROM {}.late_lanes")
    assert late == []


async def test_a_registration_that_was_given_up_is_made_good(
    world: World, address: Address
) -> None:
    """Its number is ahead of the routes; publishers are not to take theirs for old for ever."""
    version = await world.version()
    connection = await asyncpg.connect(address.dsn)
    transaction = connection.transaction()
    await transaction.start()
    await PostgresSession(connection, address.schema, PLAIN).change_routes(())
    await transaction.rollback()
    await connection.close()

    await world.publish(an_event())
    await world.store.catch_up()
    routes = await world.store.routes()
    await world.append(entries(an_event()))

    late = await asyncpg_rows(address, "SELECT * FROM {}.late_events")
    assert routes.version == version + 1
    assert len(routes.destinations) == 3
    assert late == []


async def test_publishing_writes_nothing_more_while_routes_stay(
    world: World, address: Address
) -> None:
    await world.version()
    await catch_up_all(world.store, address)

    await world.publish(*[an_event(key="k") for _ in range(3)])

    assert not await is_open(address)
    assert await world.store.catch_up() == CaughtUp()


async def test_what_comes_back_from_a_file_is_not_routed_anew(
    world: World, address: Address
) -> None:
    """A dead letter goes where it was, even if it comes back while routes change."""
    await world.version()
    await world.dead_letter()
    letters = (await world.store.letters(Query())).letters
    await world.store.discard(letters, actor=OPERATOR, detail="a file")
    world.clock.advance("60d")
    await world.store.prune(Retention())
    late = Destination(name="late", patterns=("*",))
    async with a_transaction(address, "read_committed") as connection:
        session = PostgresSession(connection, address.schema, PLAIN)
        session.now = world.now
        await restore(session, letters, actor=OPERATOR)
        await world.store.register([late])

    added = await catch_up_all(world.store, address)

    assert added == 0
    assert len(await world.found()) == 1
