"""The dashboard beside the story: the same pages that `redrive serve` has, in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from redrive.app.redrive import Redrive
from redrive.errors import ConfigurationError

__all__ = ["beside", "check_extra", "has_screen", "is_attended", "until_enter"]

_PORT = 8321
_GRACE_SECONDS = 1.0
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def check_extra() -> None:
    """Refuse to begin without what the dashboard needs."""
    for name in ("jinja2", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise ConfigurationError(
                f"The dashboard needs {name}, which is not installed; "
                "install it with: pip install 'redrive[web]'"
            )


@asynccontextmanager
async def beside(app: Redrive, *, web: bool) -> AsyncIterator[str]:
    """Yield where the dashboard is; nothing, if nobody wants one."""
    if not web:
        yield ""
        return
    async with _serving(app) as url:
        yield url


@asynccontextmanager
async def _serving(app: Redrive) -> AsyncIterator[str]:
    """Serve the dashboard of an app that is open, at loopback alone; yields its address.

    It is opened in a browser, where somebody is there to see it.
    """
    from redrive.web.guard import LOOPBACK
    from redrive.web.server import HttpServer

    asgi = app.asgi(hosts=LOOPBACK, login=False)
    with _listening() as listening:
        server = HttpServer(asgi, proxies=(), root_path="", grace=_GRACE_SECONDS)
        task = asyncio.create_task(server.serve([listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if is_attended() and has_screen():
            webbrowser.open(url)
        try:
            yield url
        finally:
            server.stop()
            await task


def is_attended() -> bool:
    """Tell whether a person sits at the terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def has_screen() -> bool:
    """Tell whether a browser would open a window, and not take over the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(one) for one in _SCREENS)


async def until_enter() -> None:
    """Wait until somebody presses Enter."""
    pressed, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin, pressed.set)
    try:
        await pressed.wait()
        sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)


def _listening() -> socket.socket:
    """Return a socket at the usual port of `redrive serve` or, if that is taken, at any."""
    from redrive.web.server import listen

    try:
        return listen("127.0.0.1", _PORT)
    except ConfigurationError:
        return listen("127.0.0.1", 0)
