"""arq: what goes wrong with tracking never fails a job; a worker that ends sends what is left.

Name the hooks in the settings of the worker:

    from redrive.integrations.arq import end_job, shut_down, start_job

    class WorkerSettings:
        functions = [...]
        on_job_start = start_job
        on_job_end = end_job
        on_shutdown = shut_down
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from redrive.tracking.quiet import quiet
from redrive.tracking.tracker import close_all

__all__ = ["end_job", "shut_down", "start_job"]

_KEY = "redrive_quiet"


async def start_job(ctx: dict[str, Any]) -> None:
    """Begin to be quiet; the job runs in the same task."""
    entered: AbstractContextManager[None] = quiet()
    entered.__enter__()
    ctx[_KEY] = entered


async def end_job(ctx: dict[str, Any]) -> None:
    """End it."""
    entered = ctx.pop(_KEY, None)
    if entered is not None:
        entered.__exit__(None, None, None)


async def shut_down(ctx: dict[str, Any]) -> None:  # noqa: ARG001 - as arq calls it
    """Send what is left."""
    await asyncio.to_thread(close_all)
