"""What the jobs of all libraries do: they track, and what goes wrong with that is told by files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from redrive import Redrive, Tracking, strict
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded

__all__ = ["BROKER", "app", "work"]

_FOLDER = Path(os.environ["JOBS_FOLDER"])
BROKER = os.environ["JOBS_BROKER"]


class _Notes:
    batch = 100

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        _write("arrived", *(bytes(one.event.payload).decode() for one in deliveries))
        return [Succeeded()] * len(deliveries)


class _Hung:
    batch = 100

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        _write("asked", "hung")
        await asyncio.Event().wait()
        return [Succeeded()] * len(deliveries)


app = Redrive(
    f"sqlite:///{_FOLDER}/shop.db",
    journal=_FOLDER / "journal",
    tracking=Tracking(rate=None, flush_limit="3s"),
)
app.destination("notes", "mail.*", transport=_Notes())
if os.environ.get("JOBS_SINK") == "hung":
    app.destination("hung", "mail.*", transport=_Hung())


def work(kind: str) -> str:
    """Do a job: `good` tracks, `broken` cannot, `strict` cannot and wants to know.

    `off` does not track.
    """
    _write("begun", kind)
    match kind:
        case "off":
            pass
        case "broken":
            app.track("mail.sent", {"who": object()})
        case "strict":
            with strict():
                app.track("mail.sent", {"who": object()})
        case _:
            app.track("mail.sent", kind)
    _write("done", kind)
    return kind


def _write(name: str, *lines: str) -> None:
    with (_FOLDER / name).open("a") as file:
        file.write("".join(f"{one}\n" for one in lines))
