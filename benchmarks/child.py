"""One measurement in a process of its own, so that no run inherits another's memory or threads.

`python -m benchmarks.child TASK` does what the JSON says; each line of the answer is JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.contender import Arena, Place, Workload, find_contender
from benchmarks.measures import Queue
from benchmarks.measures.process import work_until_told
from benchmarks.measures.workloads import fill, run_on_loop
from benchmarks.study import Scale, find_study

__all__ = ["main"]


def main(task: dict[str, Any]) -> None:
    """Describe, measure, study, work or fill, as the task says."""
    place = Place(folder=Path(task["folder"]), url=task["url"])
    module = task["module"]
    match task["do"]:
        case "describe":
            print(json.dumps(dict(find_contender(module).describe(place))))
        case "measure":
            measure = find_contender(module).workloads[Workload(task["workload"])]
            print(json.dumps(asdict(measure(task["size"], place))))
        case "study":
            run_on_loop(_study(module, Scale(**task["scale"]), Arena(task["arena"]), place))
        case "work":
            working = work_until_told(
                _queue(module, place), slot=task["slot"], expected=task["expected"]
            )
            print(json.dumps(run_on_loop(working)))
        case "fill":
            run_on_loop(_fill(_queue(module, place), task["size"]))
        case other:
            raise ValueError(f"There is no task {other!r}.")


def _queue(module: str, place: Place) -> Queue:
    queue: Queue = importlib.import_module(f"benchmarks.contenders.{module}").Queue(place)
    return queue


async def _fill(queue: Queue, size: int) -> None:
    await queue.open()
    await fill(queue, size)
    await queue.close()


async def _study(module: str, scale: Scale, arena: Arena, place: Place) -> None:
    async for run in find_study(module).measure(scale, arena, place):
        print(json.dumps(asdict(run)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
