"""`manage.py redrive …`: every command of `redrive`, on the store of the project's app."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence

from django.core.management.base import BaseCommand

__all__ = ["Command"]

_WORKER = "worker"
_TARGET = "redrive.integrations.django.process:app"


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """What `redrive` does on the command line; the app need not be named."""

    help = "Does what the command redrive does, such as: manage.py redrive status"
    requires_migrations_checks = False
    requires_system_checks = ()

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Take all arguments as `redrive` does, `--help` included, but for those of Django."""
        django = ArgumentParser(add_help=False, allow_abbrev=False)
        django.add_argument("--settings")
        django.add_argument("--pythonpath")
        _, arguments = django.parse_known_args(argv[2:])
        self.handle(arguments=arguments)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take anything, for `call_command`."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *, arguments: Sequence[str], **_: object) -> None:
        """Run the command; a code other than 0 ends the process with it."""
        from redrive.cli.main import main  # noqa: PLC0415 - its modules are many
        from redrive.cli.session import knowing  # noqa: PLC0415
        from redrive.integrations.django.project import get_app  # noqa: PLC0415

        given = list(arguments)
        if given[:1] == [_WORKER] and "--help" not in given:
            given.insert(1, _TARGET)
        with knowing(lambda: get_app().settings):
            code = main(given)
        if code:
            sys.exit(code)
