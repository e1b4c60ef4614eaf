"""Declaring projections: a function, or a class with a function for each type of event."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from redrive.app.declaration import (
    Declaration,
    Ports,
    blocking_terms,
    read_options,
)
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.destination import NOTHING, Destination, Order
from redrive.model.duration import Duration
from redrive.model.event import Receipt
from redrive.model.pattern import check_pattern
from redrive.model.position import LOG_START, LogPosition
from redrive.model.replay import AutoReplay
from redrive.model.retention import Keep
from redrive.operations import Operations
from redrive.policies.retry import Retry
from redrive.policies.terms import Terms
from redrive.policies.upcasting import Upcasts
from redrive.store import ProjectionFigures, Store
from redrive.transport import Endpoint
from redrive.transports.function import FunctionTransport, Handler, is_async
from redrive.transports.projection import ProjectionTransport, ReadModel
from redrive.transports.transactional import check_transactional

__all__ = [
    "Projection",
    "ProjectionOptions",
    "Projections",
    "check_projection",
    "declare_projection",
    "on",
]

H = TypeVar("H", bound=Callable[..., Any])
_ORDERS = {"park": Order.PARK, "halt": Order.BLOCK, "skip": Order.SKIP}
_PATTERNS = "__redrive_patterns__"


class ProjectionOptions(TypedDict, total=False):
    """How a projection is called, begins, and goes on when an event fails."""

    name: str
    on_failure: Literal["park", "halt", "skip"]
    unknown: Literal["ignore", "refuse"]
    begin: LogPosition | Literal["start", "now"]
    truncate: Callable[[ReadModel], Awaitable[None]]
    retry: Retry
    retry_overrides: Mapping[str, Retry]
    timeout: Duration
    terminal: tuple[type[BaseException], ...]
    transient: tuple[type[BaseException], ...]
    auto_replay: AutoReplay | None
    dead_letters: Keep | None


class Projection:
    """A read model with a function for each type of event; declare it with `@app.projection()`.

    An `async def truncate(self, model)` empties it when it is reset.

    >>> class Orders(Projection):
    ...     @on("order.paid")
    ...     async def paid(self, event, model):
    ...         model.connection.execute("UPDATE orders SET is_paid = 1")
    """


def on(*patterns: str) -> Callable[[H], H]:
    """Have a function of a `Projection` apply the events whose type fits one of the patterns.

    Of several functions that fit an event, the first one applies it.
    """
    for pattern in patterns:
        check_pattern(pattern)
    if not patterns:
        raise ConfigurationError('Name what it applies, as in @on("order.paid").')

    def mark(function: H) -> H:
        setattr(function, _PATTERNS, patterns)
        return function

    return mark


class ProjectionPlan(msgspec.Struct, frozen=True):
    """A projection still to be connected to a store."""

    parts: tuple[tuple[str, Handler], ...]
    refuses: bool
    begin: LogPosition | None
    has_own_timeout: bool
    upcasts: Upcasts
    truncate: Callable[[ReadModel], Awaitable[None]] | None

    def endpoint(
        self, declared: Declaration, ports: Ports, store: Store, *, lease: timedelta
    ) -> Endpoint:
        """Return the projection as a worker has it."""
        terms = blocking_terms(
            f"The projection {declared.destination.name!r}",
            declared.terms,
            store.capabilities,
            lease=lease,
            has_own_timeout=self.has_own_timeout,
        )
        is_transactional = bool(store.capabilities.effects_at_once)
        return Endpoint(
            destination=declared.destination,
            terms=terms,
            transport=ProjectionTransport(
                self.transports(ports, terms),
                terms=terms,
                effects=store if is_transactional else None,
                refuses=self.refuses,
                begin=self.begin,
                truncate=self.truncate,
            ),
            is_transactional=is_transactional,
        )

    def transports(self, ports: Ports, terms: Terms) -> list[tuple[str, FunctionTransport]]:
        """Return what calls each function; one that cannot be called is refused."""
        made = {
            function: FunctionTransport(
                function,
                terms=terms,
                executor=ports.executor,
                takes_connection=True,
                upcasts=self.upcasts,
            )
            for _, function in self.parts
        }
        return [(pattern, made[function]) for pattern, function in self.parts]


def check_projection(patterns: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Say at once what is wrong with `@app.projection(...)`."""
    refuse_unknown(options, ProjectionOptions.__annotations__, what="projection option")
    for pattern in patterns:
        check_pattern(pattern)
    _chosen("on_failure", options.get("on_failure", "park"), tuple(_ORDERS))
    _chosen("unknown", options.get("unknown", "ignore"), ("ignore", "refuse"))
    begin = options.get("begin", "start")
    if not isinstance(begin, LogPosition):
        _chosen("begin", begin, ("start", "now"), also="a LogPosition")


def _chosen(name: str, value: object, choices: tuple[str, ...], *, also: str = "") -> None:
    if value not in choices:
        listed = ", ".join([*map(repr, choices), *([also] if also else [])])
        raise ConfigurationError(f"{name} is {value!r}; it is one of {listed}.")


def declare_projection(
    target: object,
    patterns: tuple[str, ...],
    options: Mapping[str, Any],
    ports: Ports,
    upcasts: Upcasts,
) -> Declaration:
    """Return the declaration of a function or class as a projection."""
    given = dict(options)
    name = given.pop("name", None) or _name_of(target)
    order = _ORDERS[given.pop("on_failure", "park")]
    refuses = given.pop("unknown", "ignore") == "refuse"
    begin = given.pop("begin", "start")
    truncate = given.pop("truncate", None)
    if isinstance(target, type) and issubclass(target, Projection):
        target = target()
        truncate = truncate or getattr(target, "truncate", None)
    if truncate is not None and not is_async(truncate):
        raise ConfigurationError(
            f"The function that empties the projection {name} must be async and take a ReadModel; "
            "declare it with `async def truncate(self, model)`."
        )
    given.setdefault("retry", Retry.preset("projection"))
    known, terms = read_options({**given, "order": order})
    plan = ProjectionPlan(
        parts=_parts(target, patterns),
        refuses=refuses,
        begin=None if begin == "now" else LOG_START if begin == "start" else begin,
        has_own_timeout="timeout" in options,
        upcasts=upcasts,
        truncate=truncate,
    )
    for _, function in plan.parts:
        check_transactional(function)
    plan.transports(ports, terms)
    return Declaration(Destination(name=name, patterns=NOTHING, **known), terms, plan)


def _name_of(target: object) -> str:
    return str(getattr(target, "__name__", type(target).__name__)).lower()


def _parts(target: object, patterns: tuple[str, ...]) -> tuple[tuple[str, Handler], ...]:
    if isinstance(target, Projection):
        kind = type(target)
        if patterns:
            raise ConfigurationError(
                f"The projection {kind.__name__} names what it applies at its functions, with "
                '@on("order.paid"); leave the patterns of @app.projection out.'
            )
        parts = tuple(
            (pattern, getattr(target, name))
            for name, function in _members(kind)
            for pattern in getattr(function, _PATTERNS, ())
        )
        if parts:
            return parts
        raise ConfigurationError(
            f"The projection {kind.__name__} has no function for any event; mark one with "
            '@on("order.paid").'
        )
    if not callable(target) or isinstance(target, type):
        raise ConfigurationError(
            f"{target!r} is neither a function nor a class of Projection, so it can't be one."
        )
    if not patterns:
        raise ConfigurationError(
            f"The projection {_name_of(target)} names no events; write what it applies, as in "
            '@app.projection("order.*").'
        )
    return tuple((pattern, target) for pattern in patterns)


def _members(target: type) -> list[tuple[str, object]]:
    """Return the functions of a class, the ones it has from others first, as they are written."""
    found: dict[str, object] = {}
    for one in reversed(inspect.getmro(target)):
        found |= {name: member for name, member in vars(one).items() if callable(member)}
    return list(found.items())


class Projections:
    """The projections of a store: how far they are, and waiting for one."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def list(self) -> Sequence[ProjectionFigures]:
        """Return how far each projection is, and what is parked of it."""
        return await self._operations.projections()

    async def reached(
        self,
        receipt: Receipt,
        projection: str,
        *,
        timeout: Duration = "30s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> None:
        """Wait until a projection has applied what was published, to read what one has written.

        Raises `ResultTimeoutError` if that takes longer; it goes on all the same.
        """
        await self._operations.reached(receipt.event_id, projection, timeout=timeout)

    async def reset(
        self, projection: str, *, by: str, why: str = "", after: LogPosition | str | None = None
    ) -> int:
        """Have a projection begin anew, from the start of the log or behind a position.

        Its read model is emptied together with the first events that are applied to it. Returns
        how many deliveries of it were removed.
        """
        return await self._operations.reset_projection(projection, by=by, why=why, after=after)
