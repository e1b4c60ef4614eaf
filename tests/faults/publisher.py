"""A process that publishes until it is killed, and writes down each id once it is acknowledged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.faults import apps


async def publish_for_ever(folder: Path) -> None:
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with apps.steady(folder) as app:

        async def publish() -> None:
            while True:
                receipt = await app.publish("thing.made", {"number": 0})
                os.write(acknowledged, f"{receipt.event_id}\n".encode())

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(publish())


if __name__ == "__main__":
    asyncio.run(publish_for_ever(Path(os.environ["REDRIVE_TEST_FOLDER"])))
