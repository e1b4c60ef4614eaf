"""Asking before something cannot be undone."""

from __future__ import annotations

import sys

import typer

__all__ = ["confirm", "is_attended"]


def confirm(question: str) -> None:
    """Ask; end the command unless the answer is yes, and refuse where nobody can answer."""
    from redrive.errors import UsageError

    if not is_attended():
        raise UsageError(f"{question} There is nobody to ask here; say --yes.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def is_attended() -> bool:
    """Tell whether somebody sits at the terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
