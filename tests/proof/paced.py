"""A process that publishes so many events a second until it is ended, and keeps book of it.

Each number is written down before it is tried, and again once it is acknowledged. What failed is
tried again under the same idempotency key, as a careful caller does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from redrive import Redrive, StoreError
from tests.faults import apps
from tests.waiting import spend

_ROUNDS = 20
"""How many batches a second has."""


class Book:
    """Lines that are whole whenever the process ends."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, word: str, number: int) -> None:
        os.write(self._file, f"{word} {number}\n".encode())


async def publish_at(rate: int, folder: Path, app: Redrive) -> None:
    """Publish batch after batch, each whole before the next one, so that keys keep their order."""
    book = Book(folder / "book")
    number = int(time.time() * 1000) * 1000
    size = max(1, rate // _ROUNDS)
    begun, batches = apps.clock.monotonic(), 0
    while True:
        numbers = range(number, number + size)
        number += size
        await asyncio.gather(*(_publish(app, one, book) for one in numbers))
        batches += 1
        ahead = begun + batches * size / rate - apps.clock.monotonic()
        await spend(max(0.0, ahead))


async def _publish(app: Redrive, number: int, book: Book) -> None:
    book.write("tried", number)
    while True:
        try:
            await app.publish(
                "thing.made",
                {"number": number},
                key=f"key-{number % 50}",
                idempotency_key=str(number),
            )
        except StoreError as error:
            sys.stderr.write(f"{error}\n")
            await spend(0.1)
        else:
            book.write("acknowledged", number)
            return


async def _main() -> None:
    folder = Path(os.environ["REDRIVE_TEST_FOLDER"])
    async with apps.soaked(folder) as app:
        await publish_at(int(sys.argv[1]), folder, app)


if __name__ == "__main__":
    asyncio.run(_main())
