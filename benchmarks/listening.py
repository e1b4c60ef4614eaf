"""Many who look at a live page, as a process: `python -m benchmarks.listening URL COUNT`.

It says so when each has been sent the page once, listens until its input ends, and tells how many
pages all of them were sent.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp

__all__ = ["listen_to"]

_HEADERS = {"accept": "text/event-stream"}


async def listen_to(url: str, count: int) -> None:
    """Listen with so many connections."""
    sent, first = 0, asyncio.Semaphore(0)

    async def listen(session: aiohttp.ClientSession) -> None:
        nonlocal sent
        async with session.get(url, headers=_HEADERS) as answer:
            answer.raise_for_status()
            is_new = True
            async for part in answer.content.iter_any():
                if part.endswith(b"\n\n"):
                    sent += 1
                    if is_new:
                        first.release()
                    is_new = False

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = [asyncio.create_task(listen(session)) for _ in range(count)]
        for _ in range(count):
            await first.acquire()
        print("all listen", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(sent)


if __name__ == "__main__":
    asyncio.run(listen_to(sys.argv[1], int(sys.argv[2])))
