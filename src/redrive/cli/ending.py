"""How a worker process comes to its end: by signals, by the lifeline, at last by force."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

from redrive.executor import WEDGED, end_process

__all__ = ["SIGNALS", "Ending"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_QUIT_SECONDS = 2.0
_KILL_SECONDS = 8.0
_WATCH_SECONDS = 1.0
_NOBODY = -1


class Ending:
    """Hears the signals of a process, whatever its main thread does.

    Python runs a signal's handler in the main thread, and only between two of its steps: a thread
    that sits in a C function which waits on after a signal never gets there. But the byte that
    `signal.set_wakeup_fd` asks for is written at once, by the system's own call of the handler; a
    thread reads these bytes and counts.

    That thread needs the interpreter, which a C function may hold for ever. So from the first
    signal on an alarm of the kernel runs, which the thread keeps putting off: without a handler for
    it, it ends the process.

    A block that ends without an error is the end of the process. It takes its time to be gone, and
    no signal changes the code it ends with any more: one only hastens it.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._words: list[Callable[[], None]] = []
        self._announce: Callable[[], None] = lambda: None
        self._grace = 0.0
        self._received = 0
        self._code: int | None = None
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._is_over = threading.Event()
        self._before: dict[int, Any] = {}
        self._ear, self._mouth = socket.socketpair()
        self._passes_on_to = _NOBODY

    def __enter__(self) -> Self:
        self._mouth.setblocking(False)  # noqa: FBT003 - as `set_wakeup_fd` wants it
        self._before = {number: signal.signal(number, self._take_back) for number in SIGNALS}
        signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="redrive-signals", daemon=True).start()
        _endings.add(self)
        atexit.register(self._turn_deaf)  # so early that it comes after all that the app registers
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if error is None:
            with self._lock:
                self._received, self._grace = 0, 0.0
            signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
            return
        self._is_over.set()
        self._restore()
        _endings.discard(self)
        self._mouth.close()

    @contextmanager
    def received_first(self) -> Iterator[None]:
        """Hear signals before the running event loop does while the block lasts; then it does."""
        mouth = self._mouth.fileno()
        self._passes_on_to = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        if self._passes_on_to == mouth:  # this kind of loop does not listen
            self._passes_on_to = _NOBODY
        try:
            yield
        finally:
            self._passes_on_to = _NOBODY

    def announce(self, announce: Callable[[], None]) -> None:
        """Name what a signal means at once, even while a handler blocks the event loop."""
        with self._lock:
            self._announce = announce
            if self._received:
                announce()

    def expect(self, *, stop: Callable[[], None], end: Callable[[], None], grace: float) -> None:
        """Name what the first and the second signal mean, and do what was heard before.

        `grace` is how many seconds handlers may take after the first.
        """
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._words = [stop, end]
            self._grace = grace
            for word in self._words[: self._received]:
                word()

    def come_with(self, lifeline: socket.socket) -> None:
        """Wait for the end of the lifeline, then stop: nobody supervises this process any more."""
        with suppress(OSError):
            lifeline.recv(1)
        self._announce()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._words[0])

    @property
    def is_signalled(self) -> bool:
        """Whether a signal has come."""
        return self._received > 0

    def conclude(self, code: int, *, within: float) -> None:
        """Name the code that the process ends with; by force unless all is closed within a time."""
        self._code = code
        self._force_after(within, code=code, unless=self._is_closed)

    def _force_after(self, seconds: float, *, code: int, unless: threading.Event) -> None:
        """End the process by force, with the code that was concluded or else with this one."""

        def watch() -> None:
            if not unless.wait(seconds):
                end_process(code if self._code is None else self._code)

        threading.Thread(target=watch, name="redrive-ending", daemon=True).start()

    def _take_back(self, number: int, _frame: FrameType | None) -> None:
        """Hear, as Python does, what was not heard at once: somebody else has set a wake-up."""
        mouth = self._mouth.fileno()
        other = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        if other != mouth:
            self._passes_on_to = other
            with suppress(OSError):
                self._mouth.send(bytes([number]))

    def _listen(self) -> None:
        """Count signals until it is over, and put off the alarm while the first one is heeded."""
        while not self._is_over.is_set():
            self._ear.settimeout(_WATCH_SECONDS if self._received == 1 else None)
            byte = b""
            try:
                byte = self._ear.recv(1)
                if not byte:
                    break
            except TimeoutError:
                self._put_off_alarm()
            if byte and self._passes_on_to != _NOBODY:
                with suppress(OSError):
                    os.write(self._passes_on_to, byte)
            if byte and byte[0] in SIGNALS:
                self._hear()
        self._ear.close()

    def _hear(self) -> None:
        with self._lock:
            self._received += 1
            self._put_off_alarm()
            self._announce()
            if self._is_closed.is_set():
                self._force_after(_QUIT_SECONDS, code=0, unless=self._is_over)
                return
            if not self._words:  # nothing was claimed yet
                self._force_after(_QUIT_SECONDS, code=0, unless=self._is_closed)
            elif self._received > 1:
                self._force_after(_QUIT_SECONDS, code=WEDGED, unless=self._is_closed)
            if self._loop is not None and self._received <= len(self._words):
                with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                    self._loop.call_soon_threadsafe(self._words[self._received - 1])

    def _put_off_alarm(self) -> None:
        """Let the kernel end a process whose interpreter stands still for longer than it may."""
        if not self._is_over.is_set() and self._received <= 2:  # noqa: PLR2004 - the last that counts
            grace = self._grace if self._received == 1 else 0.0
            signal.setitimer(signal.ITIMER_REAL, grace + _KILL_SECONDS)

    def forget_parent(self) -> None:
        """After a fork: a signal for the child must not count for its parent, and may end it."""
        self._restore()

    def _restore(self) -> None:
        atexit.unregister(self._turn_deaf)
        signal.set_wakeup_fd(_NOBODY)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _turn_deaf(self) -> None:
        """Leave only the alarm: Python is about to give up its handlers, but ignores on."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(_NOBODY)
        signal.setitimer(signal.ITIMER_REAL, _KILL_SECONDS)


_endings: weakref.WeakSet[Ending] = weakref.WeakSet()


def _forget_parents() -> None:
    for one in list(_endings):
        one.forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
