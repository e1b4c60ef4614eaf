"""A worker in a process of its own: it says when it is ready, starts on a word, and tells."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.contender import Place
from benchmarks.measures.queue import Payload, Queue
from benchmarks.measures.tally import Tally

__all__ = ["WorkerProcess", "fill_task", "work_until_told"]

_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """A worker process of a contender; with `expected`, it ends when all together did so many."""

    def __init__(self, module: str, place: Place, *, slot: int = 0, expected: int = 0) -> None:
        task = {
            "do": "work",
            "module": module,
            "folder": str(place.folder),
            "url": place.url,
            "slot": slot,
            "expected": expected,
        }
        self._ends_by_itself = bool(expected)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", json.dumps(task)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until it has opened its queue."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", f"The worker said {line!r} instead of ready."

    def go(self) -> None:
        """Let it begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """Let it end, unless it ends by itself, and return what it counted."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if not self._ends_by_itself:
            self.process.stdin.close()
        answer = self.process.stdout.read()
        code = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        assert code == 0, f"The worker ended with {code}."
        told: dict[str, Any] = json.loads(answer)
        return told


def fill_task(module: str, place: Place, size: int) -> str:
    """Return the task of a child that publishes so many."""
    task = {"do": "fill", "module": module, "folder": str(place.folder), "url": place.url}
    return json.dumps({**task, "size": size})


async def work_until_told(queue: Queue, *, slot: int, expected: int) -> dict[str, Any]:
    """Be that worker process."""
    await queue.open()
    stop = asyncio.Event()
    tally = Tally(queue.place.folder / "tally", slot=slot, expected=expected)
    waits: list[float] = []
    last = 0.0

    def handle(payload: Payload) -> None:
        nonlocal last
        last = time.monotonic()
        if "at" in payload:
            waits.append(last - payload["at"])
        tally.add()

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    _stop_with_input(stop)
    watch = asyncio.create_task(tally.complete(stop)) if expected else None
    began = time.monotonic()
    await queue.work(handle, stop)
    ended = time.monotonic()
    if watch is not None:
        await watch
    await queue.close()
    return {"count": tally.count, "began": began, "ended": ended, "last": last, "waits": waits}


def _stop_with_input(stop: asyncio.Event) -> None:
    """Stop when told to, or when the one who started us is gone."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        sys.stdin.read()
        with suppress(RuntimeError):  # the loop is closed: all is done
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=read, daemon=True).start()
