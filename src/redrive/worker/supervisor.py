"""The supervisor: keeps a number of worker processes running, and ends when they have."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from redrive.clock import Clock, wait_at_most
from redrive.executor import WEDGED

__all__ = ["LIFELINE", "Supervisor"]

LIFELINE = "--lifeline"
"""The option by which a process learns the number of its lifeline's file descriptor."""

_MISCONFIGURED = (2, 3)
_ENDED_AS_ASKED = (0, -signal.SIGTERM)
_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 5.0
_HEALTHY_SECONDS = 60.0
_LAST_SECONDS = 3.0

_log = logging.getLogger("redrive")


class Supervisor:
    """Runs a command in several processes, and starts again those that end unasked.

    `command` makes the command of each process from its number, from 1 on, for ever the same.
    Each process has a lifeline, a socket it shares with the supervisor: it writes one byte there
    when it has taken up its work, and reads the end of it when the supervisor is gone, so that
    none goes on unsupervised. The first process proves the command: the others wait for that
    byte, and if the command is wrong (exit code 2 or 3) all ends with its code.

    `confided` is a line that each process reads from its lifeline before anything else: what
    everybody on the machine could read if it were part of the command.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        processes: int,
        clock: Clock,
        confided: bytes = b"",
    ) -> None:
        self._command = command
        self._confided = confided
        self._count = processes
        self._clock = clock
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._is_proven = False
        self._may_go_on = asyncio.Event()
        self._stopping = asyncio.Event()
        self._quitting = asyncio.Event()
        self._code = 0

    def stop(self) -> None:
        """Let every process finish what it carries, and start none again."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._may_go_on.set()
            self._tell_all(signal.SIGTERM)

    def quit(self) -> None:
        """Let every process end now; those that do not are killed a few seconds later."""
        self.stop()
        if not self._quitting.is_set():
            self._quitting.set()
            self._tell_all(signal.SIGTERM)

    async def run(self) -> int:
        """Keep the processes running until stopped; returns the exit code for all."""
        executioner = asyncio.create_task(self._kill_the_last())
        try:
            async with asyncio.TaskGroup() as places:
                for number in range(1, self._count + 1):
                    places.create_task(self._keep(number))
        finally:
            executioner.cancel()
            await asyncio.gather(executioner, return_exceptions=True)
        return self._code

    async def _keep(self, number: int) -> None:
        """Keep one process running, whatever becomes of it."""
        if number > 1:
            await self._may_go_on.wait()
        delay = 0.0
        while not self._stopping.is_set():
            begun = self._clock.monotonic()
            code = await self._run_once(number)
            lived = self._clock.monotonic() - begun
            if self._stopping.is_set():
                self._take_note(number, code)
                return
            if code in _MISCONFIGURED and not self._is_proven:
                self._code = code
                self.stop()
                return
            if lived >= _HEALTHY_SECONDS:
                delay = 0.0
            delay = min(_LONGEST_DELAY_SECONDS, delay * 2 or _FIRST_DELAY_SECONDS)
            _log.warning(
                "Worker process %d %s after %.1f s; a new one starts in %.1f s.",
                number,
                _describe(code),
                lived,
                delay,
            )
            await wait_at_most(self._stopping, delay, self._clock)

    async def _run_once(self, number: int) -> int:
        """Run one process to its end; returns its exit code, negative for a signal."""
        ours, theirs = socket.socketpair()
        reader, lifeline = await asyncio.open_connection(sock=ours)
        listening: asyncio.Task[None] | None = None
        try:
            with theirs:
                process = await self._start(number, theirs)
            if process is None:
                return WEDGED
            _log.info("Worker process %d started (pid %d).", number, process.pid)
            self._processes[number] = process
            lifeline.write(self._confided)
            if self._stopping.is_set():
                self._tell(process, signal.SIGTERM)
            listening = asyncio.create_task(self._listen(reader))
            return await process.wait()
        finally:
            self._processes.pop(number, None)
            if listening is not None:
                listening.cancel()
            lifeline.close()

    async def _start(
        self, number: int, lifeline: socket.socket
    ) -> asyncio.subprocess.Process | None:
        descriptor = lifeline.fileno()
        try:
            return await asyncio.create_subprocess_exec(
                *self._command(number),
                LIFELINE,
                str(descriptor),
                pass_fds=[descriptor],
                # Ctrl-C reaches the whole foreground group; only the supervisor passes it on.
                process_group=0,
            )
        except OSError as error:
            _log.error("A worker process cannot be started: %s.", error)
            return None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            if await reader.read(1):
                self._is_proven = True
                self._may_go_on.set()

    async def _kill_the_last(self) -> None:
        await self._quitting.wait()
        await self._clock.sleep(_LAST_SECONDS)
        self._tell_all(signal.SIGKILL)

    def _take_note(self, number: int, code: int) -> None:
        _log.info("Worker process %d %s.", number, _describe(code))
        if code not in _ENDED_AS_ASKED and not self._code:
            self._code = code if code > 0 else WEDGED

    def _tell_all(self, word: signal.Signals) -> None:
        for process in self._processes.values():
            self._tell(process, word)

    def _tell(self, process: asyncio.subprocess.Process, word: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(word)


def _describe(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
