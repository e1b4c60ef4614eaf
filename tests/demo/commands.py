"""The commands that a demo shows, read by the command line that there is."""

from __future__ import annotations

import shlex

from typer.core import TyperGroup
from typer.main import get_command

from redrive.cli.main import app

__all__ = ["read_commands"]

_PROMPT = "    $ redrive "


def read_commands(told: str) -> int:
    """Read each as the command line does, and return how many; a wrong one raises."""
    shown = {line for line in told.splitlines() if line.startswith(_PROMPT)}
    for line in sorted(shown):
        arguments = shlex.split(line.removeprefix(_PROMPT))
        command = get_command(app)
        while isinstance(command, TyperGroup):
            command = command.commands[arguments.pop(0)]
        command.make_context(command.name, arguments)
    return len(shown)
