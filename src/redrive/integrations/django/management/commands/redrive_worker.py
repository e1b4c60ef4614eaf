"""`manage.py redrive_worker`: deliver what is due, until told to stop."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import cast

from django.core.management.base import BaseCommand, CommandError

from redrive.errors import RedriveError

__all__ = ["Command"]

_TARGET = "redrive.integrations.django.process:app"


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """The worker of the project's app; see `redrive worker --help` for what its options mean."""

    help = "Delivers the events that are due, until told to stop."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what `redrive worker` takes, except the app."""
        for name, meaning in (
            ("--processes", "Supervise this many processes."),
            ("--concurrency", "Deliveries at once in each."),
            ("--port", "Tell health and metrics at this port."),
        ):
            parser.add_argument(name, type=int, metavar="N", help=meaning)
        parser.add_argument("--host", default="127.0.0.1", help="The address that port is on.")
        for name, meaning in (
            ("--only", "Serve this destination alone; may be given several times."),
            ("--except", "Serve all but this destination; may be given several times."),
        ):
            parser.add_argument(name, action="append", default=[], metavar="NAME", help=meaning)
        parser.add_argument("--log-level", default="info", help="debug, info, warning or error.")

    def handle(
        self,
        *,
        processes: int | None,
        concurrency: int | None,
        port: int | None,
        host: str,
        log_level: str,
        only: Sequence[str] = (),
        **others: object,
    ) -> None:
        """Run until a signal ends it; the exit code is that of `redrive worker`."""
        from redrive.cli.worker import Choice, worker  # noqa: PLC0415 - for its `--help`, nobody needs it

        leave_out = cast("Sequence[str]", others.get("except", ()))

        try:
            code = worker(
                _TARGET,
                store=None,
                processes=processes,
                concurrency=concurrency,
                log_level=log_level,
                port=port,
                host=host,
                choice=Choice(tuple(only), tuple(leave_out)),
            )
        except RedriveError as error:
            raise CommandError(str(error)) from error
        if code:
            sys.exit(code)
