"""Run as a program: children whose main thread is blocked are told to end, twice each."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from time import perf_counter

from redrive.cli.ending import Ending
from tests.faults.deadlock import lock_up


async def _block(ending: Ending, number: int, ready: int) -> None:
    with ending.received_first():
        ending.expect(stop=lambda: None, end=lambda: None, grace=60)
        os.write(ready, b"!")
        if number % 2:
            lock_up(holds_python=False)
        threading.Event().wait()


def _live(number: int, ready: int) -> None:
    with Ending() as ending, asyncio.Runner() as runner:
        runner.run(_block(ending, number, ready))


def _start(number: int) -> int:
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        _live(number, theirs)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    return pid


def _tell_twice(pid: int, chance: random.Random) -> None:
    os.kill(pid, signal.SIGTERM)
    end = perf_counter() + chance.uniform(0, 0.002)
    while perf_counter() < end:
        continue
    os.kill(pid, signal.SIGINT)


def _main(count: int) -> None:
    chance = random.Random(count)  # noqa: S311 - any moments will do
    children = [_start(number) for number in range(count)]
    for pid in children:
        _tell_twice(pid, chance)
    for pid in children:
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    _main(int(sys.argv[1]))
