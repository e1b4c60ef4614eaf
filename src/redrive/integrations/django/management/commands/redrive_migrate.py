"""`manage.py redrive_migrate`: create the store's schema, or bring it up to date."""

from __future__ import annotations

import asyncio

from django.core.management.base import BaseCommand, CommandError

from redrive.app.redrive import Redrive
from redrive.errors import RedriveError
from redrive.integrations.django.project import get_app

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Create the schema of Redrive's store, or bring it up to date, and register destinations."""

    help = "Creates the schema of Redrive's store, or brings it up to date."
    requires_migrations_checks = False

    def handle(self, **_: object) -> None:
        """Do it, and tell the version."""
        try:
            version = asyncio.run(_migrate(get_app()))
        except RedriveError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"The store is ready, with schema version {version}.")


async def _migrate(app: Redrive) -> int:
    async with app:
        return await app.operations.schema_version()
