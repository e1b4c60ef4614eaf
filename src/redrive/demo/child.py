"""A worker of the demo, in a process of its own: it ends when its standard input does.

The first line of that is the plan.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from redrive.demo.shop import Plan, make_app

__all__ = ["work"]


async def work(plan: Plan) -> None:
    """Say the worker's id, then deliver until nobody holds the other end of standard input."""
    app = make_app(plan)
    async with app:
        worker = await app.make_worker()
        sys.stdout.write(f"{worker.id}\n")
        sys.stdout.flush()
        lifeline = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lifeline), sys.stdin
        )
        running = asyncio.create_task(worker.run())
        await asyncio.wait(
            {running, asyncio.ensure_future(lifeline.read())},
            return_when=asyncio.FIRST_COMPLETED,
        )
        worker.stop()
        await running
        transport.close()


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)))
