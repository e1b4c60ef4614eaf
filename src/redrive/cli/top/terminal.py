"""The terminal: its other screen to draw on, and its keys one by one, given back as it was."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from redrive.cli.show.top.frame import frame
from redrive.cli.show.top.view import View
from redrive.cli.top.viewer import Show

__all__ = ["keys_to", "screen_on"]

_LOCAL, _CHARACTERS = 3, 6


@contextmanager
def screen_on(console: Console) -> Iterator[Show]:
    """Draw views on the terminal's other screen, at the size it has at that moment."""
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(view: View) -> None:
            width, height = console.size
            live.update(frame(view, width=width, height=height, with_keys=True), refresh=True)

        yield show


@contextmanager
def keys_to(press: Callable[[str], None]) -> Iterator[None]:
    """Hand on each key as it is pressed, if standard input is a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    during = termios.tcgetattr(keyboard)
    during[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    # Suspended, it would leave its picture on the shell's screen.
    during[_CHARACTERS][termios.VSUSP] = b"\0"
    loop = asyncio.get_running_loop()

    def hear() -> None:
        typed = os.read(keyboard, 64)
        if not typed:
            loop.remove_reader(keyboard)
        for key in typed.decode("utf-8", "replace"):
            press(key)

    termios.tcsetattr(keyboard, termios.TCSADRAIN, during)
    loop.add_reader(keyboard, hear)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
