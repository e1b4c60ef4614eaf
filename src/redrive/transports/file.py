"""Files: one line of JSON for each event, on the disk before it counts as delivered."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.capture import bounded_message, capture
from redrive.policies.terms import Terms
from redrive.transport import Transport
from redrive.transports.envelope import Body, encode_line
from redrive.transports.options import read_choice, read_count

__all__ = ["FileBlueprint", "FileOptions", "FileTransport", "file"]

_SUCCEEDED = Succeeded()
_MODE = 0o600
_CLEAN = b"\n"


class FileOptions(TypedDict, total=False):
    """What `file` takes beside the path; see there."""

    body: Body
    """What is written: the payload alone, or the whole event."""
    batch: int
    """How many events are written and flushed together at most."""
    rotate_bytes: int | None
    """At which size a new file is begun."""
    keep: int | None
    """How many old files are kept; all of them if none is said."""
    fsync: bool
    """Whether what was written is on the disk before it counts."""


class FileBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file, from which each worker makes a transport of its own."""

    path: str
    body: Body
    batch: int
    rotate_bytes: int | None
    keep: int | None
    fsync: bool

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker; it opens the file when it first writes."""
        return FileTransport(self, clock=clock)

    def __repr__(self) -> str:
        return f"file({self.path!r}, …)"


def file(path: str, **options: Unpack[FileOptions]) -> FileBlueprint:
    """Declare a file that events are appended to, for `app.destination(..., transport=file(...))`.

    - `body`: `"event"` writes an object with the event's id, type and time around the payload,
      `"payload"` the payload alone
    - `batch`: how many events are written and flushed together, 100 by default
    - `rotate_bytes`: begin a new file before one grows beyond this; the old one gets the time in
      its name. `keep`: how many old ones stay; all, by default
    - `fsync`: `False` leaves it to the system when to write; a crash of the machine may then lose
      what counts as delivered

    >>> file("events.jsonl", rotate_bytes=100_000_000)
    file('events.jsonl', …)
    """
    refuse_unknown(options, FileOptions.__annotations__, what="file option")
    if not isinstance(path, str | Path) or not str(path) or "\x00" in str(path):
        raise ConfigurationError(
            f'The path of a file is {path!r}; write one such as "/var/log/shop/events.jsonl".'
        )
    rotate, keep = options.get("rotate_bytes"), options.get("keep")
    if keep is not None and rotate is None:
        raise ConfigurationError(
            f"keep is {keep!r}, but the file is never rotated; say at which size with rotate_bytes."
        )
    fsync = options.get("fsync", True)
    if not isinstance(fsync, bool):
        raise ConfigurationError(f"fsync is {fsync!r}; it is True or False.")
    return FileBlueprint(
        path=str(path),
        body=read_choice("body", options.get("body", "event"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
        rotate_bytes=None if rotate is None else read_count("rotate_bytes", rotate),
        keep=None if keep is None else read_count("keep", keep, least=0),
        fsync=fsync,
    )


class FileTransport:
    """Appends whole lines or nothing; several workers, also in other processes, may share a file.

    What a crash has left of a line is ended before the next one, and never removed.
    """

    def __init__(self, plan: FileBlueprint, *, clock: Clock) -> None:
        self.batch = plan.batch
        self._plan = plan
        self._clock = clock
        self._path = Path(plan.path)
        self._writing = threading.Lock()
        self._file: int | None = None

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        lines = b"".join([encode_line(one.event, self._plan.body) for one in deliveries])
        now = self._clock.now()
        try:
            await asyncio.to_thread(self._append, lines, now)
        except OSError as error:
            return [_failed(self._path, error)] * len(deliveries)
        return [_SUCCEEDED] * len(deliveries)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def check_health(self, health: Any) -> str:  # noqa: ANN401, ARG002 - a file has no URL
        try:
            await asyncio.to_thread(self._append, b"", self._clock.now())
        except OSError as error:
            return _failed(self._path, error).fault.message
        return ""

    def _append(self, lines: bytes, now: datetime) -> None:
        with self._writing:
            opened = self._hold()
            try:
                if self._is_full(opened, len(lines)):
                    self._rotate(now)
                    fcntl.flock(opened, fcntl.LOCK_UN)
                    opened = self._hold()
                self._write(opened, lines)
            except OSError:
                self._close_held()
                raise
            fcntl.flock(opened, fcntl.LOCK_UN)

    def _write(self, opened: int, lines: bytes) -> None:
        begin = os.fstat(opened).st_size
        if lines and begin and os.pread(opened, 1, begin - 1) != _CLEAN:
            lines = _CLEAN + lines
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(opened, rest) :]
            if self._plan.fsync:
                os.fsync(opened)
        except OSError:
            # Half of it must not stay: it is written again, whole.
            with suppress(OSError):
                os.ftruncate(opened, begin)
            raise

    def _hold(self) -> int:
        """Return the file, held against others, once it is the one that has the name."""
        while True:
            if self._file is None:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, _MODE)
                self._flush_folder()
            opened = self._file
            fcntl.flock(opened, fcntl.LOCK_EX)
            if self._has_the_name(opened):
                return opened
            self._close_held()

    def _has_the_name(self, opened: int) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(opened))

    def _is_full(self, opened: int, more: int) -> bool:
        size, most = os.fstat(opened).st_size, self._plan.rotate_bytes
        return most is not None and size > 0 and size + more > most

    def _rotate(self, now: datetime) -> None:
        stamp = now.strftime("%Y%m%dT%H%M%S.%fZ")
        old, number = self._path.with_name(f"{self._path.name}.{stamp}"), 1
        while old.exists():
            number += 1
            old = self._path.with_name(f"{self._path.name}.{stamp}-{number}")
        self._path.rename(old)
        if self._plan.keep is not None:
            olds = sorted(self._path.parent.glob(f"{self._path.name}.[0-9]*Z*"))
            for one in olds[: max(len(olds) - self._plan.keep, 0)]:
                one.unlink(missing_ok=True)

    def _flush_folder(self) -> None:
        """A file that is new, or has a new name, is safe when its folder is."""
        if not self._plan.fsync:
            return
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _close(self) -> None:
        with self._writing:
            self._close_held()

    def _close_held(self) -> None:
        opened, self._file = self._file, None
        if opened is not None:
            os.close(opened)


def _failed(path: Path, error: OSError) -> Faulted:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    fault = msgspec.structs.replace(
        capture(error, rule=f"file: {name}"),
        message=bounded_message(
            f"{path.name} cannot be written: {error.strerror or type(error).__name__}."
        ),
        stack="",
    )
    return Faulted(fault=fault, nature=Nature.TRANSIENT)
