"""Payloads of every shape at each door: publish, edit and import.

Whatever a door lets in is delivered, shown, exported and taken back; the rest is refused with
advice. No shape may break what stands behind the door: the claims, and those who look.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec

from redrive import Event, Query, Redrive, Retry, Terminal, UsageError
from redrive.archive import read_line, write_line
from redrive.model.delivery import Status
from redrive.model.letter import Letter
from redrive.testing import Kit
from tests.proof.grounds import Ground

__all__ = ["prove_payloads"]

_TEXTS = (
    *("", "a", "\0", "\x1e", "\x7f", "\u009b", "\u2028", "\ud800", "\U0001f600", "é", "' OR 1=1"),
    *('"', "\\", "\r\n", "%s", "{}", "$1", "null", "x" * 5_000),
)
_NUMBERS = (
    *(0, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400),
    *(0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf")),
)
_RAWS = (
    *(b"1", b" [1 , 2] ", b'{"a":1,"a":2}', b"", b"]", b"1,2", b'1},"type":"thing.forged"'),
    *(b'{"a":', b"\xff", b"\xef\xbb\xbf1", b"1e999", b"-", b"tru", b'"\\ud800"', b"[" * 300),
)
_ODD: tuple[Callable[[], object], ...] = (
    object,
    lambda: b"\xff\0",
    lambda: {1, 2},
    lambda: Decimal("1.10"),
    lambda: datetime(2026, 1, 1, tzinfo=UTC),
    lambda: timedelta(seconds=1),
    lambda: UUID(int=7),
    lambda: (1, (2,)),
)


def shape(chance: random.Random, depth: int = 0) -> object:
    """Return a payload of some shape, which may be none at all."""
    kind = chance.choice("ntrolldddw" if depth < 4 else "ntro")
    match kind:
        case "n" | "t":
            return chance.choice((*_NUMBERS, None, True, False) if kind == "n" else _TEXTS)
        case "r":
            return msgspec.Raw(chance.choice(_RAWS))
        case "o":
            return chance.choice(_ODD)()
        case "l":
            return [shape(chance, depth + 1) for _ in range(chance.randrange(4))]
        case "d":
            return {
                chance.choice((*_TEXTS, 7, None)): shape(chance, depth + 1)
                for _ in range(chance.randrange(4))
            }
        case _:
            return _well(chance.choice((100, 199, 200, 201, 990, 5_000)))


def _well(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


class _Book:
    """What the doors have let in, and how many they have refused."""

    def __init__(self) -> None:
        self.taken = 0
        self.refused = 0
        self.read: list[object] = []


def _an_app(book: _Book) -> Redrive:
    app = Redrive("memory://")
    once = Retry(max_attempts=1)

    @app.handler("thing.*", name="reader", retry=once)
    async def read(event: Event[object]) -> None:
        book.read.append(event.payload)

    @app.handler("thing.*", name="refuser", retry=once, replay_rate=None)
    async def refuse(event: Event[object]) -> None:
        raise Terminal("not today")

    return app


async def _publish(app: Redrive, kit: Kit, book: _Book, chance: random.Random, count: int) -> None:
    for _ in range(count):
        try:
            await app.publish("thing.made", shape(chance))
        except UsageError:
            book.refused += 1
        else:
            book.taken += 1
    await kit.drain()
    assert len(book.read) == book.taken, "what was taken is delivered"
    events = await app.operations.events(limit=10_000)
    assert [one.event.type for one in events] == ["thing.made"] * book.taken, "nothing is forged"
    for one in events:
        json.loads(bytes(one.event.payload))  # by another reader than ours, too


async def _edit(app: Redrive, book: _Book, chance: random.Random) -> list[Letter]:
    failed = Query(status=Status.FAILED)
    for letter in (await app.operations.deliveries(failed, limit=500)).deliveries:
        try:
            told = await app.operations.edit(
                letter.id, shape(chance), by="ada", why="the proof", replay=False
            )
        except UsageError:
            book.refused += 1
        else:
            msgspec.json.encode(told.payload)
        await app.operations.show(letter.id)
    return [one async for one in app.operations.export()]


async def _import(
    app: Redrive, kit: Kit, book: _Book, chance: random.Random, letters: list[Letter]
) -> None:
    """Take letters back as they were exported, and lines in which somebody has had a hand."""
    for letter in letters:
        line = write_line(letter)
        assert write_line(read_line(line)) == write_line(read_line(write_line(read_line(line))))
        spoiled = line.replace(b'"payload":', b'"payload":' + chance.choice(_RAWS), 1)
        for one in (spoiled, line):
            try:
                await app.operations.restore([read_line(one)], by="ada")
            except UsageError:
                assert one is spoiled, "what was exported is taken back"
                book.refused += 1
    page = await app.operations.deliveries(Query(status=Status.FAILED), limit=500)
    assert len(page.deliveries) == len(letters)
    for delivery in page.deliveries:
        await app.operations.show(delivery.id)
    await app.operations.replay([one.id for one in page.deliveries], by="ada")
    assert (await kit.drain()).failed == len(letters), "a claim reads them all"


async def _prove(url: str, other: str, chance: random.Random, count: int) -> int:
    book = _Book()
    app = _an_app(book)
    async with Kit(app, store=url) as kit:
        await _publish(app, kit, book, chance, count)
        letters = await _edit(app, book, chance)
    again = _an_app(book)
    async with Kit(again, store=other) as kit:
        await _import(again, kit, book, chance, letters)
    return book.taken + book.refused


def prove_payloads(ground: Ground, *, seed: int, count: int) -> int:
    """Bring so many payloads to each door; returns how many were taken or refused."""
    chance = random.Random(seed)  # noqa: S311 - shapes that can be repeated
    with ground.fresh() as site, ground.fresh() as another:
        try:
            return asyncio.run(_prove(site.url, another.url, chance, count))
        except BaseException as error:
            error.add_note(f"Seed {seed} of {count} payloads.")
            raise
