"""The mcp command: the operations as tools for an assistant, over a pipe or over HTTP."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Collection, Coroutine
from importlib.util import find_spec
from typing import TYPE_CHECKING

from redrive.cli.asking import is_attended
from redrive.cli.ending import Ending
from redrive.cli.serve import Address, is_open, own_names
from redrive.cli.session import app_at, current_user, refuse_empty, store_name
from redrive.clock import SystemClock, SystemEntropy
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.executor import end_process

if TYPE_CHECKING:
    from redrive.app.redrive import Redrive
    from redrive.mcp.desk import Desk

__all__ = ["serve_assistant"]

_ALLOWED = ("operate", "reveal")
_GRACE_SECONDS = 10.0
_INTERRUPTED = 130
_log = logging.getLogger("redrive.mcp")


def serve_assistant(
    store: str | None,
    *,
    allow: Collection[str],
    most: int,
    address: Address | None,
    log_level: str,
) -> int:
    """Serve tools until the pipe ends or a signal comes; with an `address`, over HTTP."""
    from redrive.observers.logging import LoggingObserver, configure_logging

    configure_logging(log_level)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # what it does is told by us
    refuse_unknown(allow, _ALLOWED, what="permission to --allow")
    if find_spec("mcp") is None or find_spec("starlette") is None:
        raise ConfigurationError(
            "Tools for assistants need the official SDK, which is not installed; "
            "install it with: pip install 'redrive[mcp]'"
        )
    app = app_at(store)
    app.observe(LoggingObserver(is_discreet=lambda: app.is_encrypted))
    if address is None:
        return asyncio.run(_over_pipe(app, allow, most))
    with Ending() as ending:
        return asyncio.run(_over_http(app, allow, most, ending, address))


async def _over_pipe(app: Redrive, allow: Collection[str], most: int) -> int:
    from redrive.mcp.server import serve_stdio
    from redrive.model.access import Grant, Role
    from redrive.web.caller import Caller

    await refuse_empty(app.settings.store, creates=False)
    if is_attended():
        _log.info("An assistant is to start this, and to speak to it; Ctrl-C ends it.")
    by = f"mcp:{current_user()}"
    role = Role.OPERATE if allow else Role.VIEW
    caller = Caller(by=by, source=by, grant=Grant(role=role))
    async with app:
        is_told = await _until_told(serve_stdio(_desk(app, allow, most), caller))
    if is_told:
        # A thread of the SDK's waits for the next line, and nothing else can end it.
        end_process(_INTERRUPTED)
    return 0


async def _until_told(serving: Coroutine[None, None, None]) -> bool:
    """Serve until the pipe ends, or a signal comes; tell whether it was that."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(one, told.set)
    tasks = [asyncio.ensure_future(serving), asyncio.ensure_future(told.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if not told.is_set():
        tasks[1].cancel()
        await tasks[0]
    return told.is_set()


async def _over_http(
    app: Redrive, allow: Collection[str], most: int, ending: Ending, address: Address
) -> int:
    from redrive.app.serving import is_guarded
    from redrive.mcp.server import PATH, make_http
    from redrive.web.caller import OpenDoor
    from redrive.web.guard import LOOPBACK
    from redrive.web.server import HttpServer, is_loopback, listen

    clock = SystemClock()

    async def is_anybody_known() -> bool:
        return await is_guarded(app, clock)

    with ending.received_first():
        await refuse_empty(app.settings.store, creates=False)
        async with app:
            has_door = await is_open(app, address, is_local=is_loopback(address.host))
            asgi = make_http(
                app,
                _desk(app, allow, most),
                hosts=(*LOOPBACK, *own_names(address), *address.hosts),
                door=OpenDoor(is_anybody_known, clock) if has_door else None,
                clock=clock,
                redaction=app.settings.redaction,
            )
            server = HttpServer(
                asgi, proxies=address.proxies, root_path=address.root_path, grace=_GRACE_SECONDS
            )
            with listen(address.host, address.port) as listening:
                ending.expect(stop=server.stop, end=server.quit, grace=_GRACE_SECONDS)
                shown = f"[{address.host}]" if ":" in address.host else address.host
                place = f"{shown}:{listening.getsockname()[1]}{address.root_path}{PATH}"
                name = store_name(app.settings.store)
                _log.info("Serving tools for %s at http://%s", name, place)
                await server.serve([listening])
    ending.conclude(0, within=_GRACE_SECONDS)
    return 0


def _desk(app: Redrive, allow: Collection[str], most: int) -> Desk:
    from redrive.mcp.desk import Desk

    return Desk(
        app,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        redaction=app.settings.redaction,
        may_operate="operate" in allow,
        may_reveal="reveal" in allow,
        most=most,
    )
