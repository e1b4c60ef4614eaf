"""What is kept encrypted: every column that carries payloads, whatever becomes of the keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest
import pytest_asyncio

from redrive.clock import SystemEntropy
from redrive.errors import SecretError, UsageError
from redrive.model.delivery import DeliveryId
from redrive.model.destination import Destination
from redrive.model.edit import Change, ChangeKind
from redrive.model.limits import Breaker, Limits
from redrive.model.outcome import Addressees, Exchange
from redrive.model.request_log import LoggedRequest
from redrive.model.retention import Retention
from redrive.model.schedule import Schedule
from redrive.model.settlement import Delivered, Failed, FailureReason
from redrive.sealing import KeyRing, Vault
from redrive.store import Declarer, Entry, Query, Report, RequestBatch, Settled, Unique
from redrive.stores.codec import json_text
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import read_address
from redrive.stores.sealed import Codec
from redrive.stores.sql.encrypting import STAGES
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.schema import migrate
from tests.conformance.world import OPERATOR, World, a_fault, an_attempt, an_event, entries
from tests.scale import IS_LONG
from tests.stores.encrypted import a_vault, rows_of

pytestmark = pytest.mark.asyncio

PLANTED = "planted-in-a-payload"
_numbers = itertools.count()
IN_FLIGHT = 1_000 if IS_LONG else 12
PLAIN = {
    "ids, names, places, times and counts": {
        "checkpoints.*": "how far a projection is",
        "counters.name": "",
        "counts.*": "",
        "count_changes.*": "",
        "settings.name": "",
        "group_aliases.*": "ids of groups, which are digests",
        "deliveries.generation": "",
        "deliveries.worker": "",
        "deliveries.reason": "one of a few words",
        "deliveries.group_id": "a digest of what the error is like once values are taken out",
        "deliveries.rule": "",
        "events.id": "",
        "events.type": "",
        "events.destinations": "",
        "inbox.handler": "",
        "inbox.event": "",
        "uniques.event": "",
        "projection_edits.projection": "",
        "publishing_schedules.name": "",
        "watches.*": "",
        "workers.*": "",
        "trends.body": "figures",
    },
    "what is searched for, and so is told to be no place for secrets": {
        "events.key": "",
        "keys.key": "",
        "deliveries.lane": "a key",
        "late_lanes.lane": "a key",
        "deliveries.tenant": "",
        "tenants.tenant": "",
        "tenant_pauses.tenant": "",
        "idempotency.source": "",
        "idempotency.key": "",
        "inbox.source": "",
        "inbox.key": "",
        "uniques.source": "",
        "uniques.key": "a keyed digest, or what unique_by says",
    },
    "what people write": {
        "audit.*": "",
        "deliveries.resolution": "",
        "tenant_pauses.by": "",
        "tenant_pauses.why": "",
        "replays.*": "",
    },
    "what is declared": {
        "destinations.*": "",
        "gateway.*": "",
        "gates.override": "",
        "releases.*": "",
        "route_changes.*": "",
        "shared_rates.*": "",
        "standings.document": "",
    },
    "secrets of our own, which are digests or encrypted already": {
        "access_tokens.*": "",
        "users.*": "",
        "sessions.*": "",
        "secrets.*": "",
        "encryption.document": "",
    },
}
"""Columns of text that are not encrypted, and why."""


class Setting:
    """One of the databases, empty, and a look at all that is in it."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url

    def store(self, clock: Any, vault: Vault | None) -> SqliteStore | PostgresStore:  # noqa: ANN401 - a port
        """Return a store, still to be opened, that has these keys."""
        if self.name == "postgres":
            return PostgresStore(self.url, clock=clock, history=20, vault=vault)
        path = Path(self.url.removeprefix("sqlite:///"))
        return SqliteStore(path, clock=clock, history=20, vault=vault)

    @asynccontextmanager
    async def world(self, *ids: str, key_id: str = "") -> AsyncIterator[World]:
        """Open it with these keys, or with all, and encrypted by one if that is named."""
        async with World.opened(
            lambda clock: self.store(clock, a_vault(*ids)), history=20
        ) as world:
            if key_id:
                await world.store.encrypt(key_id, actor=OPERATOR)
            yield world

    async def rows(self) -> dict[str, list[str]]:
        """Return all that is kept, as text, by table and column."""
        return await rows_of(self.url)

    async def said(self, text: str = PLANTED) -> set[str]:
        """Return the columns that say a text."""
        rows = await self.rows()
        return {column for column, values in rows.items() if any(text in one for one in values)}


@pytest.fixture(params=["sqlite", "postgres"])
def setting(request: pytest.FixtureRequest) -> Setting:
    """Each of the databases."""
    return Setting(request.param, request.getfixturevalue(f"{request.param}_url"))


@pytest_asyncio.fixture
async def world(setting: Setting) -> AsyncIterator[World]:
    """A store that is encrypted from its beginning."""
    async with setting.world(key_id="k1") as world:
        yield world


async def plant(world: World) -> DeliveryId:
    """Have a planted text come wherever a payload or a piece of it may; returns a dead letter."""
    store = world.store
    limits = Limits(breaker=Breaker(failures=1))
    await store.register([Destination(name="guarded", patterns=("none.*",), limits=limits)])
    await store.declare_schedules(
        [Schedule(name="hourly", type="order.paid", cron="0 * * * *", payload=f'"{PLANTED}"')],
        by=Declarer(worker="one", host="tests"),
    )
    payload = {"note": PLANTED}
    event = an_event(payload, headers={"note": PLANTED}, idempotency_key="once", key="order-1")
    alike = an_event(payload)
    [letter] = await world.publish(event)
    await world.append([Entry(alike, ("billing",), unique=Unique(world.after("1h") - world.now))])
    await world.retry(await world.claim_one(), "0s")
    fault = msgspec.structs.replace(a_fault(PLANTED), stack=PLANTED, title=PLANTED)
    exchange = Exchange(method="POST", url="/", headers={}, size=1, body=PLANTED, sent=PLANTED)
    for leased in (await world.claim(total=2)).deliveries:
        settled = Settled(
            lease=leased.lease,
            settlement=Failed(reason=FailureReason.TERMINAL, fault=fault),
            attempt=an_attempt(leased, PLANTED),
            exchange=exchange,
            addressees=Addressees(accepted=(PLANTED,)),
        )
        assert await store.settle([settled]) == []
    await store.replay([letter], actor=OPERATOR)
    [again] = (await world.claim(total=1)).deliveries
    settlement = Failed(reason=FailureReason.TERMINAL, fault=fault)
    await store.settle([Settled(lease=again.lease, settlement=settlement, exchange=exchange)])
    changes = (Change(path="/note", kind=ChangeKind.CHANGED, before=PLANTED, after=PLANTED),)
    is_edited = await store.edit(
        letter,
        before=event.payload,
        payload=msgspec.Raw(msgspec.json.encode({"note": PLANTED, "more": 1})),
        changes=changes,
        more=0,
        actor=OPERATOR,
        is_replayed=False,
    )
    assert is_edited
    request = LoggedRequest(
        at=world.now,
        delivery=letter,
        event_id=event.id,
        event_type=event.type,
        attempt=1,
        result="failed",
        latency=world.after("1s") - world.now,
        error=PLANTED,
    )
    await store.log_requests({"billing": RequestBatch([request], 10)})
    failure = Report(
        destination="guarded", generation=0, is_success=False, error=f"ValueError: {PLANTED}"
    )
    await store.report([failure], chance=0.5)
    return letter


async def check_whole(world: World, letter: DeliveryId) -> None:
    """Check that everything planted comes back as it was."""
    delivery = await world.store.find_delivery(letter)
    assert delivery is not None
    assert delivery.fault is not None
    assert (delivery.fault.message, delivery.fault.title) == (PLANTED, PLANTED)
    assert delivery.fault.stack == PLANTED
    assert delivery.exchange is not None
    assert delivery.exchange.sent == PLANTED
    assert delivery.addressees == Addressees(accepted=(PLANTED,))
    [cycle] = delivery.cycles
    assert cycle.fault.message == PLANTED
    assert [one.fault and one.fault.message for one in cycle.log] == ["it hurts", PLANTED]
    [edit] = delivery.edits
    assert edit.changes[0].before == PLANTED
    assert msgspec.json.decode(delivery.payload or b"") == {"note": PLANTED, "more": 1}
    event = await world.store.find_event(delivery.event_id)
    assert event is not None
    assert event.headers == {"note": PLANTED}
    assert msgspec.json.decode(event.payload) == {"note": PLANTED}
    [request] = await world.store.logged_requests("billing", limit=5)
    assert request.error == PLANTED
    [known] = (await world.store.timetable()).schedules
    assert PLANTED in known.standing.in_force.payload
    assert {one.title for one in await world.groups()} == {PLANTED}


async def walk(world: World, *, limit: int = 3) -> None:
    """Bring all there is to how it is to be kept."""
    async with asyncio.timeout(60):
        while await world.store.reseal(limit=limit):
            pass


async def test_a_planted_text_is_in_no_column_and_comes_back_whole(
    setting: Setting, world: World
) -> None:
    letter = await plant(world)

    assert await setting.said() == set()
    await check_whole(world, letter)


@pytest.mark.parametrize(
    ("broken", "columns"),
    [
        ("event_text", {"events.document"}),
        ("payload_text", {"deliveries.payload"}),
        (
            "closed",
            {
                *("deliveries.fault", "deliveries.log", "deliveries.cycles", "deliveries.edits"),
                *("exchanges.document", "addressees.document", "request_log.body"),
                "publishing_schedules.document",
            },
        ),
    ],
)
async def test_a_column_that_is_left_as_it_is_is_found(
    world: World,
    setting: Setting,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    columns: set[str],
) -> None:
    """Or the test above could not fail."""
    plain: dict[str, Callable[..., object]] = {
        "event_text": lambda _, event: json_text(event),
        "payload_text": lambda _, payload, __: bytes(payload).decode(),
        "closed": lambda _, value: value,
    }
    monkeypatch.setattr(Codec, broken, plain[broken])

    await plant(world)

    assert await setting.said() == columns


async def test_of_every_column_of_text_it_is_said_whether_it_is_encrypted(setting: Setting) -> None:
    rewritten = {f"{one.table}.{column.split()[0]}" for one in STAGES for column in one.columns}
    plain = {name for names in PLAIN.values() for name in names}

    if setting.name == "sqlite":
        connection = apsw.Connection(":memory:")
        migrate(connection, name="a look")
        columns = _text_columns(connection)
    else:
        async with setting.world():
            columns = await _text_columns_of_schema(setting.url)

    for column in sorted(columns - {"schema.version"}):
        is_plain = column in plain or f"{column.partition('.')[0]}.*" in plain
        assert is_plain is not (column in rewritten), column
    assert rewritten <= columns


async def test_what_was_kept_before_is_encrypted_in_small_steps(setting: Setting) -> None:
    async with setting.world() as world:
        letter = await plant(world)
        assert len(await setting.said()) > 8

        await world.store.encrypt("k1", actor=OPERATOR)
        await walk(world)

        found = await world.store.encryption()
        assert found is not None
        assert (found.is_on, found.is_under_way) == (True, False)
        assert found.changed >= 9
        assert await setting.said() == set()
        await check_whole(world, letter)


async def test_keys_change_and_after_that_the_old_one_is_not_needed(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world:
        letter = await plant(world)
        await world.store.encrypt("k2", actor=OPERATOR)
        assert await setting.said("~k1:") != set()
        await walk(world)
        assert await setting.said("~k1:") == set()
    async with setting.world("k2") as world:
        await check_whole(world, letter)


async def test_the_walk_goes_on_where_it_was_by_another_process(setting: Setting) -> None:
    async with setting.world() as world:
        letter = await plant(world)
        await world.store.encrypt("k1", actor=OPERATOR)
        for _ in range(4):
            await world.store.reseal(limit=1)
        async with world.another() as other:
            await walk(other)
        assert await setting.said() == set()
        await check_whole(world, letter)


async def test_the_walk_ends_whatever_is_published_in_each_of_its_steps(setting: Setting) -> None:
    async with setting.world() as world:
        await plant(world)
        await publish_named(world, count=30)
        await world.store.encrypt("k1", actor=OPERATOR)
        steps = 0
        while await world.store.reseal(limit=3):
            steps += 1
            assert steps < 500, "it runs after what is published"
            await publish_named(world, count=4)

        assert await setting.said() == set()


async def test_what_somebody_has_in_hand_is_rewritten_later_in_the_same_round(
    postgres_url: str,
) -> None:
    """Were that another round, there would be no end to them on a busy queue."""
    setting = Setting("postgres", postgres_url)
    address = read_address(postgres_url)
    deliveries = [stage.table for stage in STAGES].index("deliveries")
    async with setting.world() as world:
        letter = await plant(world)
        await world.store.encrypt("k1", actor=OPERATOR)
        other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
        is_locked, steps, count = False, 0, 1
        while count:
            [document] = (await setting.rows())["encryption.document"]
            is_locked = not is_locked and msgspec.json.decode(document).get("stage") == deliveries
            async with other.transaction():
                if is_locked:
                    await other.fetch("SELECT id FROM deliveries FOR UPDATE")
                count = await world.store.reseal(limit=100)
            steps += 1
            assert steps < 100, "each round leads to another"
        await other.close()

        assert await setting.said() == set()
        await check_whole(world, letter)


async def test_digests_of_events_that_have_gone_are_keyed(setting: Setting) -> None:
    short = Retention(delivered=timedelta(hours=1), events=timedelta(hours=1))
    async with setting.world() as world:
        await publish_named(world, count=5)
        for leased in (await world.claim(total=5)).deliveries:
            await world.settle(leased, Delivered())
        world.clock.advance("2h")
        for _ in range(3):
            await world.store.prune(short)
        before = (await setting.rows())["idempotency.remains"]
        await world.store.encrypt("k1", actor=OPERATOR)

        await walk(world, limit=2)

        after = (await setting.rows())["idempotency.remains"]
        assert len(before) == len(after) == 5
        assert not any('"digest":"~' in one for one in before)
        assert all('"digest":"~' in one for one in after)


async def publish_named(world: World, *, count: int) -> None:
    """Publish events whose idempotency keys grow, as those of orders do."""
    for _ in range(count):
        key = f"order-{next(_numbers):09}"
        await world.append(entries(an_event({"note": PLANTED}, idempotency_key=key)))


async def test_all_can_be_decrypted_again(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world:
        letter = await plant(world)
        await world.store.encrypt("", actor=OPERATOR)
        await walk(world)
        assert await setting.said("~k1:") == set()
    async with World.opened(lambda clock: setting.store(clock, None), history=20) as world:
        await check_whole(world, letter)


async def test_who_has_the_store_open_already_writes_by_the_new_key_with_its_next_event(
    setting: Setting,
) -> None:
    async with setting.world() as world, world.another() as other:
        routes_version = await other.version()
        await world.store.encrypt("k1", actor=OPERATOR)

        batch = entries(an_event({"note": PLANTED}))
        changed = await other.store.append(
            batch, routes_version=routes_version, all_or_nothing=False
        )
        await other.append(batch)

        assert type(changed).__name__ == "RoutesChanged"
        assert await setting.said() == set()


async def test_the_same_body_is_the_same_and_another_is_not(world: World) -> None:
    first = an_event({"a": 1}, idempotency_key="once")
    await world.append(entries(first))

    again = await world.append(entries(an_event({"a": 1}, idempotency_key="once")))
    other = await world.append(entries(an_event({"a": 2}, idempotency_key="once")))

    assert again.results[0].is_duplicate  # type: ignore[union-attr]  # a receipt
    assert type(other.results[0]).__name__ == "Conflict"


async def test_what_was_unique_before_is_so_after(setting: Setting) -> None:
    def one() -> Entry:
        return Entry(an_event({"a": 1}), ("billing",), unique=Unique(span=HOUR))

    async with setting.world() as world:
        HOUR = world.after("1h") - world.now  # noqa: N806 - it is one
        await world.append([one()])
        await world.store.encrypt("k1", actor=OPERATOR)

        [receipt] = await world.receipts([one()])

        assert receipt.is_duplicate
        assert not any(key.startswith("=") and key[1] != "~" for key in await _uniques(setting))


async def test_without_its_key_nothing_is_written_and_nothing_is_lost(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world:
        letter = await plant(world)
        before = await setting.rows()
    async with setting.world("k2") as world:
        with pytest.raises(SecretError, match="encrypted by the key 'k1', which is not among"):
            await world.append(entries(an_event()))
        with pytest.raises(SecretError, match="'k1'"):
            await world.store.check_keys()
        shown = await world.show(letter)
        assert "(encrypted)" in (shown.fault.message if shown.fault else "")
        with pytest.raises(SecretError, match="'k1'"):
            await world.store.letters(Query())
        assert (await setting.rows())["events.document"] == before["events.document"]
    async with setting.world() as world:
        await check_whole(world, letter)


async def test_another_key_of_the_same_id_opens_nothing(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world:
        await plant(world)
    keys = sealed_keys(k1=b"x" * 32)
    store_of = setting.store
    async with World.opened(lambda clock: store_of(clock, keys), history=20) as world:
        with pytest.raises(SecretError, match="another key of that id"):
            await world.store.check_keys()
        with pytest.raises(SecretError, match="another key of that id"):
            await world.append(entries(an_event()))


async def test_a_delivery_whose_key_is_missing_is_leased_and_says_so(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world:
        await world.publish(an_event({"note": PLANTED}))
        await world.store.encrypt("k2", actor=OPERATOR)
    async with setting.world("k2") as world:
        leased = await world.claim_one()

        assert leased.is_sealed
        assert "'k1'" in leased.unreadable
        assert await world.settle(leased, Delivered()) == []


async def test_a_walk_that_meets_a_missing_key_says_so_and_goes_on_with_it(
    setting: Setting,
) -> None:
    async with setting.world(key_id="k1") as world:
        letter = await plant(world)
        await world.store.encrypt("k2", actor=OPERATOR)
    async with setting.world("k2") as world:
        with pytest.raises(SecretError, match="'k1'"):
            await walk(world)
    async with setting.world() as world:
        await walk(world)
        await check_whole(world, letter)
        assert await setting.said("~k1:") == set()


async def test_text_is_not_searched_for_in_what_is_hidden(world: World) -> None:
    await plant(world)

    with pytest.raises(UsageError, match="no text can be searched for"):
        await world.found(text=PLANTED)

    assert await world.found(error_class="ConnectionError")


async def test_of_a_failing_destination_the_gate_keeps_the_class_of_the_error(world: World) -> None:
    await plant(world)

    [gate] = await world.store.gates(["guarded"])

    assert gate.gate.last_failure is not None
    assert gate.gate.last_failure.error == "ValueError"


async def test_an_envelope_in_the_place_of_another_does_not_open(
    setting: Setting, world: World
) -> None:
    first, second = an_event({"a": 1}), an_event({"a": 2})
    await world.publish(first, second)
    documents = (await setting.rows())["events.document"]
    parts = [one.partition('"sealed":') for one in documents]
    swapped = parts[0][0] + "".join(parts[1][1:])

    with pytest.raises(SecretError, match="cannot be opened"):
        world.store.codec.event(swapped)  # type: ignore[attr-defined]  # of SQL stores


async def _uniques(setting: Setting) -> list[str]:
    return (await setting.rows())["uniques.key"]


def sealed_keys(**keys: bytes) -> Vault:
    """Return a vault with keys of one's own."""
    ring = KeyRing(keys)
    return Vault(lambda: ring, entropy=SystemEntropy())


def _text_columns(connection: apsw.Connection) -> set[str]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'redrive_*'"
    return {
        f"{table.removeprefix('redrive_')}.{row[1]}"
        for table in [str(table) for (table,) in connection.execute(tables)]
        for row in connection.execute(f"PRAGMA table_info({table})")
        if row[2] not in {"INTEGER", "REAL"} and (table, row[1]) != ("redrive_audit", "deliveries")
    }


async def _text_columns_of_schema(url: str) -> set[str]:
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    rows = await connection.fetch(
        "SELECT c.table_name, c.column_name FROM information_schema.columns c "
        "JOIN information_schema.tables t USING (table_schema, table_name) "
        "WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE' "
        "AND c.data_type IN ('text', 'json', 'jsonb', 'bytea')",
        address.schema,
    )
    await connection.close()
    return {f"{table}.{column}" for table, column in rows}


async def test_keys_change_twice_under_load_and_nothing_is_lost(setting: Setting) -> None:
    async with setting.world(key_id="k1") as world, world.another() as other:
        letter = await plant(world)
        rest = an_event({"note": PLANTED}, key="order-2")
        await world.publish(rest, to="mailing")
        published, delivered = [rest.id], list[str]()

        async def publish(count: int) -> None:
            for _ in range(count):
                event = an_event({"note": PLANTED})
                await world.append(entries(event, to=["mailing"]))
                published.append(event.id)

        async def work(count: int) -> None:
            for _ in range(count):
                for leased in (await other.claim("mailing", total=5)).deliveries:
                    assert msgspec.json.decode(leased.event.payload) == {"note": PLANTED}
                    assert await other.settle(leased, Delivered()) == []
                    delivered.append(leased.event.id)

        for key_id in ("k2", "k3"):
            await world.store.encrypt(key_id, actor=OPERATOR)
            await asyncio.gather(publish(IN_FLIGHT), work(IN_FLIGHT), walk(other), walk(world))
        await work(IN_FLIGHT)
        await walk(world)

        assert sorted(delivered) == sorted(published)
        assert await setting.said() == await setting.said("~k1:") == set()
        assert await setting.said("~k2:") == set()
        async with setting.world("k3") as last:
            await check_whole(last, letter)
