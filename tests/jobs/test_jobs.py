"""Jobs of real libraries in real worker processes: what goes wrong with tracking fails none."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import Redrive
from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from redrive.store import Query
from tests.docs.pages import ROOT
from tests.jobs.conftest import Bench, install_arq

KINDS = ("good", "broken", "strict")


async def check(bench: Bench) -> None:
    """After the worker has ended: the good one arrived, and of the broken one a person hears."""
    assert bench.lines("arrived") == ['"good"']
    app = Redrive(f"sqlite:///{bench.folder}/shop.db")
    async with app:
        letters = (await app.operations.deliveries(Query(status=Status.FAILED))).deliveries
    assert [(one.reason, one.event_type) for one in letters] == [
        (FailureReason.TRACKING_FAILED, "mail.sent")
    ]


@pytest.mark.parametrize("bench", ["celery"], indirect=True)
async def test_celery(bench: Bench) -> None:
    bench.start("celery", "-A", "tests.jobs.celery_jobs", "worker", "-c", "1", "-P", "prefork")

    said = bench.run(
        "-c",
        "from tests.jobs.celery_jobs import work_task\n"
        f"asked = [work_task.delay(kind) for kind in {KINDS}]\n"
        "for one in asked:\n"
        "    one.get(timeout=60, propagate=False)\n"
        "print(*(one.state for one in asked))",
    )

    assert said.split() == ["SUCCESS", "SUCCESS", "FAILURE"]
    bench.end()
    await check(bench)


@pytest.mark.parametrize("bench", ["dramatiq"], indirect=True)
async def test_dramatiq(bench: Bench) -> None:
    bench.start("dramatiq", "tests.jobs.dramatiq_jobs", "--processes", "1", "--threads", "2")

    bench.run(
        "-c",
        "from tests.jobs.dramatiq_jobs import work_actor\n"
        f"for kind in {KINDS}:\n"
        "    work_actor.send(kind)",
    )

    bench.until("begun", *KINDS)
    bench.until("done", "good", "broken")
    bench.end()
    await check(bench)


@pytest.mark.parametrize("bench", ["rq"], indirect=True)
async def test_rq(bench: Bench) -> None:
    enqueue = (
        "import redis, rq, sys, time\n"
        f"queue = rq.Queue(connection=redis.Redis.from_url({bench.url!r}))\n"
        f"asked = [queue.enqueue('tests.jobs.shop.work', kind) for kind in {KINDS}]\n"
        "while not all(one.get_status() in ('finished', 'failed') for one in asked):\n"
        "    time.sleep(0.05)\n"
        "print(*(one.get_status().value for one in asked))"
    )
    bench.start(
        *("rq.cli", "worker", "--url", bench.url),
        *("--worker-class", "redrive.integrations.rq.QuietWorker"),
    )

    said = bench.run("-c", enqueue)

    assert said.split() == ["finished", "finished", "failed"]
    bench.end()
    await check(bench)


@pytest.mark.parametrize("bench", ["rq"], indirect=True)
async def test_jobs_of_rq_wait_for_a_destination_that_hangs_only_once(bench: Bench) -> None:
    bench.environment["JOBS_SINK"] = "hung"
    bench.run(
        "-c",
        "import redis, rq\n"
        f"queue = rq.Queue(connection=redis.Redis.from_url({bench.url!r}))\n"
        "for _ in range(4):\n"
        "    queue.enqueue('tests.jobs.shop.work', 'good')",
    )

    bench.start(
        *("rq.cli", "worker", "--burst", "--url", bench.url),
        *("--worker-class", "redrive.integrations.rq.QuietWorker"),
    )
    bench.until("done", *["good"] * 4)
    bench.end()

    assert len(bench.lines("asked")) == 1
    assert len(bench.lines("arrived")) == 4
    app = Redrive(f"sqlite:///{bench.folder}/shop.db")
    async with app:
        waiting = (await app.operations.deliveries(Query(status=Status.PENDING))).deliveries
    assert [one.destination for one in waiting] == ["hung"] * 4


@pytest.fixture(scope="session")
def arq_folder() -> Path:
    return install_arq()


@pytest.mark.parametrize("bench", ["arq"], indirect=True)
async def test_arq(bench: Bench, arq_folder: Path) -> None:
    bench.environment["PYTHONPATH"] = f"{arq_folder}:{ROOT}"
    bench.start("arq", "tests.jobs.arq_jobs.WorkerSettings")

    said = bench.run("-m", "tests.jobs.arq_jobs", *KINDS)

    assert said.splitlines() == ["good good", "broken broken", "strict PayloadError"]
    bench.end()
    await check(bench)
