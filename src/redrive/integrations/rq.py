"""RQ: what goes wrong with tracking never fails a job; the process of a job sends what is left.

Run workers of this class:

    rq worker --worker-class redrive.integrations.rq.QuietWorker

A worker of RQ starts a process for each job, and ends it at once when the job is done. So what the
job has tracked is sent before that, for at most `flush_limit`; what takes longer is in the journal.
A destination for which a job has waited in vain is left alone for a while by those that follow.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from rq import SimpleWorker, Worker

from redrive.tracking.hung import share
from redrive.tracking.quiet import quiet
from redrive.tracking.tracker import close_all

if TYPE_CHECKING:
    from rq.job import Job
    from rq.queue import Queue

__all__ = ["QuietSimpleWorker", "QuietWorker"]


# Each is imported once, and not by the process of each job.
_MODULES = ("redrive.app.redrive", "redrive.stores.sqlite.store", "redrive.stores.postgres.store")


class QuietWorker(Worker):
    """Runs every job quietly, each in a process of its own."""

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Begin the process of a job, which is told what those before it have found out."""
        share()
        for one in _MODULES:
            with suppress(ImportError):
                import_module(one)
        super().fork_work_horse(job, queue)

    def perform_job(self, job: Job, queue: Queue) -> bool:
        """Run a job, and send what it has tracked."""
        try:
            with quiet():
                return super().perform_job(job, queue)
        finally:
            close_all()


class QuietSimpleWorker(SimpleWorker):
    """Runs every job quietly, in its own process."""

    def perform_job(self, job: Job, queue: Queue) -> bool:
        """Run a job."""
        with quiet():
            return super().perform_job(job, queue)
