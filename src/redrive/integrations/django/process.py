"""What a worker process of a Django project loads: Django first, then the project's app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import django
from django.apps import apps
from django.db import close_old_connections

from redrive.executor import ThreadExecutor
from redrive.integrations.django.project import get_app

T = TypeVar("T")


class _Threads(ThreadExecutor):
    """Threads for handlers, rid of connections that are broken or too old, as requests are."""

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking function as Django runs a request."""

        def run() -> T:
            close_old_connections()
            try:
                return function()
            finally:
                close_old_connections()

        return super().submit(run)


if not apps.ready:  # a process that a supervisor has started, not manage.py
    django.setup()
app = get_app()
app.run_handlers_in(_Threads())
