"""The worker command: one worker in this process, or several under a supervisor.

Run as a module it is one process of a supervisor's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import chain

import msgspec

from redrive.app.config import Settings
from redrive.app.redrive import Redrive
from redrive.cli.ending import SIGNALS, Ending
from redrive.cli.printing import print_error
from redrive.cli.session import app_at
from redrive.cli.target import load_app
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, RedriveError, StoreError
from redrive.executor import WEDGED, end_process
from redrive.observer import Fact, WorkerStarted
from redrive.worker import Worker
from redrive.worker.supervisor import LIFELINE, Supervisor

__all__ = ["Choice", "loop_factory", "worker"]

_CLOSE_SECONDS = 5.0
_BROKEN = 1
_LAST_PORT = 65535


class _Address(msgspec.Struct, frozen=True):
    """Where a process tells of its health; without a port, nowhere."""

    host: str
    port: int | None

    def of_process(self, number: int) -> _Address:
        """Return the address of one of several processes, counted from 1."""
        if not self.port:  # nowhere, or at any port that is free
            return self
        return _Address(self.host, self.port + number - 1)


class Choice(msgspec.Struct, frozen=True):
    """Which destinations a worker serves; without names, all."""

    only: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    services: bool = False
    """Whether it serves stored services too."""

    def options(self) -> list[str]:
        """Return the same as options of a process."""
        only = [f"--only={name}" for name in self.only]
        leave_out = [f"--except={name}" for name in self.leave_out]
        return [*only, *leave_out, *(["--services"] if self.services else [])]


def worker(
    target: str | None,
    *,
    store: str | None,
    processes: int | None,
    concurrency: int | None,
    log_level: str,
    port: int | None = None,
    host: str = "127.0.0.1",
    choice: Choice = Choice(),  # noqa: B008 - it never changes
) -> int:
    """Run the worker of the app `module:name` until a signal ends it; returns the exit code.

    Without an app it serves the services of the store.

    The first SIGTERM or SIGINT lets handlers finish within the grace time and gives back what ends
    when it is cancelled after that, the second ends at once. With `processes`, that many are run
    and started again when they die; otherwise the worker runs in this very process. With `port`,
    it tells of its health there, and each further process one port on. The code is 0 after a stop,
    and 70 when the process had to end because of handlers that would not.
    """
    from redrive.observers.logging import configure_logging

    configure_logging(log_level)
    address = _Address(host, port)
    if target is None:  # an app declares nothing then, so that services are all there is
        choice = msgspec.structs.replace(choice, services=True)
    if processes is None:
        with Ending() as ending:
            app = _load(target, store, log_level)
            app.settings = _settings(app, store=store, concurrency=concurrency)
            return _work(app, ending, address=address, choice=choice)
    if processes < 1:
        raise ConfigurationError(
            f"processes is {processes}; write how many worker processes to run, 1 or more."
        )
    if (address.of_process(processes).port or 0) > _LAST_PORT:
        raise ConfigurationError(
            f"port is {port}, and each of {processes} processes takes one more; "
            f"the last would be beyond {_LAST_PORT}."
        )

    def command(number: int) -> list[str]:
        given = {
            "--log-level": log_level,
            "--concurrency": concurrency,
            "--host": host,
            "--port": address.of_process(number).port,
        }
        options = [[name, str(value)] for name, value in given.items() if value is not None]
        given_options = [*chain(*options), *choice.options()]
        return [sys.executable, "-m", "redrive.cli.worker", target or "", *given_options]

    # The address of a store may hold a password, and everybody can read a command line.
    confided = msgspec.json.encode(store) + b"\n"
    return asyncio.run(_supervise(command, processes=processes, confided=confided))


def _load(target: str | None, store: str | None, log_level: str) -> Redrive:
    """Return the app, and let the log hide what it hides; without one, an app of the store."""
    from redrive.observers.logging import configure_logging

    app = load_app(target) if target else app_at(store)
    if app.settings.redact:
        configure_logging(log_level, redact=app.settings.redact)
    return app


async def _supervise(
    command: Callable[[int], list[str]], *, processes: int, confided: bytes
) -> int:
    supervisor = Supervisor(command, processes=processes, clock=SystemClock(), confided=confided)
    words = iter([supervisor.stop])

    def hear() -> None:
        next(words, supervisor.quit)()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        # Not the loop's own way: it would bring the defaults back before the process is gone.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(hear))
    try:
        return await supervisor.run()
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _settings(app: Redrive, *, store: str | None, concurrency: int | None) -> Settings:
    """Return the settings of the app with what the command line says."""
    given = {"store": store, "concurrency": concurrency}
    named = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(app.settings, **named)


def _work(
    app: Redrive,
    ending: Ending,
    *,
    address: _Address,
    choice: Choice,
    lifeline: socket.socket | None = None,
) -> int:
    from redrive.observers.logging import LoggingObserver

    app.observe(LoggingObserver(is_discreet=lambda: app.is_encrypted))
    if lifeline is not None:
        app.observe(_Herald(lifeline))
    if ending.is_signalled:
        return 0
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(app, ending, address, choice, lifeline))


async def _serve(
    app: Redrive,
    ending: Ending,
    address: _Address,
    choice: Choice,
    lifeline: socket.socket | None,
) -> int:
    with ending.received_first():
        return await _serve_to_the_end(app, ending, address, choice, lifeline)


async def _serve_to_the_end(
    app: Redrive,
    ending: Ending,
    address: _Address,
    choice: Choice,
    lifeline: socket.socket | None,
) -> int:
    async with app:
        running = await app.make_worker(
            only=choice.only, except_=choice.leave_out, services=choice.services
        )
        async with _health(app, running, ending, address):
            grace = app.settings.grace.total_seconds()
            ending.expect(stop=running.stop, end=running.quit, grace=grace)
            if lifeline is not None:
                threading.Thread(target=ending.come_with, args=[lifeline], daemon=True).start()
            code = await _run(running)
            ending.conclude(code, within=_CLOSE_SECONDS)
    if running.leaves_handlers:
        end_process(code)
    return code


async def _run(worker: Worker) -> int:
    try:
        await worker.run()
    except RedriveError:
        raise
    except Exception:
        logging.getLogger("redrive").exception("The worker broke; this is a bug in Redrive.")
        return _BROKEN
    return WEDGED if worker.is_wedged else 0


@asynccontextmanager
async def _health(
    app: Redrive, worker: Worker, ending: Ending, address: _Address
) -> AsyncIterator[None]:
    """Tell of the worker's health while the block lasts, if there is a port for it."""
    if address.port is None:
        yield
        return
    async with app.make_health(worker, host=address.host, port=address.port) as health:
        ending.announce(health.vitals.leave)
        yield


class _Herald:
    """Tells the supervisor, over the lifeline, that the worker has taken up its work."""

    def __init__(self, lifeline: socket.socket) -> None:
        self._lifeline = lifeline

    def notice(self, fact: Fact) -> None:
        """Send a byte when the worker has started."""
        if isinstance(fact, WorkerStarted):
            self._lifeline.send(b"!")


def _read_line(lifeline: socket.socket) -> bytes:
    """Return the line that the supervisor confides, and leave what follows; none if it is gone."""
    line = b""
    with suppress(OSError):
        while not line.endswith(b"\n") and (letter := lifeline.recv(1)):
            line += letter
    return line if line.endswith(b"\n") else b""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes event loops: uvloop's, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _main() -> int:
    from redrive.observers.logging import configure_logging

    parser = argparse.ArgumentParser(description="One worker process under a supervisor.")
    parser.add_argument("target")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--except", action="append", default=[], dest="leave_out")
    parser.add_argument("--services", action="store_true")
    parser.add_argument(LIFELINE, type=int, required=True)
    given = parser.parse_args()
    lifeline = socket.socket(fileno=given.lifeline)
    lifeline.set_inheritable(False)  # what a handler starts must not hold on to it
    configure_logging(given.log_level)
    confided = _read_line(lifeline)
    if not confided:  # the supervisor has gone already
        return 0
    try:
        with Ending() as ending:
            store = msgspec.json.decode(confided, type=str | None)
            app = _load(given.target, store, given.log_level)
            app.settings = _settings(app, store=store, concurrency=given.concurrency)
            return _work(
                app,
                ending,
                address=_Address(given.host, given.port),
                choice=Choice(tuple(given.only), tuple(given.leave_out), services=given.services),
                lifeline=lifeline,
            )
    except RedriveError as error:
        print_error(type(error).__name__, str(error), as_json=False)
        return 3 if isinstance(error, StoreError) else 2


if __name__ == "__main__":
    sys.exit(_main())
