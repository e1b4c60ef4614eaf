"""Callers' own transactions, open for as long as they like while everything else goes on.

Each takes its view of the database at a moment of its own, by one of three isolation levels, and
publishes by it. Whatever is decided from what it sees may have changed when it commits.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from redrive import Event, Query, Redrive, Retry, StoreError, Terminal
from redrive.model.delivery import Delivery, Status
from redrive.model.destination import Order
from redrive.stores.postgres.connection import read_address
from redrive.testing import Kit

__all__ = ["prove_callers"]

ISOLATIONS = ("read_committed", "repeatable_read", "serializable")
KEYS = ("a", "b", "c")
_CALLERS = 3
_ADA = "ada"


class Caller:
    """A connection of the application's own, and the transaction that is open on it."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection
        self.transaction: asyncpg.transaction.Transaction | None = None
        self.published: list[int] = []
        self.keys: set[str] = set()

    async def begin(self, isolation: str) -> None:
        """Open a transaction, and take its view of the database now."""
        self.transaction = self.connection.transaction(isolation=isolation)
        await self.transaction.start()
        await self.connection.execute("SELECT FROM pg_class LIMIT 1")

    async def end(self, *, commits: bool) -> list[int]:
        """Commit or roll back; returns the numbers that are stored by that."""
        assert self.transaction is not None
        transaction, self.transaction = self.transaction, None
        published, self.published = self.published, []
        self.keys.clear()
        try:
            await (transaction.commit() if commits else transaction.rollback())
        except asyncpg.SerializationError:
            return []
        return published if commits else []


class Scene:
    """An app whose destinations keep an order or none, its callers, and what became of events."""

    def __init__(self, url: str, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - steps that can be repeated
        self._url = url
        self._number = 0
        self._keys: dict[int, str] = {}
        self._versions: dict[int, int] = {}
        self._stored: set[int] = set()
        self._dismissed: set[tuple[str, int]] = set()
        self._bad: set[int] = set()
        self._done: dict[str, list[int]] = defaultdict(list)
        self._callers: list[Caller] = []
        self.steps: list[str] = []
        self._app = Redrive(url)
        for name, order in (("free", Order.NONE), ("parked", Order.PARK), ("passed", Order.SKIP)):
            self._app.handler("thing.*", name=name, order=order, retry=Retry(max_attempts=1))(
                self._handler(name)
            )

    def _handler(self, name: str) -> Callable[[Event[int]], Awaitable[None]]:
        async def handle(event: Event[int]) -> None:
            if event.payload in self._bad and name != "free":
                raise Terminal("it is bad")
            self._done[name].append(event.payload)

        return handle

    async def run(self, steps: int) -> None:
        """Take so many steps, end what is open, and look that everything has arrived in order."""
        dsn = read_address(self._url).dsn
        connections = [await asyncpg.connect(dsn) for _ in range(_CALLERS)]
        self._callers = [Caller(one) for one in connections]
        try:
            async with Kit(self._app, store=self._url) as kit:
                for _ in range(steps):
                    await self._step(kit)
                await self._finish(kit)
                await self._check()
        finally:
            for one in connections:
                one.terminate()

    async def _step(self, kit: Kit) -> None:
        caller = self._chance.choice(self._callers)
        match self._chance.choice("bbbppppppcccroodddddffx"):
            case "b" if caller.transaction is None:
                isolation = self._chance.choice(ISOLATIONS)
                self._tell(f"begin {isolation}", caller)
                await caller.begin(isolation)
            case "p" if caller.transaction is not None:
                await self._publish(caller)
            case "c" | "r" as word if caller.transaction is not None:
                self._tell("commit" if word == "c" else "roll back", caller)
                self._stored.update(await caller.end(commits=word == "c"))
            case "o":
                await self._publish_alone()
            case "d":
                self._tell("deliver")
                await kit.drain()
            case "f":
                await self._operate(kit)
            case "x":
                self._tell("mend and replay all")
                self._bad.clear()
                await self._replay_all(kit)
            case _:
                pass

    def _tell(self, what: str, caller: Caller | None = None) -> None:
        who = "" if caller is None else f"caller {self._callers.index(caller)}: "
        self.steps.append(f"{who}{what}")

    def _new(self, key: str) -> int:
        self._number += 1
        self._keys[self._number] = key
        if self._chance.random() < 0.2:
            self._bad.add(self._number)
        return self._number

    def _free_keys(self, caller: Caller | None) -> list[str]:
        """Return the keys that nobody else holds: whoever wants one of those would wait."""
        held = {key for one in self._callers if one is not caller for key in one.keys}
        return [key for key in KEYS if key not in held]

    async def _publish(self, caller: Caller) -> None:
        keys = self._free_keys(caller)
        if not keys:
            return
        key = self._chance.choice(keys)
        number = self._new(key)
        self._tell(f"publish {number} of {key}", caller)
        caller.keys.add(key)
        try:
            receipt = await self._app.publish(
                "thing.made", number, key=key, within=caller.connection
            )
        except (StoreError, asyncpg.PostgresError):
            # Somebody else has published to the key since the transaction took its view.
            self._tell("it is given up", caller)
            await caller.end(commits=False)
        else:
            caller.published.append(number)
            self._versions[number] = receipt.version or 0

    async def _publish_alone(self) -> None:
        keys = self._free_keys(None)
        if keys:
            key = self._chance.choice(keys)
            number = self._new(key)
            self._tell(f"publish {number} of {key}")
            receipt = await self._app.publish("thing.made", number, key=key)
            self._versions[number] = receipt.version or 0
            self._stored.add(number)

    async def _letters(self) -> list[Delivery]:
        page = await self._app.operations.deliveries(Query(status=Status.FAILED), limit=500)
        return list(page.deliveries)

    async def _operate(self, kit: Kit) -> None:
        """Resolve or delete a dead letter, or send it again."""
        letters = await self._letters()
        if not letters:
            return
        letter = self._chance.choice(letters)
        number = int(str((await kit.operations.show(letter.id)).payload))
        act = self._chance.choice(("resolve", "delete", "replay"))
        self._tell(f"{act} {number} at {letter.destination}")
        if act == "replay":
            await kit.operations.replay([letter.id], by=_ADA)
            return
        self._dismissed.add((letter.destination, number))
        await getattr(kit.operations, act)([letter.id], by=_ADA, why="the proof")

    async def _replay_all(self, kit: Kit) -> None:
        await kit.operations.replay([one.id for one in await self._letters()], by=_ADA)

    async def _finish(self, kit: Kit) -> None:
        for caller in self._callers:
            if caller.transaction is not None:
                self._stored.update(await caller.end(commits=True))
        self._bad.clear()
        for _ in range(3):  # a lane that was put off is freed by the claim after
            await kit.drain()
            await self._replay_all(kit)
            await kit.run_for("1m")

    async def _check(self) -> None:
        waiting = await self._app.operations.deliveries(Query(status=Status.PENDING), limit=500)
        assert [(one.destination, one.key) for one in waiting.deliveries] == [], "they wait"
        assert await self._letters() == []
        for name in ("free", "parked", "passed"):
            wanted = Counter(one for one in self._stored if (name, one) not in self._dismissed)
            assert Counter(self._done[name]) == wanted, name
        for key in KEYS:  # what is parked arrives in the order in which it was stored
            got = [self._versions[one] for one in self._done["parked"] if self._keys[one] == key]
            assert got == sorted(got), key


def prove_callers(url: str, *, seed: int, steps: int) -> None:
    """Take random steps; what goes wrong is told with the steps that led to it."""
    scene = Scene(url, seed)
    try:
        asyncio.run(scene.run(steps))
    except BaseException as error:
        error.add_note("\n".join([f"Seed {seed}:", *scene.steps]))
        raise
