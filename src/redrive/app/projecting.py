"""Declaring projections: a function, or a class with a function for each type of event."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

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
from redrive.model.limits import Rate
from redrive.model.pattern import check_pattern
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import (
    check_partitions,
    check_tables,
    check_version,
    destination_of,
)
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
_MARK = "__redrive_on__"


class ProjectionOptions(TypedDict, total=False):
    """How a projection is called, begins, and goes on when an event fails."""

    name: str
    version: int
    tables: Sequence[str]
    partitions: int
    batch: bool
    on_failure: Literal["park", "halt", "skip"]
    unknown: Literal["ignore", "refuse"]
    begin: LogPosition | Literal["start", "now"]
    truncate: Callable[[ReadModel], Awaitable[None]]
    create: Callable[[ReadModel], Awaitable[None]]
    retry: Retry
    retry_overrides: Mapping[str, Retry]
    timeout: Duration
    terminal: tuple[type[BaseException], ...]
    transient: tuple[type[BaseException], ...]
    auto_replay: AutoReplay | None
    dead_letters: Keep | None


class Projection:
    """A read model with a function for each type of event; declare it with `@app.projection()`.

    An `async def truncate(self, model)` empties it when it is reset, and an `async def
    create(self, model)` creates its tables when one is missing.

    >>> class Orders(Projection):
    ...     @on("order.paid")
    ...     async def paid(self, event, model):
    ...         model.connection.execute("UPDATE orders SET is_paid = 1")
    """


class _Mark(NamedTuple):
    """What a function applies, whether it takes many at once, and what becomes of failures."""

    patterns: tuple[str, ...]
    takes_batch: bool
    on_failure: str | None


class _Part(NamedTuple):
    """A pattern, and the function that applies what fits it."""

    pattern: str
    function: Handler
    takes_batch: bool
    on_failure: str | None = None


def on(
    *patterns: str, batch: bool = False, on_failure: Literal["park", "skip"] | None = None
) -> Callable[[H], H]:
    """Have a function of a `Projection` apply the events whose type fits one of the patterns.

    Of several functions that fit an event, the first one applies it. With `batch` it gets a list:
    as many of its events as follow each other, in order. `on_failure` is for its events, whatever
    the projection does with others.
    """
    _check_batch(batch)
    if on_failure is not None and on_failure not in {"park", "skip"}:
        raise ConfigurationError(
            f"on_failure of a function is {on_failure!r}; it is 'park' or 'skip'. Only the whole "
            "projection can halt, with on_failure of @app.projection."
        )
    for pattern in patterns:
        check_pattern(pattern)
    if not patterns:
        raise ConfigurationError('Name what it applies, as in @on("order.paid").')

    def mark(function: H) -> H:
        setattr(function, _MARK, _Mark(patterns, batch, on_failure))
        return function

    return mark


class ProjectionPlan(msgspec.Struct, frozen=True):
    """A projection still to be connected to a store."""

    parts: tuple[_Part, ...]
    refuses: bool
    begin: LogPosition | None
    has_own_timeout: bool
    upcasts: Upcasts
    version: int
    tables: tuple[str, ...]
    partitions: int
    truncate: Callable[[ReadModel], Awaitable[None]] | None
    create: Callable[[ReadModel], Awaitable[None]] | None

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
                version=self.version,
                tables=self.tables,
                partitions=self.partitions,
                truncate=self.truncate,
                create=self.create,
                clock=ports.clock,
                long_seconds=store.capabilities.long_seconds,
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
                batch=1 if takes_batch else None,
                takes_connection=True,
                upcasts=self.upcasts,
            )
            for _, function, takes_batch, _ in self.parts
        }
        return [(one.pattern, made[one.function]) for one in self.parts]


def check_projection(patterns: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Say at once what is wrong with `@app.projection(...)`."""
    refuse_unknown(options, ProjectionOptions.__annotations__, what="projection option")
    for pattern in patterns:
        check_pattern(pattern)
    _check_batch(options.get("batch", False))
    check_version(options.get("version", 1))
    check_tables(options.get("tables", ()))
    check_partitions(options.get("partitions", 1))
    _chosen("on_failure", options.get("on_failure", "park"), tuple(_ORDERS))
    _chosen("unknown", options.get("unknown", "ignore"), ("ignore", "refuse"))
    begin = options.get("begin", "start")
    if not isinstance(begin, LogPosition):
        _chosen("begin", begin, ("start", "now"), also="a LogPosition")


def _check_batch(batch: object) -> None:
    if not isinstance(batch, bool):
        raise ConfigurationError(
            f"batch is {batch!r}; write batch=True for a list of events. How many come at once is "
            "chosen so that a transaction stays short."
        )


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
    takes_batch = given.pop("batch", False)
    version = given.pop("version", 1)
    tables = check_tables(given.pop("tables", ()))
    partitions = given.pop("partitions", 1)
    if isinstance(target, type) and issubclass(target, Projection):
        target = target()
    truncate = _hook(name, "truncate", given, target, does="empties")
    create = _hook(name, "create", given, target, does="creates")
    if create is not None and not tables:
        raise ConfigurationError(
            f"The projection {name} has a function that creates its tables, and names none; name "
            'them, as in @app.projection(tables=["orders"]), and ask for them with '
            'model.table("orders").'
        )
    given.setdefault("retry", Retry.preset("projection"))
    known, terms = read_options({**given, "order": order})
    plan = ProjectionPlan(
        parts=_parts(target, patterns, takes_batch=takes_batch),
        refuses=refuses,
        begin=None if begin == "now" else LOG_START if begin == "start" else begin,
        has_own_timeout="timeout" in options,
        upcasts=upcasts,
        version=version,
        tables=tables,
        partitions=partitions,
        truncate=truncate,
        create=create,
    )
    for one in plan.parts:
        check_transactional(one.function)
    plan.transports(ports, terms)
    passing = _passing(name, plan.parts, order)
    reads = ("*",) if refuses else tuple(dict.fromkeys(one.pattern for one in plan.parts))
    title = destination_of(name, version)
    destination = Destination(name=title, patterns=NOTHING, passing=passing, reads=reads, **known)
    return Declaration(destination, terms, plan)


def _hook(
    name: str, kind: str, options: dict[str, Any], target: object, *, does: str
) -> Callable[[ReadModel], Awaitable[None]] | None:
    """Take a function out of the options, or of the class, that makes or empties a read model."""
    own = getattr(target, kind, None) if isinstance(target, Projection) else None
    hook: Callable[[ReadModel], Awaitable[None]] | None = options.pop(kind, None) or own
    if hook is not None and not is_async(hook):
        raise ConfigurationError(
            f"The function that {does} the projection {name} must be async and take a ReadModel; "
            f"declare it with `async def {kind}(self, model)`."
        )
    return hook


def _passing(name: str, parts: Sequence[_Part], order: Order) -> tuple[tuple[str, bool], ...]:
    """Return of which types dead letters are passed by, if functions say so."""
    if all(one.on_failure is None for one in parts):
        return ()
    if order is Order.BLOCK and any(one.on_failure == "park" for one in parts):
        raise ConfigurationError(
            f"The projection {name} halts when an event fails, so that a function of it cannot "
            "park its own; leave on_failure='park' out, or let the projection park."
        )
    return tuple(
        (one.pattern, order is Order.SKIP if one.on_failure is None else one.on_failure == "skip")
        for one in parts
    )


def _name_of(target: object) -> str:
    return str(getattr(target, "__name__", type(target).__name__)).lower()


def _parts(target: object, patterns: tuple[str, ...], *, takes_batch: bool) -> tuple[_Part, ...]:
    if isinstance(target, Projection):
        kind = type(target)
        if takes_batch:
            raise ConfigurationError(
                f"The projection {kind.__name__} says at its functions which of them take many "
                'events, with @on("order.*", batch=True); leave batch of @app.projection out.'
            )
        if patterns:
            raise ConfigurationError(
                f"The projection {kind.__name__} names what it applies at its functions, with "
                '@on("order.paid"); leave the patterns of @app.projection out.'
            )
        parts = tuple(
            _Part(pattern, getattr(target, name), mark.takes_batch, mark.on_failure)
            for name, function in _members(kind)
            if (mark := getattr(function, _MARK, None)) is not None
            for pattern in mark.patterns
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
    return tuple(_Part(pattern, target, takes_batch) for pattern in patterns)


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
        self,
        projection: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
    ) -> int:
        """Have a projection begin anew, from the start of the log or behind a position.

        Its read model is emptied together with the first events that are applied to it. Returns
        how many deliveries of it were removed.
        """
        return await self._operations.reset_projection(
            projection, by=by, why=why, version=version, after=after
        )

    async def rebuild(
        self,
        projection: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
        rate: Rate | str | None = None,
        strict: bool = False,
    ) -> int:
        """Have a version made anew from the log, at most at a rate such as `"500/s"`.

        It goes on past events that fail; if it is `strict`, it waits at each of them. What people
        have made of events by editing them is used again. `list` tells how far it is.
        """
        return await self._operations.rebuild_projection(
            projection, by=by, why=why, version=version, after=after, rate=rate, strict=strict
        )

    async def cancel(
        self, projection: str, *, by: str, why: str = "", version: int | None = None
    ) -> None:
        """Have a version that is rebuilt beside the one that readers have apply nothing more."""
        await self._operations.cancel_rebuild(projection, by=by, why=why, version=version)

    async def swap(
        self,
        projection: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        parked: bool = False,
        timeout: Duration = "10s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> ProjectionFigures:
        """Give readers another version in one step, once it has caught up.

        Raises `UsageError` if that takes longer, if events of it have failed, unless `parked` says
        that it may be so, and if something that hangs on the readers' views would be lost.
        """
        return await self._operations.swap_projection(
            projection, by=by, why=why, version=version, parked=parked, timeout=timeout
        )

    async def drop(
        self, projection: str, *, by: str, why: str = "", version: int | None = None
    ) -> int:
        """Forget a version that readers no longer have, with its tables, or a whole projection.

        The tables of the last version stay. Returns how many deliveries of it were removed.
        """
        return await self._operations.drop_projection(projection, by=by, why=why, version=version)
