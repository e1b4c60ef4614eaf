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

from benchmarks.contender import Place, Workload, find_contender
from benchmarks.measures.process import work_until_told
from benchmarks.measures.workloads import run_on_loop

__all__ = ["main"]


def main(task: dict[str, Any]) -> None:
    """Describe, measure or work, as the task says."""
    place = Place(folder=Path(task["folder"]), url=task["url"])
    module = task["module"]
    match task["do"]:
        case "describe":
            print(json.dumps(dict(find_contender(module).describe(place))))
        case "measure":
            measure = find_contender(module).workloads[Workload(task["workload"])]
            print(json.dumps(asdict(measure(task["size"], place))))
        case "work":
            queue = importlib.import_module(f"benchmarks.contenders.{module}").Queue(place)
            told = run_on_loop(work_until_told(queue, slot=task["slot"], expected=task["expected"]))
            print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
