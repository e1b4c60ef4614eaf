"""Projections that write by a session of SQLAlchemy, in the transaction of their checkpoint."""

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import JSON, CursorResult, ForeignKey, MetaData, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from redrive import Event, Projection, ReadModel, Redrive, on
from redrive.model.delivery import Delivery
from redrive.testing import Kit

Doing = Callable[[AsyncSession, int], Awaitable[None]]


def mapped(schema: str | None) -> tuple[type[Any], type[Any]]:
    """Map orders and their lines to tables of a schema."""

    class Base(DeclarativeBase):
        metadata = MetaData(schema=schema)

    class Order(Base):
        __tablename__ = "ordered"

        number: Mapped[int] = mapped_column(primary_key=True)
        facts: Mapped[dict[str, Any]] = mapped_column(JSON)
        more: Mapped[Any] = mapped_column(JSON().with_variant(JSONB, "postgresql"), default=[1])
        lines: Mapped[list[Any]] = relationship("Line")

    class Line(Base):
        __tablename__ = "line"

        id: Mapped[int] = mapped_column(primary_key=True)
        order: Mapped[int] = mapped_column(ForeignKey(Order.number))
        title: Mapped[str] = mapped_column(unique=True)

    return Order, Line


class Shop:
    """An app whose projection does with its session what a test says."""

    def __init__(self, url: str) -> None:
        self.app = Redrive(url)
        self.schema = url.partition("schema=")[2] or None
        self.order, self.line = mapped(self.schema)
        self.kit: Kit
        self.doing: Doing = self.add
        self.lent: list[AsyncSession] = []
        shop = self

        @self.app.projection(name="orders")
        class _Orders(Projection):
            @on("order.placed")
            async def placed(self, event: Event[dict[str, int]], model: ReadModel) -> None:
                shop.lent.append(model.session)
                assert model.session is shop.lent[-1], "one session for each call"
                await shop.doing(model.session, event.payload["n"])

            @on("order.imported", batch=True)
            async def imported(self, events: list[Event[Any]], model: ReadModel) -> None:
                for one in events:
                    await shop.add(model.session, one.payload["n"])

            async def truncate(self, model: ReadModel) -> None:
                for one in reversed(shop.order.metadata.sorted_tables):
                    await model.session.execute(one.delete())

    async def add(self, session: AsyncSession, number: int) -> None:
        lines = [self.line(title=f"{number}-{one}") for one in "ab"]
        session.add(self.order(number=number, facts={"n": [number]}, lines=lines))

    async def publish(self, *numbers: int, kind: str = "order.placed") -> None:
        for number in numbers:
            await self.app.publish(kind, {"n": number}, key=f"order-{number}")
        await self.app.drain()

    async def numbers(self) -> list[int]:
        rows = await self.kit.select(f"SELECT number FROM {self.prefix}ordered ORDER BY number")  # noqa: S608 - a test
        return [number for (number,) in rows]

    async def letters(self) -> list[Delivery]:
        for _ in range(4):
            self.kit.clock.advance("2s")
            await self.app.drain()
        return list(self.kit.dead_letters())

    @property
    def prefix(self) -> str:
        return f"{self.schema}." if self.schema else ""

    async def create(self, model: AsyncSession) -> None:
        connection = await model.connection()
        await connection.run_sync(self.order.metadata.create_all, checkfirst=False)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def shop(url: str) -> AsyncIterator[Shop]:
    shop = Shop(url)
    async with Kit(shop.app, store=url) as kit:
        shop.kit = kit
        shop.doing, doing = lambda session, _: shop.create(session), shop.doing
        await shop.publish(0)
        shop.doing = doing
        yield shop


async def test_what_was_added_is_written_when_the_function_returns(shop: Shop) -> None:
    await shop.publish(1, 2)
    await shop.publish(3, 4, kind="order.imported")

    assert await shop.numbers() == [1, 2, 3, 4]
    assert await shop.letters() == []


async def test_a_session_reads_changes_and_joins_as_any_other(shop: Shop) -> None:
    found: list[Any] = []

    async def change(session: AsyncSession, number: int) -> None:
        order = await session.get_one(shop.order, 1)
        found.append((order.facts, order.more, order is await session.get(shop.order, 1)))
        rows = await session.execute(
            select(shop.line.title).join(shop.order).order_by(shop.line.title)
        )
        found.append(list(rows.scalars()))
        found.append((await session.execute(select(shop.line).where(text("1 = 2")))).all())
        order.facts = {"n": number}
        gone = await session.execute(shop.line.__table__.delete())
        assert isinstance(gone, CursorResult)
        found.append(gone.rowcount)
        async with session.begin_nested() as savepoint:
            session.add(shop.line(order=1, title="undone"))
            await session.flush()
            await savepoint.rollback()
        connection = await session.connection()
        assert isinstance(connection, AsyncConnection)
        found.append((await connection.execute(select(shop.line.title))).all())
        found.append((await session.scalars(select(shop.order.facts))).all())

    await shop.publish(1)
    shop.doing = change
    await shop.publish(2)

    assert [one.fault for one in await shop.letters()] == []
    assert found == [({"n": [1]}, [1], True), ["1-a", "1-b"], [], 2, [], [{"n": 2}]]


async def test_what_the_database_refuses_in_the_end_has_failed_and_is_undone(shop: Shop) -> None:
    async def add_twice(session: AsyncSession, number: int) -> None:
        await shop.add(session, number + 10)
        session.add(shop.line(order=1, title="1-a"))

    await shop.publish(1)
    shop.doing = add_twice
    await shop.publish(2)
    shop.doing = shop.add
    await shop.publish(3)

    [letter] = await shop.letters()
    assert letter.fault is not None
    assert letter.fault.rule == "database: IntegrityError"
    assert letter.attempts == 1, "no second try could mend it"
    assert await shop.numbers() == [1, 3]


@pytest.mark.parametrize("ending", ["rollback", "connection", "swallowed"])
async def test_a_function_that_undoes_its_session_has_failed(shop: Shop, ending: str) -> None:
    """It would count as applied otherwise, and nothing of it were there."""

    async def undo(session: AsyncSession, number: int) -> None:
        await shop.add(session, number)
        if ending == "rollback":
            await session.rollback()
        elif ending == "connection":
            await (await session.connection()).commit()
        else:
            session.add(shop.line(order=1, title="1-a"))
            try:
                await session.flush()
            except Exception:  # noqa: BLE001 - what is tested
                return

    await shop.publish(1)
    shop.doing = undo
    await shop.publish(2)

    [letter] = await shop.letters()
    assert letter.fault is not None
    assert "leave commit and rollback to Redrive" in letter.fault.message
    assert await shop.numbers() == [1]


async def test_a_session_that_says_commit_only_writes(shop: Shop) -> None:
    """What fails after it undoes it, as everything."""

    async def commit_and_fail(session: AsyncSession, number: int) -> None:
        await shop.add(session, number)
        await session.commit()
        if number == 2:
            raise RuntimeError

    shop.doing = commit_and_fail
    await shop.publish(1, 2)

    assert len(await shop.letters()) == 1
    assert await shop.numbers() == [1]


async def test_a_publish_within_a_session_is_undone_with_it(shop: Shop) -> None:
    async def publish(session: AsyncSession, number: int) -> None:
        await shop.app.publish("order.seen", number, within=session)
        if number == 2:
            raise RuntimeError

    shop.doing = publish
    await shop.publish(1, 2)

    letters = await shop.letters()
    seen = [one.payload for one in await shop.app.log.read(types="order.seen")]
    if shop.schema is None:
        assert {one.fault and one.fault.error_class for one in letters} == {
            "redrive.errors.TransactionError"
        }, "on SQLite it is the connection that can be joined"
    else:
        assert (seen, len(letters)) == ([1], 1)


async def test_a_session_is_of_no_use_afterwards(shop: Shop) -> None:
    await shop.publish(1)

    with pytest.raises(Exception, match="for one call of the function"):
        await shop.lent[-1].execute(text("SELECT 1"))


async def test_a_reset_empties_the_model_by_a_session(shop: Shop) -> None:
    await shop.publish(1, 2)
    shop.doing = lambda session, number: shop.add(session, number + 10) if number else _nothing()

    await shop.app.projections.reset("orders", by="ada")
    await shop.app.drain()

    assert await shop.numbers() == [11, 12]


async def _nothing() -> None:
    pass


async def test_without_a_database_or_sqlalchemy_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop("memory://")
    async with Kit(shop.app) as kit:
        shop.kit = kit
        await shop.publish(1)
        [letter] = await shop.letters()
    assert letter.fault is not None
    assert "store in memory has no database" in letter.fault.message

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("redrive.transports.sessions.asking.find_spec", lambda name: None)
    with pytest.raises(Exception, match="SQLAlchemy, and sqlalchemy is not installed; install it"):
        _ = ReadModel(connection=object()).session
