"""The Django app: knows its name, and points the project's Redrive app to Django's database."""

from __future__ import annotations

from contextlib import suppress

from django.apps import AppConfig

from redrive.errors import RedriveError
from redrive.integrations.django.project import get_app

__all__ = ["RedriveConfig"]


class RedriveConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`redrive.integrations.django` in INSTALLED_APPS."""

    name = "redrive.integrations.django"
    label = "redrive"
    verbose_name = "Redrive"

    def ready(self) -> None:
        """Find the app early, so that nobody uses it before it knows where its store is.

        A mistake in the settings is told by whatever needs the app, not by each command.
        """
        with suppress(RedriveError):
            get_app()
