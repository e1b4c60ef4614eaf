"""Those who publish and those who operate, each in a process of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from redrive.app.redrive import Redrive
from redrive.errors import IdempotencyConflictError, NotFoundError, StoreError, UsageError
from redrive.model.delivery import DeliveryId, Status
from redrive.model.event import NewEvent
from redrive.operations import Operations
from redrive.policies.payload import encode_payload
from redrive.store import Query
from tests.proof.checkers.records import Acknowledged, Offered, Refused, Uncertain
from tests.simulation.crowds import LARGE
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.plan import Plan

__all__ = ["FAR_TIMES", "Operator", "Publisher"]

FAR_TIMES = (40.0, 600.0, 7200.0)
"""Up to how many seconds ahead an event may be due."""
_TYPES = ("a.x", "a.y", "b.x", "c.x")
_TRIES = 3
_CONTENT = 0.6
"""How many ask no second time, once they have an answer; others do, or use a key once more."""


class Publisher:
    """Publishes what the plan says; an answer that did not come is asked for again, or not."""

    def __init__(self, number: int, plan: Plan, history: History, loop: SimulationLoop) -> None:
        self._plan = plan
        self._history = history
        self._loop = loop
        self._source = f"p{number}"
        self._chance = Random(f"publisher {number} of {plan.seed}")  # noqa: S311 - a simulation
        self._far = Random(f"far times of {number} of {plan.seed}")  # noqa: S311 - as above
        self._left = plan.events // plan.publishers
        self.is_hurried = False
        self._offer = number * 1_000_000
        self._batch = number * 1_000_000

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    async def live(self, app: Redrive) -> None:
        """Publish until all is offered; a new process goes on where the last one died."""
        plan, chance = self._plan, self._chance
        while not self.is_done:
            rest = chance.random() * 2 * plan.duration * plan.publishers / plan.events
            await self._loop.pause(0.0 if self.is_hurried else rest)
            self._left -= 1
            if chance.random() < plan.batches:
                await self._publish_many(app, chance.randint(1, 4))
            elif chance.random() < plan.within:
                await self._publish_within(app)
            else:
                await self._publish(app)

    async def _publish(self, app: Redrive) -> None:
        event = self._draw(app)
        for _ in range(_TRIES):
            is_heard = await self._ask([event], lambda one: _one(app, one), batch=None)
            if event.idempotency_key is None:
                return
            if is_heard and self._chance.random() < _CONTENT:
                break
            await self._loop.pause(self._chance.random() * self._plan.lease)
        if self._chance.random() > _CONTENT:
            other = msgspec.structs.replace(event, payload=self._payload())
            await self._ask([other], lambda one: _one(app, one), batch=None)

    async def _publish_many(self, app: Redrive, number: int) -> None:
        self._batch += 1
        events = [self._draw(app) for _ in range(number)]
        await self._ask(events, app.publish_many, batch=self._batch)

    async def _publish_within(self, app: Redrive) -> None:
        self._batch += 1
        events = [self._draw(app) for _ in range(self._chance.randint(1, 3))]

        async def publish(events: list[NewEvent]) -> Any:  # noqa: ANN401 - receipts
            async with app.transaction() as transaction:
                return await app.publish_many(events, within=transaction)

        await self._ask(events, publish, batch=self._batch)

    async def _ask(
        self,
        events: list[NewEvent],
        publish: Callable[[list[NewEvent]], Awaitable[Any]],
        *,
        batch: int | None,
    ) -> bool:
        offers: list[int] = []
        for event in events:
            self._offer += 1
            offers.append(self._offer)
            self._write(
                Offered(
                    at=self._loop.time(),
                    offer=self._offer,
                    event_type=event.type,
                    payload=encode_payload(event.payload),
                    source=event.source,
                    idempotency_key=event.idempotency_key,
                    batch=batch,
                )
            )
        try:
            receipts = await publish(events)
        except IdempotencyConflictError:
            for offer in offers:
                self._write(Refused(at=self._loop.time(), offer=offer))
            return True
        except StoreError:
            for offer in offers:
                self._write(Uncertain(at=self._loop.time(), offer=offer))
            return False
        for offer, receipt in zip(offers, receipts, strict=True):
            self._write(Acknowledged(at=self._loop.time(), offer=offer, receipt=receipt))
        return True

    def _write(self, record: Offered | Acknowledged | Refused | Uncertain) -> None:
        self._history.write(record)

    def _payload(self) -> dict[str, Any]:
        plan, chance = self._plan, self._chance
        payload: dict[str, Any] = {"offer": self._offer + 1, "chance": chance.randrange(10**9)}
        if chance.random() < plan.terminal:
            payload["terminal"] = chance.choice(plan.names)
        if chance.random() < plan.poison:
            payload["poison"] = chance.choice(plan.names)
        if plan.large and self._far.random() < plan.large:
            payload["large"] = "." * LARGE
        return payload

    def _draw(self, app: Redrive) -> NewEvent:
        plan, chance = self._plan, self._chance
        now = app._ports.clock.now()  # noqa: SLF001 - as `publish` does with a duration
        return NewEvent(
            type=chance.choice(_TYPES),
            payload=self._payload(),
            key=chance.choice([None, *(f"k{one}" for one in range(plan.keys))]),
            tenant=self._tenant(),
            source=self._source,
            idempotency_key=(
                f"i{self._offer}-{chance.randrange(10**6)}"
                if chance.random() < plan.keyed_twice
                else None
            ),
            priority=chance.choice([0, 0, 0, 5, -5]) * (not plan.is_plain),
            generation=chance.choice([None, *plan.generations]),
            due=self._distant(now) or self._instant(now, plan.delayed, 0.1, 8.0),
            deadline=self._instant(now, plan.deadlines, 0.5, 20.0),
        )

    def _tenant(self) -> str | None:
        plan, chance = self._plan, self._chance
        if not plan.tenants:
            return None
        if chance.random() < plan.hog:
            return "t0"
        return chance.choice([None, *(f"t{one}" for one in range(plan.tenants))])

    def _distant(self, now: datetime) -> datetime | None:
        if self._far.random() >= self._plan.far:
            return None
        return now + timedelta(seconds=self._far.choice(FAR_TIMES) * self._far.random())

    def _instant(self, now: datetime, share: float, low: float, high: float) -> datetime | None:
        drawn = now + timedelta(seconds=self._chance.uniform(low, high))
        return drawn if self._chance.random() < share else None


async def _one(app: Redrive, events: list[NewEvent]) -> Any:  # noqa: ANN401 - receipts
    publisher = await app.publisher()
    return [await publisher.publish(one) for one in events]


class Operator:
    """A person who does what people do, at any time and with anything."""

    def __init__(self, number: int, plan: Plan, history: History, loop: SimulationLoop) -> None:
        self._plan = plan
        self._history = history
        self._loop = loop
        self._name = f"operator-{number}"
        self._chance = Random(f"operator {number} of {plan.seed}")  # noqa: S311 - a simulation
        self.is_off = False

    async def live(self, app: Redrive) -> None:
        """Act until off duty."""
        acts, rests = self._acts(), self._rests()
        while not self.is_off:
            await self._loop.pause(self._rest(self._chance.random() * self._plan.duration / rests))
            act = self._chance.choice(acts)
            self._history.note(self._loop.time(), f"{self._name}: {act.__name__}")
            try:
                await act(app.operations)
            except (StoreError, UsageError, NotFoundError):
                continue

    def _rest(self, drawn: float) -> float:
        """Return how long to do nothing, by what was drawn."""
        return drawn

    def _rests(self) -> int:
        """Return how often to act, about."""
        return 15 if self._plan.is_rerouted else 5

    def _acts(self) -> Sequence[Callable[[Operations], Awaitable[None]]]:
        usual: tuple[Callable[[Operations], Awaitable[None]], ...] = (
            *(self._replay, self._replay, self._start_replay, self._turn_replay, self._edit),
            *(self._delete, self._resolve, self._cancel, self._reschedule, self._prioritise),
            *(self._pause, self._resume, self._breaker, self._tenant, self._look),
        )
        if self._plan.removes:
            usual = (*usual, *[self._drop, self._remove] * 4)
        if not self._plan.is_rerouted:
            return usual
        return (*usual, *[self._move] * 8, *[self._backfill, self._drop] * 3, self._remove)

    async def _some(self, operations: Operations, status: Status) -> list[DeliveryId]:
        page = await operations.deliveries(Query(status=status), limit=10)
        found = [one.id for one in page.deliveries]
        return [one for one in found if self._chance.random() < 0.5]

    async def _replay(self, operations: Operations) -> None:
        found = await self._some(operations, self._chance.choice([*Status, Status.FAILED]))
        generation = self._chance.choice([None, None, *self._plan.generations])
        await operations.replay(found, by=self._name, generation=generation)

    async def _start_replay(self, operations: Operations) -> None:
        chance = self._chance
        await operations.plan_replay()
        await operations.start_replay(
            by=self._name,
            rate=chance.choice([None, "2/s"]),
            canary=chance.choice([1, 2]),
            largest_wave=chance.choice([2, 1000]),
            failure_limit=chance.choice([0.0, 0.5, 1.0]),
        )

    async def _turn_replay(self, operations: Operations) -> None:
        replays = await operations.replays()
        if replays:
            number = self._chance.choice([one.id for one in replays])
            turns = (operations.pause_replay, operations.resume_replay, operations.cancel_replay)
            await self._chance.choice(turns)(number, by=self._name)

    async def _edit(self, operations: Operations) -> None:
        for one in (await self._some(operations, Status.FAILED))[:1]:
            payload = (await operations.show(one)).payload
            if isinstance(payload, dict):
                edited = {**payload, "edited": self._chance.randrange(1000) + 1}
                is_sent = self._chance.random() < 0.5
                await operations.edit(one, edited, by=self._name, why="typo", replay=is_sent)

    async def _delete(self, operations: Operations) -> None:
        found = await self._some(operations, Status.FAILED)
        await operations.delete(found[:2], by=self._name, why="no use")

    async def _resolve(self, operations: Operations) -> None:
        found = await self._some(operations, Status.FAILED)
        await operations.resolve(found[:2], by=self._name, why="by phone")

    async def _cancel(self, operations: Operations) -> None:
        found = await self._some(operations, Status.PENDING)
        await operations.cancel(found[:2], by=self._name)

    async def _reschedule(self, operations: Operations) -> None:
        found = await self._some(operations, Status.PENDING)
        now = (await operations.status()).now
        due = now + timedelta(seconds=self._chance.uniform(-5.0, 10.0))
        await operations.reschedule(found[:3], due=due, by=self._name)

    async def _prioritise(self, operations: Operations) -> None:
        found = await self._some(operations, Status.PENDING)
        await operations.prioritise(found, priority=self._chance.randint(-9, 9), by=self._name)

    async def _pause(self, operations: Operations) -> None:
        await operations.pause(self._destination(), by=self._name)

    async def _resume(self, operations: Operations) -> None:
        await operations.resume(self._destination(), by=self._name)

    async def _breaker(self, operations: Operations) -> None:
        name = self._destination()
        if self._chance.random() < 0.5:
            await operations.reset_breaker(name, by=self._name)
        else:
            until = (await operations.status()).now + timedelta(seconds=3)
            await operations.open_breaker(name, by=self._name, until=until)

    async def _tenant(self, operations: Operations) -> None:
        tenant = f"t{self._chance.randrange(4)}"
        where = self._chance.choice([None, self._destination()])
        act = self._chance.choice([operations.pause_tenant, operations.resume_tenant])
        await act(tenant, destination=where, by=self._name)

    async def _look(self, operations: Operations) -> None:
        await operations.gates()
        await operations.tenants()
        await operations.lanes()
        await operations.groups()
        for one in (await self._some(operations, Status.PENDING))[:1]:
            await operations.show(one)

    async def _move(self, operations: Operations) -> None:
        names = [one.name for one in self._plan.destinations]
        source, target = self._chance.sample([*names, *names], 2)
        await operations.move(source, target, by=self._name, why="it is gone")

    async def _backfill(self, operations: Operations) -> None:
        """Look what there is to give, think about it for a while, and give it."""
        generation = self._chance.choice([None, *self._plan.generations])
        plan = await operations.plan_backfill(self._destination())
        await self._loop.pause(self._chance.random() * self._plan.lease)
        await operations.carry_out(plan, by=self._name, generation=generation)

    async def _drop(self, operations: Operations) -> None:
        act = self._chance.choice([operations.fail_pending, operations.delete_pending])
        await act(self._destination(), by=self._name, why="nobody wants them")

    async def _remove(self, operations: Operations) -> None:
        await operations.remove_destination(self._destination(), by=self._name)

    def _destination(self) -> str:
        return self._chance.choice(self._plan.destinations).name
