"""The workloads of queues, done alike to everyone: a contender only says how it does each verb."""

from __future__ import annotations

from benchmarks.measures.queue import Handle, Payload, Queue
from benchmarks.measures.workloads import queue_workloads

__all__ = ["Handle", "Payload", "Queue", "queue_workloads"]
