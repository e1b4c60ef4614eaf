"""The story of the gateway in six acts: a file, two companies, and a rule that is corrected."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from redrive.app.redrive import Redrive
from redrive.clock import SystemClock
from redrive.demo.camera import Camera
from redrive.demo.count import Count, count_deliveries
from redrive.demo.crew import Crew
from redrive.demo.dashboard import beside, is_attended, until_enter
from redrive.demo.gateway import description
from redrive.demo.gateway.child import Confided
from redrive.demo.gateway.companies import Company, Crm, Ledger
from redrive.demo.narrator import Narrator, Playbill, Scene
from redrive.demo.outlook import PATIENCE_SECONDS, Outlook
from redrive.demo.service import Street
from redrive.demo.tempo import Tempo
from redrive.demo.venue import Venue
from redrive.model.delivery import DeliveryId, Status

__all__ = ["PLAYBILL", "tell"]

PLAYBILL = Playbill(
    title="a file, the APIs of two companies",
    acts=("a file", "orders", "an outage", "dead letters", "the rule", "the count"),
    watched="the CRM",
    publisher="the shop",
    receivers="the companies",
)
_CHILD = "redrive.demo.gateway.child"
_ORDERS_PER_SECOND = 6
_NEW = 2
_NAMES = ("Ann", "Bob", "Chloe", "Dev")


async def tell(
    narrator: Narrator, *, venue: Venue, folder: Path, speed: float, web: bool = False
) -> Count:
    """Play all acts and return the final count; with `web` the dashboard is open beside them."""
    pace = Tempo(SystemClock(), speed)
    crm, ledger = Crm(pace), Ledger(pace)
    async with venue, Street(crm, ledger) as street:
        description.write(folder, crm=crm, ledger=ledger, poll=venue.poll, pace=pace)
        surroundings = description.environment(venue.store)
        # Who publishes and operates declares nothing: an app of the store, as any command has.
        async with (
            Redrive(venue.store, payload_limit="1MiB", redact=(), history=20) as app,
            beside(app, web=web) as url,
            Crew(Confided(venue.store), folder, child=_CHILD, environment=surroundings) as crew,
        ):
            narrator.begin(venue, dashboard=url)
            story = _Story(app=app, crm=crm, street=street, crew=crew, narrator=narrator, pace=pace)
            await story.begin(folder, venue.store)
            await story.play()
            if url and is_attended():
                narrator.scene(Scene(act=6, sentence="All has arrived. Enter brings the count."))
                await until_enter()
        return await _count(venue.store, story.orders, {"crm": crm, "ledger": ledger})


async def _count(
    store: str, orders: Mapping[str, Mapping[str, Any]], companies: dict[str, Company]
) -> Count:
    """Count the deliveries, and those whose shape is not the one that was asked for."""
    wanted_by = dict.fromkeys(orders, tuple(companies))
    count = await count_deliveries(store, wanted_by, companies)
    wrong = [(event, name) for name, one in companies.items() for event in one.misshapen(orders)]
    return msgspec.structs.replace(count, misshapen=tuple(sorted(wrong)))


class _Story:
    def __init__(
        self,
        *,
        app: Redrive,
        crm: Crm,
        street: Street,
        crew: Crew,
        narrator: Narrator,
        pace: Tempo,
    ) -> None:
        self._app = app
        self._operations = app.operations
        self._crm = crm
        self._street = street
        self._crew = crew
        self._narrator = narrator
        self._pace = pace
        self._outlook = Outlook(app.operations, pace, watched="crm")
        self._camera = Camera(
            app.operations, narrator, pace, service=crm, limit=description.MOST_PER_SECOND
        )
        self._is_open = True
        self.orders: dict[str, dict[str, Any]] = {}
        """What was ordered, by the event's id."""

    async def begin(self, folder: Path, store: str) -> None:
        """Apply the file, and have a worker serve what it describes."""
        self._scene(
            1,
            "There is no Python file. redrive.toml describes two companies as services, and in two "
            "rules which events each of them gets, in which shape. Applied, it is in the store.",
            f"cd {folder}",
            "cat redrive.toml",
            "redrive apply",
            page="/services",
        )
        said = await description.apply(folder, store)
        self._scene(
            1,
            f"It says: {'; '.join(said)} A worker without an app serves what the store describes.",
            "redrive worker",
            "redrive rule list",
            page="/rules",
        )
        await self._crew.hire()
        self._pace.restart()

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            camera = group.create_task(self._camera.roll())
            customers = group.create_task(self._serve_customers())
            await self._order()
            await self._lose_the_crm()
            await self._get_it_back()
            await self._meet_another_release()
            await self._look_at_the_dead_letters()
            await self._correct_the_rule()
            await self._replay_as_it_was()
            await self._render_again()
            self._is_open = False
            await customers
            await self._close()
            camera.cancel()

    async def _serve_customers(self) -> None:
        number, due = 0, self._pace.elapsed
        while self._is_open:
            number += 1
            order = {
                "number": number,
                "customer": {"name": _NAMES[number % len(_NAMES)]},
                "total": 5 + number * 37 % 90,
            }
            receipt = await self._app.publish("order.paid", order, key=f"order-{number}")
            self.orders[receipt.event_id] = order
            due += 1 / _ORDERS_PER_SECOND
            await self._pace.sleep(max(0.0, due - self._pace.elapsed))

    async def _order(self) -> None:
        self._scene(
            2,
            "Customers order. Each order is published once and reaches both companies, each in its "
            "own shape: a contact is put at the address of its order, and an entry is in cents.",
            "redrive service list",
            page="/services/crm",
        )
        await self._pace.wait_until(self._has_arrived, patience=PATIENCE_SECONDS)
        event = next(iter(self._crm.recorded))
        one = self._crm.recorded[event]
        self._scene(
            2,
            f"The shop said {_said(self.orders[event])}; the CRM got {one.method} {one.path} "
            f"{_said(one.body)}.",
            "redrive delivery list --destination crm",
            page="/services/crm",
        )
        await self._pace.sleep(3.5)

    async def _lose_the_crm(self) -> None:
        await self._street.run(self._crm.go_down())
        self._scene(
            3,
            "The CRM is down: its port refuses every connection. What is sent there is retried, "
            "after five failures its breaker opens, and what comes now waits. The ledger goes on.",
            "redrive breaker list",
            page="/services/crm",
        )
        await self._pace.wait_until(self._outlook.is_shut, patience=PATIENCE_SECONDS)
        await self._pace.sleep(2.5)

    async def _get_it_back(self) -> None:
        await self._street.run(self._crm.come_up())
        self._scene(
            3,
            "It is back. One probe at a time finds out, three successes close the breaker, and "
            "what waited goes out, never faster than the file says.",
            "redrive top",
            page="/services/crm",
        )
        await self._pace.wait_until(self._outlook.is_closed, patience=PATIENCE_SECONDS)
        await self._pace.wait_until(self._has_caught_up, patience=PATIENCE_SECONDS)
        await self._pace.sleep(1)

    async def _meet_another_release(self) -> None:
        self._crm.release = _NEW
        self._scene(
            4,
            "The CRM has a new release, and nobody has told anybody: what was the customer is "
            "called the client now. It answers 422 to every order in the old shape.",
            "redrive dlq groups",
            page="/dead-letters",
        )
        await self._pace.sleep(1.5)

    async def _look_at_the_dead_letters(self) -> None:
        cause = await self._outlook.largest_group(letters=3)
        story = await self._operations.show(cause.example)
        fault = story.delivery.fault
        self._scene(
            4,
            f"No retry can heal that, so they are dead letters: {cause.count} of them, and one "
            f"cause. The answer was {fault.message.partition(': ')[2] if fault else ''}, to what "
            f"the rule {story.delivery.rule} had made of the order.",
            f"redrive dlq show {cause.example}",
            page=f"/deliveries/{cause.example}",
        )
        await self._pace.sleep(3)

    async def _correct_the_rule(self) -> None:
        rule = description.RULE
        await self._operations.alter_rule(
            rule, {"template": description.CORRECTED}, by="demo", why="client, not customer"
        )
        self._scene(
            5,
            "The operator corrects the rule. No worker is restarted: whatever is published from "
            "now on goes by the new version, and arrives.",
            f"redrive rule set {rule} {shlex.quote(f'template={description.CORRECTED_TOML}')} "
            "--why 'client, not customer'",
            f"redrive rule show {rule}",
            page=f"/rules/{rule}",
        )
        await self._pace.wait_until(self._has_arrived_anew, patience=PATIENCE_SECONDS)
        await self._pace.sleep(2.5)

    async def _replay_as_it_was(self) -> None:
        cause = await self._outlook.largest_group()
        before = (await self._operations.show(cause.example)).delivery
        self._scene(
            5,
            "What was published before keeps the version that gave it. Replayed as it was "
            "rendered, a letter is refused again, and is safe again.",
            f"redrive dlq replay {cause.example}",
            page=f"/deliveries/{cause.example}",
        )
        await self._operations.replay([cause.example], by="demo", why="as it was")

        async def has_failed_again() -> bool:
            now = (await self._operations.show(cause.example)).delivery
            return now.status is Status.FAILED and len(now.cycles) > len(before.cycles)

        await self._pace.wait_until(has_failed_again, patience=PATIENCE_SECONDS)
        await self._pace.sleep(1.5)

    async def _render_again(self) -> None:
        cause = await self._outlook.largest_group()
        self._scene(
            5,
            f"So the operator has all {cause.count} rendered again, by the rule as it is now: same "
            "events, same ids, the new shape.",
            f"redrive dlq replay --group {cause.id} --render-again --why 'client, not customer'",
            "redrive audit",
            page="/dead-letters",
        )

        async def are_all_gone() -> bool:
            # What was still on its way in the old shape may join them a moment later.
            letters = (await self._operations.dead_letters(limit=1_000)).deliveries
            ids = [DeliveryId(one.id) for one in letters]
            if ids:
                await self._operations.render_again(ids, by="demo", why="client, not customer")
                await self._operations.replay(ids, by="demo", why="client, not customer")
            return not ids and await self._is_all_of_the_new_version()

        await self._pace.wait_until(are_all_gone, patience=PATIENCE_SECONDS)
        await self._pace.sleep(2)

    async def _close(self) -> None:
        self._scene(
            6,
            "The shop closes. Everything is counted from three books: the shop's receipts, what "
            "the companies recorded, in which shape, and the store, opened anew.",
            "redrive status",
        )
        await self._pace.wait_until(self._outlook.is_quiet, patience=PATIENCE_SECONDS)
        await self._camera.shoot()
        await self._pace.sleep(1.5)

    async def _has_arrived(self) -> bool:
        return bool(self._crm.recorded)

    async def _has_arrived_anew(self) -> bool:
        return any(one.release == _NEW for one in list(self._crm.recorded.values()))

    async def _is_all_of_the_new_version(self) -> bool:
        """Tell whether nothing that is on its way to the CRM has the old shape."""
        return await self._outlook.has_no_dead_letter() and await self._has_caught_up()

    async def _has_caught_up(self) -> bool:
        return (await self._outlook.figures()).pending <= _ORDERS_PER_SECOND

    def _scene(self, act: int, sentence: str, *commands: str, page: str = "/") -> None:
        self._narrator.scene(Scene(act=act, sentence=sentence, commands=commands, page=page))


def _said(value: object) -> str:
    return msgspec.json.encode(value).decode()
