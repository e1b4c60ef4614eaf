"""Which commands are made ready: to make all of them takes longer than most of them run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from typing import Any

import typer

__all__ = ["command_for"]


def command_for(app: typer.Typer, arguments: Sequence[str]) -> Callable[..., Any]:
    """Return the whole command with nothing in it but what the arguments name.

    Where they name nothing, as with `--help` or a slip of the pen, all of that group is there, to
    be listed or suggested. No option of a group takes a value, so that its first word is a name.
    """
    words = tuple(word for word in arguments if not word.startswith("-"))
    return _made(app, *words[:2])


@cache
def _made(app: typer.Typer, *words: str) -> Callable[..., Any]:
    command: Callable[..., Any] = typer.main.get_command(_only(app, *words))
    return command


def _only(group: typer.Typer, name: str = "", *words: str) -> typer.Typer:
    """Return a group with the one of this name, if there is one."""
    commands = [one for one in group.registered_commands if name == _name_of(one)]
    groups = [one for one in group.registered_groups if name == one.name]
    if not commands and not groups:
        return group
    found = copy(group)
    found.registered_commands, found.registered_groups = commands, []
    for one in groups:
        inner = copy(one)
        if one.typer_instance is not None:
            inner.typer_instance = _only(one.typer_instance, *words)
        found.registered_groups.append(inner)
    return found


def _name_of(command: typer.models.CommandInfo) -> str:
    """Return what typer calls it."""
    return command.name or typer.main.get_command_name(getattr(command.callback, "__name__", ""))
