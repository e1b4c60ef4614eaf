"""Standard output: one line of JSON for each event, for whoever collects what a process prints."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import TypedDict, Unpack, get_args

import msgspec

from redrive.clock import Clock
from redrive.errors import refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.capture import capture
from redrive.policies.terms import Terms
from redrive.transport import Transport
from redrive.transports.envelope import Body, encode_line
from redrive.transports.options import read_choice, read_count

__all__ = ["StdoutBlueprint", "StdoutOptions", "StdoutTransport", "stdout"]

_SUCCEEDED = Succeeded()
_printing = threading.Lock()


class StdoutOptions(TypedDict, total=False):
    """What `stdout` takes; see there."""

    body: Body
    """What is printed: the payload alone, or the whole event."""
    batch: int
    """How many events are printed together at most."""


class StdoutBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """Standard output, from which each worker makes a transport of its own."""

    body: Body
    batch: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker."""
        return StdoutTransport(self)

    def __repr__(self) -> str:
        return "stdout(…)"


def stdout(**options: Unpack[StdoutOptions]) -> StdoutBlueprint:
    """Declare standard output as a destination: `app.destination(..., transport=stdout())`.

    - `body`: `"event"` prints an object with the event's id, type and time around the payload,
      `"payload"` the payload alone
    - `batch`: how many events are printed together, 100 by default
    """
    refuse_unknown(options, StdoutOptions.__annotations__, what="stdout option")
    return StdoutBlueprint(
        body=read_choice("body", options.get("body", "event"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
    )


class StdoutTransport:
    """Prints whole lines, in the order of what it is handed."""

    def __init__(self, plan: StdoutBlueprint) -> None:
        self.batch = plan.batch
        self._body = plan.body

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        lines = b"".join([encode_line(one.event, self._body) for one in deliveries])
        try:
            # On a thread: whoever reads the other end of a pipe may have stopped reading.
            await asyncio.to_thread(_print, lines)
        except (OSError, ValueError) as error:
            fault = capture(error, rule=f"stdout: {type(error).__name__}")
            faulted = Faulted(
                fault=msgspec.structs.replace(fault, stack=""), nature=Nature.TRANSIENT
            )
            return [faulted] * len(deliveries)
        return [_SUCCEEDED] * len(deliveries)


def _print(lines: bytes) -> None:
    with _printing:
        out = sys.stdout
        raw = getattr(out, "buffer", None)
        if raw is None:
            out.write(lines.decode())
        else:
            out.flush()
            raw.write(lines)
        out.flush()
