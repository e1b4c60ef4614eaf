"""Celery: what goes wrong with tracking never fails a task; a worker that ends sends what is left.

Call `connect()` once, where the Celery app is made:

    from redrive.integrations.celery import connect

    connect()
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from celery.signals import task_postrun, task_prerun, worker_process_shutdown, worker_shutdown

from redrive.tracking.quiet import quiet
from redrive.tracking.tracker import close_all

__all__ = ["connect"]

_open: dict[str, AbstractContextManager[None]] = {}


def connect() -> None:
    """Have every task of this process be quiet; a second call changes nothing."""
    task_prerun.connect(_begin, dispatch_uid="redrive")
    task_postrun.connect(_end, dispatch_uid="redrive")
    # A pool's processes end without the exit of Python.
    worker_process_shutdown.connect(_shut_down, dispatch_uid="redrive")
    worker_shutdown.connect(_shut_down, dispatch_uid="redrive")


def _begin(task_id: str = "", **_more: Any) -> None:  # noqa: ANN401 - as the signal sends it
    entered = quiet()
    entered.__enter__()
    _open[task_id] = entered


def _end(task_id: str = "", **_more: Any) -> None:  # noqa: ANN401 - as the signal sends it
    entered = _open.pop(task_id, None)
    if entered is not None:
        entered.__exit__(None, None, None)


def _shut_down(**_more: Any) -> None:  # noqa: ANN401 - as the signal sends it
    close_all()
