"""The workloads of a queue: publish in three ways, drain, and the time from publish to handler."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from benchmarks.contender import Measure, Place, Run, Workload, rate
from benchmarks.figures import percentile
from benchmarks.measures.process import WorkerProcess
from benchmarks.measures.queue import PAYLOAD, Queue

__all__ = ["drain_by", "fill", "queue_workloads", "run_on_loop"]

_TASKS = 100
_PER_CALL = 1_000
_PER_SECOND = 200

T = TypeVar("T")
QueueType = Callable[[Place], Queue]


def queue_workloads(module: str, make: QueueType) -> Mapping[Workload, Measure]:
    """Return the workloads of a queue; `module` is that of its contender, for worker processes."""

    def on_loop(
        measure: Callable[[int, Queue, str], Coroutine[Any, Any, Run]],
    ) -> Measure:
        def run(size: int, place: Place) -> Run:
            return run_on_loop(measure(size, make(place), module.rpartition(".")[2]))

        return run

    workloads = {
        Workload.SINGLE: on_loop(_single),
        Workload.CONCURRENT: on_loop(_concurrent),
        Workload.DRAIN: on_loop(_drain),
        Workload.DRAIN_BY_TWO: on_loop(_drain_by_two),
        Workload.LATENCY: on_loop(_latency),
        Workload.LATENCY_AT_HALF: on_loop(_latency_at_half),
    }
    if getattr(make, "has_bulk", True):
        workloads[Workload.BULK] = on_loop(_bulk)
    return workloads


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop where there is one, as everybody who cares does."""
    try:
        import uvloop  # noqa: PLC0415 - not everywhere
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _single(size: int, queue: Queue, _module: str) -> Run:
    await queue.open()
    began = time.perf_counter()
    for _ in range(size):
        await queue.publish(PAYLOAD)
    seconds = time.perf_counter() - began
    await _check_waiting(queue, size)
    return rate(size, seconds)


async def _concurrent(size: int, queue: Queue, _module: str) -> Run:
    await queue.open()

    async def publish_share() -> None:
        for _ in range(size // _TASKS):
            await queue.publish(PAYLOAD)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_TASKS):
            group.create_task(publish_share())
    seconds = time.perf_counter() - began
    count = size // _TASKS * _TASKS
    await _check_waiting(queue, count)
    return rate(count, seconds)


async def _bulk(size: int, queue: Queue, _module: str) -> Run:
    await queue.open()
    began = time.perf_counter()
    await fill(queue, size)
    seconds = time.perf_counter() - began
    await _check_waiting(queue, size)
    return rate(size, seconds)


async def fill(queue: Queue, size: int) -> None:
    """Publish so many in large calls."""
    for begin in range(0, size, _PER_CALL):
        await queue.publish_many([PAYLOAD] * min(_PER_CALL, size - begin))


async def _drain(size: int, queue: Queue, _module: str) -> Run:
    await queue.open()
    await fill(queue, size)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = itertools.count(1)  # some have threads for their handlers

    def handle(_payload: object) -> None:
        if next(numbers) == size:
            loop.call_soon_threadsafe(stop.set)

    began = time.perf_counter()
    await queue.work(handle, stop)
    seconds = time.perf_counter() - began
    assert next(numbers) == size + 1
    await _check_waiting(queue, 0)
    return rate(size, seconds, queue.way)


async def _drain_by_two(size: int, queue: Queue, module: str) -> Run:
    return await drain_by(2, size, queue, module)


async def drain_by(workers: int, size: int, queue: Queue, module: str) -> Run:
    """Drain with so many worker processes, which start together."""
    await queue.open()
    await fill(queue, size)
    processes = [
        WorkerProcess(module, queue.place, slot=slot, expected=size) for slot in range(workers)
    ]
    for one in processes:
        one.wait_until_ready()
    for one in processes:
        one.go()
    answers = [await asyncio.to_thread(one.finish) for one in processes]
    assert sum(one["count"] for one in answers) == size, answers
    seconds = max(one["ended"] for one in answers) - min(one["began"] for one in answers)
    await _check_waiting(queue, 0)
    return rate(size, seconds, queue.way)


async def _latency(size: int, queue: Queue, module: str) -> Run:
    await queue.open()
    return await _latency_at(_PER_SECOND, size / _PER_SECOND, queue, module)


async def _latency_at_half(size: int, queue: Queue, module: str) -> Run:
    """The maximum is what it carries from end to end while 100 tasks publish, here and now."""
    await queue.open()
    seconds = size / _PER_SECOND
    half = await _most_per_second(min(seconds, 2.0), queue, module) / 2
    return await _latency_at(half, seconds, queue, module)


async def _most_per_second(seconds: float, queue: Queue, module: str) -> float:
    worker = await _worker_beside(queue, module)
    began = time.monotonic()
    count = 0

    async def publish_for_a_while() -> None:
        nonlocal count
        while time.monotonic() < began + seconds:
            await queue.publish(PAYLOAD)
            count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(_TASKS):
            group.create_task(publish_for_a_while())
    answer = await _finish_when_empty(worker, queue)
    assert answer["count"] == count, (answer["count"], count)
    return count / (float(answer["last"]) - began)


async def _latency_at(per_second: float, seconds: float, queue: Queue, module: str) -> Run:
    """Publish at a steady pace, whether or not earlier calls have returned."""
    worker = await _worker_beside(queue, module)
    count = 0
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(int(passed * per_second) - count):
                group.create_task(_publish_stamped(queue))
                count += 1
            await asyncio.sleep(0.001)
    took = time.monotonic() - began
    answer = await _finish_when_empty(worker, queue)
    waits = answer["waits"]
    assert len(waits) == count, (len(waits), count)
    settled = waits[len(waits) // 10 :]  # without what warms up
    await queue.close()
    return Run(
        figures={
            "p50_ms": percentile(settled, 0.5) * 1e3,
            "p99_ms": percentile(settled, 0.99) * 1e3,
            "offered": count / took,
        },
        way="publisher and worker in two processes",
    )


async def _publish_stamped(queue: Queue) -> None:
    await queue.publish({**PAYLOAD, "at": time.monotonic()})


async def _worker_beside(queue: Queue, module: str) -> WorkerProcess:
    worker = WorkerProcess(module, queue.place)
    worker.wait_until_ready()
    worker.go()
    # One through the whole way, so that the worker surely waits for the next.
    await queue.publish(PAYLOAD)
    while await queue.waiting():
        await asyncio.sleep(0.01)
    return worker


async def _finish_when_empty(worker: WorkerProcess, queue: Queue) -> Mapping[str, Any]:
    while await queue.waiting():
        await asyncio.sleep(0.01)
    answer = await asyncio.to_thread(worker.finish)
    return {**answer, "count": answer["count"] - 1}  # without the first one


async def _check_waiting(queue: Queue, expected: int) -> None:
    waiting = await queue.waiting()
    assert waiting == expected, (waiting, expected)
    await queue.close()
