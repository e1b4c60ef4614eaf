"""The story in five acts, played on the real engine."""

from __future__ import annotations

import asyncio

from redrive.clock import SystemClock
from redrive.demo.camera import Camera
from redrive.demo.count import Count, count_up
from redrive.demo.narrator import Narrator, Scene
from redrive.demo.pace import Pace
from redrive.demo.shop import Shop
from redrive.store import DestinationFigures, Query

__all__ = ["tell"]

_PRODUCTS = 80
_SECONDS_BETWEEN_ORDERS = 0.11
_ORDERS_PER_PRODUCT_CHANGE = 4
_PATIENCE_SECONDS = 20.0


async def tell(narrator: Narrator, *, store: str, speed: float) -> Count:
    """Play all acts and return the final count."""
    pace = Pace(SystemClock(), speed)
    shop = Shop(store, pace)
    narrator.begin(store=store)
    async with shop.app:
        await shop.furnish()
        async with shop.app.worker():
            await _Story(shop, narrator, pace).play()
    return await count_up(shop)


class _Story:
    def __init__(self, shop: Shop, narrator: Narrator, pace: Pace) -> None:
        self._shop = shop
        self._narrator = narrator
        self._pace = pace
        self._operations = shop.app.operations
        self._camera = Camera(self._operations, narrator, pace)
        self._is_open = True

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            camera = group.create_task(self._camera.roll())
            customers = group.create_task(self._serve_customers())
            await self._sell()
            await self._lose_the_mail_server()
            await self._import_a_price_list()
            await self._replay()
            self._is_open = False
            await customers
            await self._close()
            camera.cancel()

    async def _serve_customers(self) -> None:
        number, due = 0, self._pace.elapsed
        # The doors are closed between two orders: each publish gets its receipt.
        while self._is_open:
            number += 1
            await self._shop.sell(number)
            if number % _ORDERS_PER_PRODUCT_CHANGE == 0:
                await self._shop.change_product(number)
            due += _SECONDS_BETWEEN_ORDERS
            await self._pace.sleep(max(0.0, due - self._pace.elapsed))

    async def _sell(self) -> None:
        self._scene(
            1,
            "Customers order. Each order is written to the shop's own table and published in "
            "one transaction: both are kept, or neither. The mail server turns three mails in ten "
            "down at first; they are tried again.",
            "redrive status",
        )
        await self._pace.sleep(6)

    async def _lose_the_mail_server(self) -> None:
        self._shop.mail.is_down = True
        self._scene(
            2,
            "Now the mail server is down. Its deliveries wait and are tried again, each time a "
            "little later. Billing and search go on as if nothing had happened.",
            "redrive status",
        )
        await self._pace.sleep(4)
        self._shop.mail.is_down = False
        self._scene(
            2,
            "The mail server is back. What waited is delivered by itself; nobody had to do "
            "anything.",
            "redrive status",
        )
        await self._pace.sleep(3.5)

    async def _import_a_price_list(self) -> None:
        await self._shop.import_price_list(_PRODUCTS)
        self._scene(
            3,
            f"A supplier's price list of {_PRODUCTS} products arrives, and the search service has "
            "two bugs. What no retry can heal is set aside as a dead letter, with its cause.",
            "redrive dlq list",
        )
        await self._pace.wait_until(self._is_imported, patience=_PATIENCE_SECONDS)
        causes = await self._operations.groups()
        letters = sum(cause.count for cause in causes)
        self._scene(
            3,
            f"{letters} dead letters, {len(causes)} causes. Nothing else was held up: orders "
            "are billed and confirmed as before, and the other products are found.",
            "redrive dlq groups",
            *(f"redrive dlq show {cause.example}" for cause in causes[:1]),
        )
        await self._pace.sleep(4)

    async def _replay(self) -> None:
        self._shop.search.is_fixed = True
        self._scene(
            4,
            "The fix is deployed. The dead letters are still there, each with its event and its "
            "history, and can be sent again.",
            "redrive dlq replay --all-matching --why fixed",
        )
        await self._pace.sleep(3)
        for cause in await self._operations.groups():
            self._scene(
                4,
                f"Replay of {cause.count} dead letters, {cause.title}. Same events, same "
                "ids; the audit log says who did it and why.",
                f"redrive dlq replay --group {cause.id} --why fixed",
                "redrive audit",
            )
            letters = await self._operations.select(Query(group=cause.id))
            await self._operations.replay(letters, by="demo", why="fixed")
            await self._pace.sleep(3)

    async def _close(self) -> None:
        self._scene(
            5,
            "The shop closes. What is still on its way arrives; then everything is counted from "
            "three books: the shop's, its services' and the store's.",
            "redrive status",
        )
        await self._pace.wait_until(self._is_quiet, patience=_PATIENCE_SECONDS)
        await self._camera.shoot()
        await self._pace.sleep(2)

    async def _is_imported(self) -> bool:
        one = next(each for each in await self._destinations() if each.name == "search")
        return one.pending + one.in_flight <= _SECONDS_BETWEEN_ORDERS * 10

    async def _is_quiet(self) -> bool:
        return all(one.pending + one.in_flight == 0 for one in await self._destinations())

    async def _destinations(self) -> tuple[DestinationFigures, ...]:
        return (await self._operations.status()).destinations

    def _scene(self, act: int, sentence: str, *commands: str) -> None:
        self._narrator.scene(Scene(act=act, sentence=sentence, commands=commands))
