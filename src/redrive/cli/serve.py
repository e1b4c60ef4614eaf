"""The serve command: the HTTP API in this process, alone or with a worker beside it."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from string import ascii_letters, digits

import msgspec

from redrive.app.redrive import Redrive
from redrive.app.serving import is_guarded
from redrive.cli.ending import Ending
from redrive.cli.session import app_at, refuse_empty, store_name
from redrive.cli.target import load_app
from redrive.cli.worker import loop_factory
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.executor import WEDGED, end_process

__all__ = ["Address", "is_open", "own_names", "serve"]

_CLOSE_SECONDS = 5.0
_SERVER_GRACE_SECONDS = 10.0
_HEADER_LETTERS = frozenset(ascii_letters + digits + "-")
_log = logging.getLogger("redrive.web")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, by which names and proxies it is reached, and below which path.

    `user_header` is where those proxies say whom they have let in.
    """

    host: str
    port: int
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    user_header: str | None = None
    root_path: str = ""
    rate: str | None = None


class _Works(msgspec.Struct, frozen=True):
    """Whether a worker is asked for, and serves what the store describes."""

    is_asked: bool
    services: bool


def serve(
    target: str | None,
    *,
    store: str | None,
    address: Address,
    with_worker: bool,
    services: bool,
    log_level: str,
) -> int:
    """Serve the API of an app, or of a store alone, until a signal ends it; returns the code."""
    from redrive.observers.logging import LoggingObserver, configure_logging

    configure_logging(log_level)
    _check_extra()
    _check_user_header(address)
    with Ending() as ending:
        app = app_at(store) if target is None else load_app(target)
        if target is not None and store is not None:
            app.settings = msgspec.structs.replace(app.settings, store=store)
        if app.settings.redact:
            configure_logging(log_level, redact=app.settings.redact)
        app.observe(LoggingObserver(is_discreet=lambda: app.is_encrypted))
        if ending.is_signalled:
            return 0
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            works = _Works(with_worker, services=services or target is None)
            return runner.run(_serve(app, ending, address, works, creates=target is not None))


async def _serve(
    app: Redrive, ending: Ending, address: Address, works: _Works, *, creates: bool
) -> int:
    with ending.received_first():
        await refuse_empty(app.settings.store, creates=creates)
        async with app:
            return await _serve_open(app, ending, address, works)


async def _serve_open(app: Redrive, ending: Ending, address: Address, works: _Works) -> int:
    from redrive.web.guard import LOOPBACK
    from redrive.web.server import HttpServer, collect_less, is_loopback, listen

    has_door = await is_open(app, address, is_local=is_loopback(address.host))
    leaving: list[str] = []
    asgi = app.asgi(
        hosts=(*LOOPBACK, *own_names(address), *address.hosts),
        is_open_without_tokens=has_door,
        rate=address.rate,
        hindrances=lambda: list(leaving),
    )
    grace = app.settings.grace.total_seconds()
    server = HttpServer(
        asgi,
        proxies=address.proxies,
        root_path=address.root_path,
        user_header=address.user_header,
        grace=min(grace, _SERVER_GRACE_SECONDS),
    )
    worker = await app.make_worker(services=works.services) if works.is_asked else None

    def stop() -> None:
        server.stop()
        if worker is not None:
            worker.stop()

    def end() -> None:
        server.quit()
        if worker is not None:
            worker.quit()

    async def work() -> None:
        if worker is None:
            return
        try:
            await worker.run()
        finally:
            server.stop()

    with listen(address.host, address.port) as listening:
        ending.announce(lambda: leaving.append("the server is stopping"))
        ending.expect(stop=stop, end=end, grace=grace)
        shown = f"[{address.host}]" if ":" in address.host else address.host
        place = f"http://{shown}:{listening.getsockname()[1]}{address.root_path}"
        collect_less()
        _log.info("Serving %s at %s", store_name(app.settings.store), place)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work())
            tasks.create_task(server.serve([listening]))
    code = WEDGED if worker is not None and worker.is_wedged else 0
    ending.conclude(code, within=_CLOSE_SECONDS)
    if worker is not None and worker.leaves_handlers:
        end_process(code)
    return code


async def is_open(app: Redrive, address: Address, *, is_local: bool) -> bool:
    """Tell whether nobody needs to log in yet; refuse to be open to others than this machine."""
    has_login = await is_guarded(app, SystemClock())
    is_alone = is_local and not (address.hosts or address.proxies)
    if not (has_login or is_alone):
        raise ConfigurationError(
            "The server would be open to whoever reaches it: no token and no user is in the store. "
            'Make one with `redrive token create NAME --role admin --why "…"` or `redrive user '
            'add NAME --role admin --why "…"`, or listen at 127.0.0.1 without --allow-host and '
            "--trust-proxy."
        )
    if not is_alone and not address.proxies:
        _log.warning(
            "Passwords, tokens and payloads go over plain HTTP to %s: put a proxy with TLS before "
            "it, and name it with --trust-proxy.",
            address.host,
        )
    return not has_login


def _check_user_header(address: Address) -> None:
    """Refuse to take just anybody's word for who they are."""
    name = address.user_header
    if name is None:
        return
    if not address.proxies or "*" in address.proxies:
        raise ConfigurationError(
            "--trust-user-header takes the word of a proxy for who asks; name its address with "
            "--trust-proxy, because anybody else could claim to be anyone."
        )
    if not name or not _HEADER_LETTERS.issuperset(name):
        raise ConfigurationError(
            f"--trust-user-header is {name!r}; it is the name of a header, such as "
            "X-Forwarded-User."
        )


def own_names(address: Address) -> list[str]:
    """Return the address itself, where it is one that callers can name."""
    if address.host in ("0.0.0.0", "::"):  # noqa: S104 - it is only looked at
        return []
    return [f"[{address.host}]" if ":" in address.host else address.host]


def _check_extra() -> None:
    for name in ("jinja2", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise ConfigurationError(
                f"The server needs {name}, which is not installed; "
                "install it with: pip install 'redrive[web]'"
            )
