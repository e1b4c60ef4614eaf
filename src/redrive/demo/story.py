"""The story in six acts, played on the real engine against real HTTP services."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from redrive.clock import SystemClock
from redrive.demo.camera import Camera
from redrive.demo.count import Count, count_up
from redrive.demo.crew import Crew
from redrive.demo.dashboard import beside, is_attended, until_enter
from redrive.demo.narrator import Narrator, Scene
from redrive.demo.outlook import PATIENCE_SECONDS, Outlook
from redrive.demo.replaying import replay_the_group
from redrive.demo.service import Billing, Service, Street, Warehouse
from redrive.demo.shop import (
    MOST_PER_SECOND,
    REPLAYS_PER_SECOND,
    RETRIES_PER_SECOND,
    Plan,
    Shop,
)
from redrive.demo.takings import PROJECTION
from redrive.demo.tempo import Tempo
from redrive.demo.venue import Venue
from redrive.model.delivery import Delivery, Status
from redrive.store import Query

__all__ = ["tell"]

_WORKERS = 2
_ORDERS_PER_SECOND = 10
_MOST_REPLAYS = 5
_LOOK_AROUND = (
    "All has arrived. Look around in the dashboard for as long as you like; Enter brings the "
    "final count."
)


async def tell(
    narrator: Narrator, *, venue: Venue, folder: Path, speed: float, web: bool = False
) -> Count:
    """Play all acts and return the final count; with `web` the dashboard is open beside them."""
    pace = Tempo(SystemClock(), speed)
    billing, warehouse = Billing(pace), Warehouse(pace)
    services: dict[str, Service] = {"billing": billing, "warehouse": warehouse}
    async with venue, Street(billing, warehouse) as street:
        plan = Plan(
            store=venue.store,
            poll=venue.poll,
            billing=billing.url,
            warehouse=warehouse.url,
            speed=speed,
        )
        shop = Shop(plan, venue)
        async with shop.app:
            await shop.furnish()
            async with beside(shop.app, web=web) as url, Crew(plan, folder) as crew:
                narrator.begin(venue, dashboard=url)
                narrator.scene(Scene(act=1, sentence="Two worker processes are starting."))
                await asyncio.gather(*(crew.hire() for _ in range(_WORKERS)))
                pace.restart()
                story = _Story(
                    shop=shop,
                    plan=plan,
                    warehouse=warehouse,
                    street=street,
                    crew=crew,
                    narrator=narrator,
                    pace=pace,
                )
                await story.play()
                if url and is_attended():
                    narrator.scene(Scene(act=6, sentence=_LOOK_AROUND))
                    await until_enter()
        return await count_up(shop, services)


class _Story:
    def __init__(
        self,
        *,
        shop: Shop,
        plan: Plan,
        warehouse: Warehouse,
        street: Street,
        crew: Crew,
        narrator: Narrator,
        pace: Tempo,
    ) -> None:
        self._shop = shop
        self._plan = plan
        self._warehouse = warehouse
        self._street = street
        self._crew = crew
        self._narrator = narrator
        self._pace = pace
        self._operations = shop.app.operations
        self._outlook = Outlook(self._operations, pace, watched="warehouse")
        self._camera = Camera(
            self._operations, narrator, pace, service=warehouse, limit=MOST_PER_SECOND
        )
        self._is_open = True
        self._details: dict[str, object] = {}
        """What the next customer writes on the order beside the rest."""

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            camera = group.create_task(self._camera.roll())
            customers = group.create_task(self._serve_customers())
            await self._sell()
            await self._kill_a_worker()
            await self._lose_the_warehouse()
            await self._get_it_back()
            await self._look_at_the_dead_letters()
            await self._replay_with_the_wrong_fix()
            await self._replay_with_the_right_fix()
            await self._correct_one_order()
            self._is_open = False
            await customers
            await self._close()
            await self._sum_up()
            camera.cancel()

    async def _serve_customers(self) -> None:
        number, due = 0, self._pace.elapsed
        # The doors are closed between two orders: each publish gets its receipt.
        while self._is_open:
            number += 1
            details = self._details
            if await self._shop.sell(number, **details) and details:
                self._details = {}
            due += 1 / _ORDERS_PER_SECOND
            await self._pace.sleep(max(0.0, due - self._pace.elapsed))

    async def _sell(self) -> None:
        self._scene(
            1,
            "Customers order. Each order is written to the shop's own table and published in one "
            "transaction. Two worker processes bring it to two HTTP services, billing and the "
            "warehouse.",
            "redrive top",
        )
        await self._pace.sleep(3.5)

    async def _kill_a_worker(self) -> None:
        victim = await self._find_a_busy_worker()
        await self._crew.kill(victim)
        orphans = await self._in_flight_of(victim)
        self._shop.at_risk += [(one.event_id, one.destination) for one in orphans]
        self._scene(
            2,
            f"kill -9 for worker {victim}, in the middle of {len(orphans)} deliveries. Nobody has "
            "told anybody: its leases run out, and then another worker takes them over.",
            "redrive status",
            page="/workers",
        )
        began = self._pace.elapsed
        await self._crew.hire()

        async def is_rescued() -> bool:
            return not await self._in_flight_of(victim)

        await self._pace.wait_until(is_rescued, patience=PATIENCE_SECONDS)
        self._scene(
            2,
            f"Taken over after {self._pace.elapsed - began:.1f} s. What the dead worker had sent "
            "but not noted down is sent again under the same id: at least once, and the receiver "
            "can tell.",
            "redrive status",
        )
        await self._pace.sleep(2)

        async def have_arrived() -> bool:
            stories = [await self._operations.show(one.id) for one in orphans]
            return all(one.delivery.status is Status.DELIVERED for one in stories)

        # However fast the story is told, the next fault finds them safe.
        await self._pace.wait_until(have_arrived, patience=PATIENCE_SECONDS)

    async def _lose_the_warehouse(self) -> None:
        await self._street.run(self._warehouse.go_down())
        self._scene(
            3,
            "The warehouse is down: its port refuses every connection. After five failures in a "
            "row its breaker opens, for all workers at once. Billing goes on as if nothing had "
            "happened.",
            "redrive breaker list",
            page="/destinations/warehouse",
        )
        await self._pace.wait_until(self._outlook.is_shut, patience=PATIENCE_SECONDS)
        await self._pace.sleep(3)
        waiting = await self._waiting_for_the_warehouse()
        untried = sum(not one.attempts for one in waiting)
        spent = sum(one.attempts for one in waiting)
        self._scene(
            3,
            f"{len(waiting)} orders wait for the warehouse. {untried} of them have not spent a "
            f"single try, and all together only {spent}: what is held costs nothing.",
            "redrive delivery list --destination warehouse",
            page="/search?destination=warehouse&status=pending",
        )
        await self._pace.sleep(2.5)

    async def _get_it_back(self) -> None:
        self._warehouse.knows_vouchers = False
        await self._street.run(self._warehouse.come_up())
        self._scene(
            3,
            "The warehouse is back, with a new release. One probe at a time finds out; three "
            f"successes close its breaker. What waited goes out at {RETRIES_PER_SECOND}/s beside "
            f"the fresh orders, never more than {MOST_PER_SECOND}/s.",
            "redrive top",
        )
        await self._pace.wait_until(self._outlook.is_closed, patience=PATIENCE_SECONDS)
        await self._pace.wait_until(self._has_caught_up, patience=PATIENCE_SECONDS)
        await self._pace.sleep(1)

    async def _look_at_the_dead_letters(self) -> None:
        cause = await self._outlook.largest_group(letters=2)  # one alone would show no group
        self._scene(
            4,
            f"The new release has a bug: it answers 422 to some orders. No retry can heal that, "
            f"so they became dead letters: {cause.count} of them, and one cause.",
            "redrive dlq groups",
            page="/dead-letters",
        )
        await self._pace.sleep(2.5)
        story = await self._operations.show(cause.example)
        fault = story.delivery.fault
        said = fault.message.partition(": ")[2] if fault is not None else ""
        self._scene(
            4,
            f"The operator looks at one of them. It was tried {story.delivery.attempts} time; the "
            f"answer was {said}",
            f"redrive dlq show {cause.example}",
            page=f"/deliveries/{cause.example}",
        )
        await self._pace.sleep(3.5)

    async def _replay_with_the_wrong_fix(self) -> None:
        cause = await self._outlook.largest_group()
        self._scene(
            5,
            "A fix is deployed, and it does not work. The replay of the group is kept in the store "
            "and driven by the workers. It begins with one letter, the canary.",
            f"redrive replay start --group {cause.id} --why 'release 2'",
            page=f"/dead-letters/groups/{cause.id}",
        )
        replay = await replay_the_group(self._operations, cause, self._pace, why="release 2")
        cause = await self._outlook.largest_group()
        self._scene(
            5,
            f"The canary failed again, and the replay has stopped itself: {replay.sent} letter "
            f"sent, {cause.count} still safe in their group.",
            f"redrive replay show {replay.id}",
            page=f"/replays/{replay.id}",
        )
        await self._pace.sleep(3.5)

    async def _replay_with_the_right_fix(self) -> None:
        self._warehouse.knows_vouchers = True
        cause = await self._outlook.largest_group()
        self._scene(
            5,
            "The right fix. The canary arrives, and each wave that arrives is followed by one "
            f"twice as large, at most {REPLAYS_PER_SECOND} a second: same events, same ids, and "
            "the audit log says who did it and why.",
            f"redrive replay start --group {cause.id} --why 'release 3'",
            "redrive audit",
            page="/replays",
        )
        for _ in range(_MOST_REPLAYS):
            await replay_the_group(self._operations, cause, self._pace, why="release 3")
            # What was refused just before the fix may have joined just after the replay began.
            if await self._outlook.has_no_dead_letter():
                break
            cause = await self._outlook.largest_group()
        await self._pace.sleep(2.5)

    async def _correct_one_order(self) -> None:
        self._details = {"parcels": "two"}
        cause = await self._outlook.largest_group()
        story = await self._operations.show(cause.example)
        self._scene(
            5,
            "A customer wrote 'two' where a number belongs, and no release can read that. The "
            "operator corrects this one payload and sends it again. The event stays as it was, "
            "and the letter keeps what was changed, by whom and why.",
            f"redrive dlq edit {cause.example} --why 'two is 2'",
            page=f"/deliveries/{cause.example}",
        )
        await self._pace.sleep(2.5)
        order = msgspec.json.decode(story.event.payload, type=dict[str, object])
        await self._operations.edit(
            cause.example, {**order, "parcels": 2}, by="demo", why="two is 2"
        )

        async def has_arrived() -> bool:
            story = await self._operations.show(cause.example)
            return story.delivery.status is Status.DELIVERED

        await self._pace.wait_until(has_arrived, patience=PATIENCE_SECONDS)
        story = await self._operations.show(cause.example)
        self._scene(
            5,
            f"It is {story.delivery.status}, with {len(story.delivery.edits)} edit on record: "
            f"{_spell_edit(story.delivery)}.",
            f"redrive delivery show {cause.example}",
            page=f"/deliveries/{cause.example}",
        )
        await self._pace.sleep(2)

    async def _close(self) -> None:
        self._scene(
            6,
            "The shop closes. What is still on its way arrives; then everything is counted from "
            "three books: the shop's receipts, its services' ledgers, and the store, opened anew.",
            "redrive status",
        )
        await self._pace.wait_until(self._outlook.is_quiet, patience=PATIENCE_SECONDS)
        await self._camera.shoot()
        await self._pace.sleep(1)

    async def _sum_up(self) -> None:
        self._scene(
            6,
            "What was taken today? Nobody has summed it up. A worker of the next release starts, "
            "with a projection: it makes a read model from the log, from the first order on.",
            "redrive projection list",
            page="/projections",
        )
        await self._crew.hire(msgspec.structs.replace(self._plan, takings=self._shop.venue.takings))

        async def has_caught_up() -> bool:
            known = await self._operations.projections()
            return any(one.is_caught_up and one.checkpoint.count for one in known)

        await self._pace.wait_until(has_caught_up, patience=PATIENCE_SECONDS)
        await self._camera.shoot()
        [takings] = await self._operations.projections()
        self._scene(
            6,
            f"It has read {takings.checkpoint.count} events, each one once, and is caught up. What "
            "it says is compared with the till below.",
            f"redrive projection show {PROJECTION}",
            page="/projections",
        )
        await self._pace.sleep(2)

    async def _find_a_busy_worker(self) -> str:
        """Wait for a worker with several deliveries in flight, and return its id."""
        found: list[tuple[int, str]] = []

        async def is_busy() -> bool:
            workers = (await self._operations.status()).workers
            found[:] = sorted((one.in_flight, one.id) for one in workers)
            return bool(found) and found[-1][0] > 1

        await self._pace.wait_until(is_busy, patience=PATIENCE_SECONDS)
        return found[-1][1]

    async def _in_flight_of(self, worker: str) -> list[Delivery]:
        page = await self._operations.deliveries(Query(status=Status.IN_FLIGHT), limit=1_000)
        return [one for one in page.deliveries if one.worker == worker]

    async def _waiting_for_the_warehouse(self) -> tuple[Delivery, ...]:
        query = Query(status=Status.PENDING, destination="warehouse")
        return (await self._operations.deliveries(query, limit=1_000)).deliveries

    async def _has_caught_up(self) -> bool:
        one = await self._outlook.figures()
        return one.pending <= _ORDERS_PER_SECOND

    def _scene(self, act: int, sentence: str, *commands: str, page: str = "/") -> None:
        self._narrator.scene(Scene(act=act, sentence=sentence, commands=commands, page=page))


def _spell_edit(delivery: Delivery) -> str:
    return ", ".join(
        f"{change.path} {change.before} -> {change.after}"
        for edit in delivery.edits
        for change in edit.changes
    )
