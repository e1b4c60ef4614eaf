"""Erasing on pages: which events are meant, what that would be about, and doing it."""

from __future__ import annotations

from typing import Any

import msgspec

from redrive.errors import UsageError
from redrive.model.erasure import ErasurePart, ErasureWaiting
from redrive.operations import ErasurePlan
from redrive.web.pages.page import Moved, Page, Visit

__all__ = ["erase", "plan_erasure", "show_erasure"]

_KINDS = ("event", "key", "tenant")
_STRETCHES = 20
"""How much of the log a page goes through; what has more is for the command line."""


class ErasureView(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, and what an erasure of that would be about, once it was looked at."""

    kind: str = "key"
    name: str = ""
    parts: tuple[ErasurePart, ...] = ()
    waiting: ErasureWaiting = ErasureWaiting.DELIVER
    plan: ErasurePlan | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        """Return it as keywords of the operations."""
        if not self.name:
            raise UsageError(f"Name the {self.kind} whose payloads are meant.")
        if self.kind == "event":
            return {"event_ids": (self.name,)}
        return {self.kind: self.name}

    @property
    def command(self) -> str:
        """The same in a terminal, but for what it is named."""
        return f"redrive erase --{self.kind} …"


async def show_erasure(visit: Visit) -> Page:
    """Ask which events are meant; the page of an event names it."""
    event = visit.asked("event")
    model = ErasureView() if event is None else ErasureView(kind="event", name=event)
    return Page(template="erase.html", title="Erase", model=model)


async def plan_erasure(visit: Visit) -> Page:
    """Show what an erasure would be about, and ask why."""
    model = _read(visit)
    plan = await visit.operations.plan_erase(
        **model.chosen, parts=model.parts, stretches=_STRETCHES
    )
    model = msgspec.structs.replace(model, plan=plan)
    return Page(template="erase.html", title="Erase", model=model)


async def erase(visit: Visit) -> Moved:
    """Erase what they said."""
    model = _read(visit)
    done = await visit.operations.erase(
        **model.chosen,
        by=visit.by,
        why=visit.why,
        parts=model.parts,
        waiting=model.waiting,
        stretches=_STRETCHES,
    )
    events = "1 event" if done.events == 1 else f"{done.events:,} events"
    said = f"What {events} said was erased."
    if done.left:
        said += f" Left, because somebody has still to get them: {done.left:,}."
    if done.to_drain:
        said += f" In the journal of this machine: {done.to_drain:,}. Drain it, and erase again."
    return Moved("/erase", said)


def _read(visit: Visit) -> ErasureView:
    kind = visit.form.get("kind", "")
    if kind not in _KINDS:
        raise UsageError(f"kind is {kind[:50]!r}; it is one of {', '.join(_KINDS)}.")
    waits = visit.form.get("waiting") == ErasureWaiting.FAIL
    return ErasureView(
        kind=kind,
        name=visit.name.strip(),
        parts=tuple(one for one in ErasurePart if visit.form.get(f"with_{one.name.lower()}")),
        waiting=ErasureWaiting.FAIL if waits else ErasureWaiting.DELIVER,
    )
