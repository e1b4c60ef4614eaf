"""The worker: admit, claim, deliver, settle, over and over, until it is asked to stop."""

from __future__ import annotations

from redrive.pipeline.settle import Tally
from redrive.worker.scheduler import PlannedSchedule
from redrive.worker.settings import WorkerSettings
from redrive.worker.worker import Worker

__all__ = ["PlannedSchedule", "Tally", "Worker", "WorkerSettings"]
