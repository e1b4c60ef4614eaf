"""A process that takes orders until it is killed, each with its event in one transaction."""

from __future__ import annotations

import asyncio
import itertools
import os

from redrive import Redrive
from tests.joining import drivers


async def take_orders(url: str, driver: str, name: str, first: int) -> None:
    app = Redrive(url)
    shop: drivers.Shop = getattr(drivers, driver)(app, url)
    shop.name = name
    async with app:
        for number in itertools.count(first):
            async with shop.transaction() as till:
                await till.execute(shop.insert(number))
                await till.publish(
                    "order.paid",
                    {"order": number},
                    key=f"customer-{number % 7}",
                    idempotency_key=str(number),
                )


if __name__ == "__main__":
    asyncio.run(
        take_orders(
            os.environ["REDRIVE_TEST_URL"],
            os.environ["REDRIVE_TEST_DRIVER"],
            os.environ["REDRIVE_TEST_SHOP"],
            int(os.environ["REDRIVE_TEST_FIRST"]),
        )
    )
