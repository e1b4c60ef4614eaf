"""The jobs as functions of arq."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from redrive.integrations.arq import end_job, shut_down, start_job
from tests.jobs.shop import BROKER, work

_SETTINGS = RedisSettings.from_dsn(BROKER)


async def work_job(ctx: dict[str, Any], kind: str) -> str:
    """Do it."""
    return work(kind)


class WorkerSettings:
    """What `arq` runs."""

    functions: ClassVar[list[Any]] = [work_job]
    on_job_start = start_job
    on_job_end = end_job
    on_shutdown = shut_down
    redis_settings = _SETTINGS
    max_tries = 1


async def put(kind: str) -> None:
    """Ask for a job, and leave it at that."""
    pool = await create_pool(_SETTINGS)
    await pool.enqueue_job("work_job", kind)
    await pool.aclose()


async def enqueue(kinds: list[str]) -> None:
    """Ask for jobs, and say how they ended."""
    pool = await create_pool(_SETTINGS)
    jobs = [await pool.enqueue_job("work_job", kind) for kind in kinds]
    for kind, job in zip(kinds, jobs, strict=True):
        assert job is not None
        try:
            said = f"{kind} {await job.result(timeout=60)}"
        except Exception as error:  # noqa: BLE001 - whatever the job has raised
            said = f"{kind} {type(error).__name__}"
        sys.stdout.write(f"{said}\n")
    await pool.aclose()


if __name__ == "__main__":
    asyncio.run(enqueue(sys.argv[1:]))
