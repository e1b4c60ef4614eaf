"""RQ: what goes wrong with tracking never fails a job; the process of a job sends what is left.

Run workers of this class:

    rq worker --worker-class redrive.integrations.rq.QuietWorker

A worker of RQ starts a process for each job, and ends it at once when the job is done. So what the
job has tracked is sent before that, for at most `flush_limit`; what takes longer is in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rq import SimpleWorker, Worker

from redrive.tracking.quiet import quiet
from redrive.tracking.tracker import close_all

if TYPE_CHECKING:
    from rq.job import Job
    from rq.queue import Queue

__all__ = ["QuietSimpleWorker", "QuietWorker"]


class QuietWorker(Worker):
    """Runs every job quietly, each in a process of its own."""

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
