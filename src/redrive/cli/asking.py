"""Asking a person before something is done."""

from __future__ import annotations

import sys

import typer

from redrive.cli.printing import print_warning

__all__ = ["confirm", "is_attended"]


def confirm(question: str) -> None:
    """Go on only if a person says yes; where nobody can be asked, say how to do without."""
    from redrive.errors import UsageError

    if not is_attended():
        raise UsageError(f"{question} There is nobody to ask here; say --yes.")
    if not typer.confirm(question, err=True):
        print_warning("nothing was done.")
        raise typer.Exit(1)


def is_attended() -> bool:
    """Tell whether a person sits at the terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
