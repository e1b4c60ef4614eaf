"""The transport contract: one method that carries deliveries to a destination."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, runtime_checkable

import msgspec

from redrive.clock import Clock
from redrive.model.delivery import DeliveryId, Leased
from redrive.model.destination import Destination
from redrive.model.health import HealthCheck
from redrive.model.outcome import (
    Addressees,
    Exchange,
    Faulted,
    Interrupted,
    Outcome,
    Succeeded,
)
from redrive.model.position import LogPosition
from redrive.policies.terms import Terms

__all__ = [
    "Addressed",
    "Answer",
    "Asked",
    "Asking",
    "Blueprint",
    "Calls",
    "Checkable",
    "Closing",
    "Endpoint",
    "Projects",
    "Recall",
    "Recalling",
    "Shape",
    "Shaping",
    "Transport",
    "Way",
    "checked_outcomes",
]


class Transport(Protocol):
    """The way to one destination."""

    batch: int
    """How many deliveries `send` takes at once, at most."""

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        """Try each delivery once and return one outcome each, in the same order.

        A failure of the destination is an outcome. What is raised instead is one for all of them,
        by the rules for what a handler raises. Cancelling it is how a time-out ends the try.
        """


@runtime_checkable
class Closing(Protocol):
    """A transport that holds something open between two sends."""

    async def close(self) -> None:
        """Let go of connections; called when a worker ends. A later `send` opens new ones."""


Recall = Callable[[DeliveryId], Awaitable[Addressees | None]]
"""Tells who of several has answered for good in earlier tries of a delivery."""


@runtime_checkable
class Recalling(Protocol):
    """A transport whose deliveries have several addressees, each with an answer of its own."""

    def recall_by(self, recall: Recall) -> None:
        """Take what asks the store; called before the first `send`."""


class Calls(Protocol):
    """Calls of the functions of a projection, one after the other."""

    def apply(self, deliveries: Sequence[Leased]) -> Awaitable[Outcome]:
        """Apply events that go together."""


@runtime_checkable
class Projects(Protocol):
    """A transport to a projection, which also gets events straight from the log."""

    types: tuple[str, ...]
    """Patterns of the events that it gets; none for all of them."""
    begin: LogPosition | None
    """Where in the log it begins when it is new; `None` is at the end."""
    truncate: Callable[[object], Awaitable[None]] | None
    """Empties the read model, on a connection in an open transaction."""
    version: int
    """Which version of the read model it writes."""
    tables: tuple[str, ...]
    """The tables of the read model, by the names that readers use."""
    partitions: int
    """How many readers may apply events side by side, each those of its own keys."""
    create: Callable[[object], Awaitable[None]] | None
    """Creates the tables, on a connection in an open transaction."""

    def together(self, deliveries: Sequence[Leased]) -> Sequence[Sequence[Leased]]:
        """Divide events, in their order, into what is applied at once."""

    def calls(self, connection: object) -> AbstractContextManager[Calls]:
        """Return a block in which a task applies events, on a connection in an open transaction."""

    def fault(self, error: BaseException) -> Faulted:
        """Return what it means that the database has refused what was written for an event."""


@runtime_checkable
class Checkable(Protocol):
    """A transport that can ask its destination for its health without delivering anything."""

    async def check_health(self, health: HealthCheck) -> str:
        """Ask the URL or path that the check names; return what is wrong, nothing if it is well.

        Cancelling it is how a time-out ends it.
        """


@runtime_checkable
class Addressed(Protocol):
    """A blueprint whose transports are `Checkable` by a URL, or a path at their own."""

    def health_url(self, target: str) -> str:
        """Return the URL that a health check asks, or say what is wrong with it."""


@runtime_checkable
class Blueprint(Protocol):
    """A transport still to be made: what `http(...)` returns."""

    def build(self, *, terms: Terms, clock: Clock) -> Transport:
        """Return a transport for one worker, which has it to itself."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent for one delivery, where a rule says so; the rest is as the service has it.

    `path` is what follows the address of the service.
    """

    body: bytes | None = None
    content_type: str = ""
    method: str = ""
    path: str = ""
    headers: Mapping[str, str] = {}


class Shaping(Protocol):
    """Gives deliveries the shape that their rule asks for."""

    async def shape(self, leased: Leased) -> Shape | Faulted | Succeeded:
        """Return the shape of a delivery, by the version of the rule that is pinned to it.

        What cannot be rendered is a terminal fault of that delivery; what its rule turns out not
        to be about is done, and nothing is sent.
        """


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a destination answered, as far as it was read; `is_cut` says that there was more."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_cut: bool = False

    @property
    def location(self) -> str:
        """Where a redirect leads."""
        return next((value for name, value in self.headers if name.lower() == "location"), "")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request: its outcome, the answer if there was one, and the two to be shown."""

    outcome: Outcome
    answer: Answer | None = None
    exchange: Exchange | None = None


@runtime_checkable
class Asking(Protocol):
    """A transport whose destination answers, so that somebody can ask it."""

    takes_shapes: bool
    """Whether a request may have another method, path and headers than its destination says."""

    async def ask(self, delivery: Leased, shape: Shape) -> Asked:
        """Try once, as `send` does, and return what was answered, a success too.

        Where a rule is pinned to the delivery, the shape is the rule's.
        """


Way = Transport | Blueprint
"""The way to one destination, ready or still to be made."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A destination in a worker: what it wants, on which terms, and the way to it."""

    destination: Destination
    terms: Terms
    transport: Transport
    is_transactional: bool = False
    """Whether its transport has the store commit what it does, together with the settlement."""
    is_threaded: bool = False
    """Whether each `send` of its transport occupies a thread."""

    @property
    def scarce(self) -> Literal["effects", "threads"] | None:
        """What each load of it needs one of, and a worker has only a few of."""
        if self.is_transactional:
            return "effects"
        return "threads" if self.is_threaded else None


def checked_outcomes(outcomes: object, count: int) -> Sequence[Outcome]:
    """Return what a transport answered if it is one sound outcome each, or say what it is."""
    if not isinstance(outcomes, Sequence) or len(outcomes) != count:
        what = f"{len(outcomes)} of them" if isinstance(outcomes, Sequence) else repr(outcomes)
        raise TypeError(f"send answered {what}; it must return one outcome for each of {count}.")
    for one in outcomes:
        if type(one) is Succeeded and one.exchange is None:
            continue
        if not isinstance(one, Outcome):
            raise TypeError(
                f"send answered {one!r} for a delivery; it must return an outcome, such as "
                "Succeeded() or Faulted(...)."
            )
        if isinstance(one, Faulted | Interrupted | Succeeded):
            # What a store cannot write would be found out too late, and for all that is settled.
            msgspec.json.decode(msgspec.json.encode(one), type=type(one))
    return outcomes
