"""Where output goes: results to standard output, complaints to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "flush_output",
    "print_change",
    "print_error",
    "print_json",
    "print_result",
    "print_traceback",
    "print_warning",
    "progress",
    "silence_output",
]

_LONG = 10_000
_ENDLESS = 2**31


def print_result(*parts: RenderableType) -> None:
    """Print for a person: no wider than the terminal, in colour only where there is one.

    Into a pipe or a file goes all of it, for the next program to look through, unless COLUMNS says
    how wide lines may be.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _ENDLESS
    with console.capture() as captured:
        for part in parts:
            console.print(part, crop=False)
    text = captured.get()
    if not console.is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    _write(sys.stdout, text)


def print_json(value: object) -> None:
    """Print for a program: one JSON document."""
    import msgspec

    from redrive.policies.display import escape_controls

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    _write(sys.stdout, f"{escape_controls(text)}\n")


def print_change(name: str, done: str, otherwise: str, *, is_new: bool, json: bool) -> None:
    """Print whether an act has changed what it names; the command ends with 1 if it has not."""
    if json:
        changed, unchanged = ([name], []) if is_new else ([], [name])
        print_json({"changed": changed, "unchanged": unchanged})
    else:
        print_result(done if is_new else otherwise)
    if not is_new:
        raise typer.Exit(1)


def print_warning(message: str) -> None:
    """Print what a person should know although the command did what it was asked to."""
    _write(sys.stderr, f"redrive: {_shown(message)}\n")


def print_error(kind: str, message: str, *, as_json: bool) -> None:
    """Print why a command could not do what it was asked to."""
    if as_json:
        import json

        from redrive.policies.display import escape_controls
        from redrive.policies.redact import Redaction

        error = {"error": {"type": kind, "message": Redaction().text(message)}}
        _write(sys.stderr, f"{escape_controls(json.dumps(error, ensure_ascii=False))}\n")
    else:
        _write(sys.stderr, f"redrive: {_shown(message)}\n")


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far long work has come, if somebody watches; call it with what was done.

    Of work whose end nobody knows, `None`, it shows how much was done.
    """
    is_short = total is not None and total < _LONG
    if is_short or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    known = Progress.get_default_columns()
    columns = known if total is not None else ("{task.description}", "{task.completed:,}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def print_traceback(error: BaseException) -> None:
    """Print where an error came from."""
    import traceback

    _write(sys.stderr, _shown("".join(traceback.format_exception(error))))


def flush_output() -> None:
    """Write out what waits, so that a failure to do so is heard of."""
    if sys.stdout is not None:
        sys.stdout.flush()


def silence_output() -> None:
    """Let nothing more be written: whoever read it has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _shown(text: str) -> str:
    from redrive.policies.display import safe_lines
    from redrive.policies.redact import Redaction

    return safe_lines(Redaction().text(text))


def _write(stream: TextIO | None, text: str) -> None:
    # Python leaves out the streams that were closed when it started.
    if stream is not None:
        stream.write(text)
