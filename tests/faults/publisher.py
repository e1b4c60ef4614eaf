"""A process that publishes until it is killed, and writes down each id once it is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from redrive import StoreError
from tests.faults import apps
from tests.waiting import spend


async def publish_for_ever(folder: Path) -> None:
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    numbers = itertools.count(os.getpid() * 1_000_000)
    async with apps.steady(folder) as app:

        async def publish() -> None:
            while True:
                try:
                    receipt = await app.publish("thing.made", {"number": next(numbers)})
                except StoreError as error:
                    sys.stderr.write(f"{error}\n")
                    await spend(0.05)
                else:
                    os.write(acknowledged, f"{receipt.event_id}\n".encode())

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(publish())


if __name__ == "__main__":
    asyncio.run(publish_for_ever(Path(os.environ["REDRIVE_TEST_FOLDER"])))
