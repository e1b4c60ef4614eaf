"""Dramatiq: what goes wrong with tracking fails no message; a worker that ends sends what is left.

Add the middleware to the broker:

    from redrive.integrations.dramatiq import QuietTracking

    broker.add_middleware(QuietTracking())
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import local

import dramatiq

from redrive.tracking.quiet import quiet
from redrive.tracking.tracker import close_all

__all__ = ["QuietTracking"]


class QuietTracking(dramatiq.Middleware):
    """Has every message processed quietly."""

    def __init__(self) -> None:
        self._of_thread = local()

    def before_process_message(
        self, broker: dramatiq.Broker, message: dramatiq.MessageProxy
    ) -> None:
        """Begin to be quiet."""
        entered: AbstractContextManager[None] = quiet()
        entered.__enter__()
        self._of_thread.entered = entered

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.MessageProxy,
        *,
        result: object = None,
        exception: BaseException | None = None,
    ) -> None:
        """End it."""
        entered = self._of_thread.__dict__.pop("entered", None)
        if entered is not None:
            entered.__exit__(None, None, None)

    def after_skip_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        """End it, too, for a message that was not processed."""
        self.after_process_message(broker, message)

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Send what is left."""
        close_all()
