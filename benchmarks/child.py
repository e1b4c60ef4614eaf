"""One measurement in a process of its own, so that no run inherits another's memory or threads.

`python -m benchmarks.child MODULE WORKLOAD SIZE FOLDER` measures, and without the workload and
what follows it describes; the answer is one line of JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.contender import Workload, find_contender

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Measure or describe, as the arguments say."""
    module, folder, *rest = arguments
    contender = find_contender(module)
    if not rest:
        print(json.dumps(dict(contender.describe(Path(folder)))))
        return
    workload, size = rest
    run = contender.workloads[Workload(workload)](int(size), Path(folder))
    print(json.dumps(asdict(run)))


if __name__ == "__main__":
    main(sys.argv[1:])
