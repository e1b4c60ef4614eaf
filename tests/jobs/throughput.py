"""How many jobs a second: those that do not track, with a good sink, and with one that hangs.

`python -m tests.jobs.throughput celery 300`
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from redrive import Redrive
from tests.docs.pages import ROOT
from tests.jobs.conftest import Bench, install_arq
from tests.servers.brokers import Valkey, a_broker
from tests.waiting import until

_WORKERS = {
    "celery": ("celery", "-A", "tests.jobs.celery_jobs", "worker", "-c", "1", "-P", "prefork"),
    "dramatiq": ("dramatiq", "tests.jobs.dramatiq_jobs", "--processes", "1", "--threads", "1"),
    "rq": (
        *("rq.cli", "worker", "--url", "{url}"),
        *("--worker-class", "redrive.integrations.rq.QuietWorker"),
    ),
    "arq": ("arq", "tests.jobs.arq_jobs.WorkerSettings"),
}
_ASK = {
    "celery": "from tests.jobs.celery_jobs import work_task\nask = work_task.delay\n",
    "dramatiq": "from tests.jobs.dramatiq_jobs import work_actor\nask = work_actor.send\n",
    "rq": "import redis, rq\nqueue = rq.Queue(connection=redis.Redis.from_url('{url}'))\n"
    "ask = lambda kind: queue.enqueue('tests.jobs.shop.work', kind)\n",
    "arq": "import asyncio\nfrom tests.jobs.arq_jobs import put\n"
    "ask = lambda kind: asyncio.run(put(kind))\n",
}


def measure(library: str, jobs: int, sink: str, broker: Valkey, number: int) -> float:
    """Return how many jobs a second one worker does; the first few are left out."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), f"redis://127.0.0.1:{broker.port}/{number}")
        bench.environment["JOBS_SINK"] = sink
        if library == "arq":
            bench.environment["PYTHONPATH"] = f"{install_arq()}:{ROOT}"
        ask = _ASK[library].format(url=bench.url)
        kind = "off" if sink == "off" else "good"
        bench.run("-c", f"{ask}for _ in range({jobs}):\n    ask('{kind}')")

        def work() -> float:
            try:
                bench.start(*(one.format(url=bench.url) for one in _WORKERS[library]))
                warm = jobs // 5
                until(lambda: len(bench.lines("done")) >= warm, what="it is warm")
                began, there = time.monotonic(), len(bench.lines("done"))
                until(lambda: len(bench.lines("done")) >= jobs, what="all are done", within=600)
                return (jobs - there) / (time.monotonic() - began)
            finally:
                bench.end()

        async def beside() -> float:
            # A worker of Redrive would have the file open, so that no job is the last to close it.
            async with Redrive(f"sqlite:///{folder}/shop.db") as app:
                await app.operations.status()
                return await asyncio.to_thread(work)

        return asyncio.run(beside())


def main(library: str, jobs: int) -> None:
    """Measure by turns, and print what came of it."""
    with a_broker(Valkey) as broker:
        broker.start()
        assert isinstance(broker, Valkey)
        for number in range(3):
            for place, sink in enumerate(("off", "good", "hung")):
                found = measure(library, jobs, sink, broker, 3 * number + place)
                sys.stdout.write(f"{library} {sink}: {found:.1f} jobs a second\n")
                sys.stdout.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1], int(sys.argv[2]))
