"""How many jobs a second, with a good sink and with one that hangs: `throughput celery 300`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.pages import ROOT
from tests.jobs.conftest import Bench
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
}


def measure(library: str, jobs: int, sink: str, broker: Valkey, number: int) -> float:
    """Return how many jobs a second one worker does; the first few are left out."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), f"redis://127.0.0.1:{broker.port}/{number}")
        bench.environment["JOBS_SINK"] = sink
        ask = _ASK[library].format(url=bench.url)
        bench.run("-c", f"{ask}for _ in range({jobs}):\n    ask('good')")
        try:
            bench.start(*(one.format(url=bench.url) for one in _WORKERS[library]))
            warm = jobs // 5
            until(lambda: len(bench.lines("done")) >= warm, what="it is warm")
            began, there = _now(), len(bench.lines("done"))
            until(lambda: len(bench.lines("done")) >= jobs, what="all are done", within=600)
            return (jobs - there) / (_now() - began)
        finally:
            bench.end()


def _now() -> float:
    import time  # noqa: PLC0415 - it is all there is to it

    return time.monotonic()


def main(library: str, jobs: int) -> None:
    """Measure by turns, and print what came of it."""
    with a_broker(Valkey) as broker:
        broker.start()
        assert isinstance(broker, Valkey)
        for number in range(3):
            for place, sink in enumerate(("good", "hung")):
                found = measure(library, jobs, sink, broker, 2 * number + place)
                sys.stdout.write(f"{library} {sink}: {found:.1f} jobs a second\n")
                sys.stdout.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1], int(sys.argv[2]))
