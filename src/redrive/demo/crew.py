"""The crew: worker processes that can be killed, and that end with the demo whatever happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from redrive.errors import RedriveError

__all__ = ["Crew"]

_CHILD = "redrive.demo.child"
_PATIENCE_SECONDS = 30.0
_FAREWELL_SECONDS = 5.0


class Crew:
    """Workers by their id, each a process; `async with` dismisses them at the end."""

    def __init__(
        self,
        plan: msgspec.Struct,
        folder: Path,
        *,
        child: str = _CHILD,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self._child = child
        self._environment = environment
        self._folder = folder
        self._complaints = folder / "workers.log"
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def hire(self, plan: msgspec.Struct | None = None) -> str:
        """Start a worker, with another plan if need be; returns its id when it has begun."""
        with self._complaints.open("ab") as complaints:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._child),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                cwd=self._folder,
                env=self._environment,
                # Ctrl-C reaches the whole foreground group; the demo lets its workers go itself.
                process_group=0,
            )
        # Known before it speaks, so that it is dismissed whatever comes in between.
        newcomer = f"process {process.pid}"
        self._processes[newcomer] = process
        if process.stdin is not None:
            # Not as an argument: everybody on the machine can read those, and a URL has a password.
            process.stdin.write(msgspec.json.encode(plan or self._plan) + b"\n")
        worker = await self._hear_name(process)
        self._processes[worker] = self._processes.pop(newcomer)
        return worker

    async def kill(self, worker: str) -> None:
        """End a worker as `kill -9` does: it gets no chance to clean up."""
        process = self._processes.pop(worker)
        process.kill()
        await process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes.values():
            try:
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _hear_name(self, process: asyncio.subprocess.Process) -> str:
        said = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                said = b"" if process.stdout is None else await process.stdout.readline()
        if not said.strip():
            found = self._complaints.read_text("utf-8", "replace").strip().splitlines()
            why = found[-1] if found else "it said nothing"
            raise RedriveError(f"A worker of the demo could not be started: {why}")
        return said.decode().strip()
