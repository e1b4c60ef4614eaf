"""Declarations: what an app is told about its destinations, before any of it is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, Literal, Protocol, TypedDict, cast, runtime_checkable

import msgspec

from redrive.clock import (
    Clock,
    Entropy,
    Ids,
    Rng,
    SystemClock,
    SystemEntropy,
    SystemIds,
    SystemRng,
)
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.executor import Executor, ThreadExecutor, end_process
from redrive.model.delivery import DeliveryId
from redrive.model.destination import Destination, Order
from redrive.model.duration import Duration, spell_duration
from redrive.model.event import Event
from redrive.model.fairness import Fairness
from redrive.model.health import HealthCheck
from redrive.model.limits import (
    Breaker,
    Limits,
    OverRetryRate,
    Rate,
    SharedRate,
    read_rate,
    spell_rate,
)
from redrive.model.outcome import Addressees
from redrive.model.pattern import check_pattern
from redrive.model.replay import AutoReplay
from redrive.model.request_log import RequestLog
from redrive.model.retention import Keep
from redrive.policies.profiles import read_profile
from redrive.policies.retry import Retry
from redrive.policies.terms import Terms
from redrive.policies.upcasting import NO_UPCASTS, Upcasts
from redrive.store import Capabilities, Store
from redrive.transport import Addressed, Blueprint, Endpoint, Recalling, Transport, Way
from redrive.transports.function import FunctionTransport, Handler
from redrive.transports.transactional import TransactionalTransport, check_transactional

__all__ = [
    "Declaration",
    "DestinationOptions",
    "EffectHandler",
    "HandlerOptions",
    "NamedOptions",
    "Ports",
    "blocking_terms",
    "check_handler_options",
    "check_health",
    "declare_destination",
    "declare_handler",
    "have_recall",
    "in_environment",
    "read_options",
]


_RETRY_RATE = "100/s"
_REPLAY_RATE = "100/s"
_BLOCKING_SHARE = 3
"""Heartbeats must get through in time, so nobody blocks them for more than this part of a lease."""
_LONGEST_BLOCKING = timedelta(seconds=20)
"""Others wait for the write lock for 30 s, and then give up."""


class LimitOptions(TypedDict, total=False):
    """The limits of a destination in one environment, in the place of those it has elsewhere."""

    concurrency: int | None
    breaker: Breaker | None
    rate: Rate | str | None
    retry_rate: Rate | str | None
    over_retry_rate: OverRetryRate
    replay_rate: Rate | str | None
    retry_budget: float | None
    shared_rate: SharedRate | None
    disable_after: Duration | None


class DestinationOptions(TypedDict, total=False):
    """The terms of a destination, its limits, and how tenants share it.

    See `policies.terms.Terms`, `model.limits` and `model.fairness`.
    """

    profile: Literal["high_traffic", "development", "critical"]
    """A breaker, retries and a time-out that belong together, by name."""
    retry: Retry
    """How often and how long to try, such as `Retry(max_attempts=5, base="1s")`."""
    retry_overrides: Mapping[str, Retry]
    """Patterns of event types, each with a `Retry` of its own."""
    timeout: Duration
    """How long one attempt may take."""
    concurrency: int | None
    """How many of its deliveries run at once, over all workers."""
    terminal: tuple[type[BaseException], ...]
    """Exceptions that will not heal: a delivery that raises one fails at once."""
    transient: tuple[type[BaseException], ...]
    """Exceptions that may heal: a delivery that raises one is retried."""
    snooze_limit: int
    """How often one delivery may be snoozed."""
    snooze_age: Duration
    """Until which age a delivery may be snoozed."""
    tenant: str | None
    """The tenant it belongs to, by name or by a glob such as `gold-*`; everybody's if none."""
    order: Order | Literal["none", "park", "block", "skip"]
    """`park`, `block` or `skip` keeps the order of each key, and says what a failure stops."""
    breaker: Breaker | None
    """When to hold back because it is down."""
    health: HealthCheck | None
    """How to ask whether it is back while its breaker is open."""
    rate: Rate | str | None
    """How many first attempts in which time, such as `"100/s"`."""
    retry_rate: Rate | str | None
    """How many retries in which time."""
    over_retry_rate: OverRetryRate
    """Whether retries above their rate wait, or with `dead_letter` fail."""
    replay_rate: Rate | str | None
    """How many replays in which time."""
    retry_budget: float | None
    """Which share of the first attempts retries may add."""
    shared_rate: SharedRate | None
    """How many attempts in which time, together with other destinations that name it."""
    disable_after: Duration | None
    """How long it may have failed until it is paused, for a person to look."""
    request_log: RequestLog | None
    """How many of the last requests are kept for people to look at."""
    auto_replay: AutoReplay | None
    """When its dead letters are replayed by themselves."""
    dead_letters: Keep | None
    """How long, and how many, dead letters are kept."""
    fairness: Fairness
    """How tenants take turns, and what each may have."""
    expire_after: Duration | None
    """How long after it is due a delivery expires."""
    environments: Mapping[str, LimitOptions]
    """Other limits where the setting `environment` has one of these names."""


class NamedOptions(DestinationOptions, total=False):
    """The terms of a handler, its name, and whether what it returns is kept."""

    name: str
    """The destination's name; the function's by default."""
    keep_result: bool
    """Whether what it returns is kept with the delivery."""


class HandlerOptions(NamedOptions, total=False):
    """The terms of a handler, its name, how many events it takes, and how its effect is kept."""

    batch: int
    """How many events the handler takes at once, as a list."""
    transactional: bool
    """Whether its effect is committed together with the delivery, exactly once."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """What connects an app to the world: time, identity, chance, threads, process and machine."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    ids: Ids = msgspec.field(default_factory=SystemIds)
    rng: Rng = msgspec.field(default_factory=SystemRng)
    entropy: Entropy = msgspec.field(default_factory=SystemEntropy)
    executor: Executor = msgspec.field(default_factory=ThreadExecutor)
    end_process: Callable[[], None] = end_process
    host: str = msgspec.field(default_factory=gethostname)
    journal: Path | None = None
    """Where the journal is, instead of where the settings say."""
    tracks_inline: bool = False
    """Whether what is tracked is sent by who flushes it, instead of a thread."""
    on_tracked: Callable[[Event[msgspec.Raw]], None] | None = None
    """Is told of each event that is tracked, as it was tracked, whatever becomes of it."""


class EffectHandler(msgspec.Struct, frozen=True):
    """A transactional handler, and whether its time-out was chosen for it."""

    function: Handler
    has_own_timeout: bool
    upcasts: Upcasts

    def endpoint(
        self, declared: Declaration, ports: Ports, store: Store, *, lease: timedelta
    ) -> Endpoint:
        """Return the destination as a worker has it, or say why it can have none."""
        name = declared.destination.name
        if not store.capabilities.effects_at_once:
            raise ConfigurationError(
                f"The handler {name!r} is transactional, and this store has no database in which "
                "its effect could be committed with the delivery; use sqlite:/// or "
                "postgresql://. In a test, give the kit a file with store=, or script it."
            )
        terms = blocking_terms(
            f"The transactional handler {name!r}",
            declared.terms,
            store.capabilities,
            lease=lease,
            has_own_timeout=self.has_own_timeout,
        )
        return Endpoint(
            destination=declared.destination,
            terms=terms,
            transport=TransactionalTransport(
                self.function,
                terms=terms,
                executor=ports.executor,
                effects=store,
                upcasts=self.upcasts,
            ),
            is_transactional=True,
        )


def blocking_terms(
    who: str,
    terms: Terms,
    capabilities: Capabilities,
    *,
    lease: timedelta,
    has_own_timeout: bool,
) -> Terms:
    """Return terms whose time-out is short enough for a store in which an effect blocks others."""
    longest = min(lease / _BLOCKING_SHARE, _LONGEST_BLOCKING)
    if not capabilities.effects_block_writers or terms.timeout <= longest:
        return terms
    if has_own_timeout:
        raise ConfigurationError(
            f"{who} has a time-out of {spell_duration(terms.timeout)}, and on SQLite it keeps "
            "everybody else from writing, heartbeats too, so it must end within "
            f"{spell_duration(longest)}, which is a third of the lease and never more than 20s; "
            "shorten timeout, or lengthen the setting lease."
        )
    return msgspec.structs.replace(terms, timeout=longest)


@runtime_checkable
class BoundToStore(Protocol):
    """A way to a destination that can only be made for an open store."""

    def endpoint(
        self, declared: Declaration, ports: Ports, store: Store, *, lease: timedelta
    ) -> Endpoint:
        """Return the destination as a worker has it, or say why it can have none."""


class Declaration(msgspec.Struct, frozen=True):
    """A destination, its terms, and how to make the way to it."""

    destination: Destination
    terms: Terms
    make_transport: Callable[[Ports], Transport] | BoundToStore

    def check_export(self, folder: str) -> None:
        """Refuse a limit of dead letters without a folder for what is over it."""
        if self.destination.dead_letters is not None and not folder:
            raise ConfigurationError(
                f"The destination {self.destination.name!r} limits its dead letters, and those "
                "over the limit are exported to a file before they go; say where with the setting "
                'export_folder, such as Redrive(export_folder="exports").'
            )

    def check_shared_rate(self, others: Iterable[Declaration]) -> None:
        """Refuse two rates under one name."""
        own = self.destination.limits.shared_rate
        for other in others if own is not None else ():
            rate = other.destination.limits.shared_rate
            if own and rate and rate.name == own.name and rate != own:
                raise ConfigurationError(
                    f"The destinations {other.destination.name!r} and {self.destination.name!r} "
                    f"share the rate {own.name!r}, and say different things of it: "
                    f"{spell_rate(rate.rate)} and {spell_rate(own.rate)}; declare it once, and "
                    "pass the same SharedRate to both."
                )

    def endpoint(self, ports: Ports, store: Store, *, lease: timedelta) -> Endpoint:
        """Return the destination as a worker has it."""
        if isinstance(self.make_transport, BoundToStore):
            return self.make_transport.endpoint(self, ports, store, lease=lease)
        transport = self.make_transport(ports)
        have_recall(transport, store)
        return Endpoint(
            destination=self.destination,
            terms=self.terms,
            transport=transport,
            is_threaded=isinstance(transport, FunctionTransport) and transport.is_threaded,
        )

    def served_by(self, handler: Handler, upcasts: Upcasts) -> Declaration:
        """Return the same destination with a handler that stands in for its own."""
        return Declaration(
            self.destination,
            self.terms,
            lambda ports: FunctionTransport(
                handler, terms=self.terms, executor=ports.executor, upcasts=upcasts
            ),
        )


def have_recall(transport: Transport, store: Store) -> None:
    """Have a transport ask the store who has answered for good, if it wants to know."""
    # Asked of the class: a transport may be broken, and fails its deliveries alone.
    if issubclass(type(transport), Recalling):
        cast("Recalling", transport).recall_by(partial(_recall, store))


async def _recall(store: Store, delivery_id: DeliveryId) -> Addressees | None:
    delivery = await store.find_delivery(delivery_id)
    return None if delivery is None else delivery.addressees


def in_environment(options: Mapping[str, Any], environment: str) -> dict[str, Any]:
    """Return the options of a destination with the limits that it has in this environment.

    A mistake in those of another is told all the same: it would be found in production.
    """
    given = dict(options)
    presets = given.pop("environments", {})
    if not isinstance(presets, Mapping) or not all(
        isinstance(name, str) and isinstance(one, Mapping) for name, one in presets.items()
    ):
        raise ConfigurationError(
            f"environments is {presets!r}; it maps names of environments to limits, such as "
            '{"staging": {"rate": "5/s"}}.'
        )
    for name, limits in presets.items():
        known = LimitOptions.__annotations__
        refuse_unknown(limits, known, what=f"limit, as the environment {name!r} has it,")
        _read_limits(dict(limits))
    return {**given, **presets.get(environment, {})}


def check_handler_options(patterns: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Say at once what is wrong with `@app.handler(...)`, before there is a function to declare.

    Without its parentheses the function itself arrives as a pattern, and nothing would ever be
    declared.
    """
    refuse_unknown(options, HandlerOptions.__annotations__, what="handler option")
    for pattern in patterns:
        check_pattern(pattern)
    batch = options.get("batch")
    if batch is not None and not _is_count(batch):
        raise ConfigurationError(
            f"batch is {batch!r}; it is how many events the handler takes at once, from 1."
        )
    transactional = options.get("transactional", False)
    if not isinstance(transactional, bool):
        raise ConfigurationError(
            f"transactional is {transactional!r}; write True to have the handler's effect "
            "committed together with the delivery, or leave it out."
        )
    keep_result = options.get("keep_result", False)
    if not isinstance(keep_result, bool):
        raise ConfigurationError(
            f"keep_result is {keep_result!r}; write True to have kept what the handler returns, "
            "or leave it out."
        )
    if transactional and keep_result:
        raise ConfigurationError(
            "What a transactional handler returns cannot be kept; write it with the connection, "
            "in the same transaction, and leave keep_result out."
        )
    if transactional and batch is not None:
        raise ConfigurationError(
            "A handler cannot be transactional and take a batch: one event that fails would undo "
            "the others. Leave batch out."
        )


def declare_handler(
    function: Handler,
    patterns: tuple[str, ...],
    options: Mapping[str, Any],
    ports: Ports,
    upcasts: Upcasts = NO_UPCASTS,
) -> Declaration:
    """Return the declaration of a function as a destination."""
    given = dict(options)
    name, batch = given.pop("name", None), given.pop("batch", None)
    is_transactional = given.pop("transactional", False)
    keeps_result = given.pop("keep_result", False)
    if not callable(function):
        raise ConfigurationError(f"{function!r} is not a function, so it can't handle.")
    title = name or getattr(function, "__name__", type(function).__name__)
    known, terms = read_options(given)
    check_health(terms.health, known["limits"], function)
    destination = Destination(name=title, patterns=patterns, **known)

    def make_transport(ports: Ports) -> Transport:
        return FunctionTransport(
            function,
            terms=terms,
            executor=ports.executor,
            batch=batch,
            takes_connection=is_transactional,
            keeps_result=keeps_result,
            upcasts=upcasts,
        )

    make_transport(ports)  # a handler that cannot be called is refused here and now
    if is_transactional:
        check_transactional(function)
        effect = EffectHandler(function, has_own_timeout="timeout" in options, upcasts=upcasts)
        return Declaration(destination, terms, effect)
    return Declaration(destination, terms, make_transport)


def declare_destination(
    name: str, patterns: tuple[str, ...], transport: Way, options: Mapping[str, Any]
) -> Declaration:
    """Return the declaration of a destination that is reached by a transport."""
    refuse_unknown(options, DestinationOptions.__annotations__, what="destination option")
    _check_transport(name, transport)
    given = dict(options)
    if isinstance(transport, Blueprint) and "profile" not in given:
        given.setdefault("breaker", Breaker())
    known, terms = read_options(given)
    check_health(terms.health, known["limits"], transport)

    def make_transport(ports: Ports) -> Transport:
        if isinstance(transport, Blueprint):
            return transport.build(terms=terms, clock=ports.clock)
        return transport

    return Declaration(
        Destination(name=name, patterns=patterns, **known),
        terms,
        make_transport,
    )


def _check_transport(name: str, transport: object) -> None:
    """Refuse what is no way to a destination; the first delivery would be too late to learn it."""
    if isinstance(transport, str | bytes):  # it is not shown: an address may hold a secret
        wrong = 'is text; write transport=http("https://…") for an HTTP service'
    elif isinstance(transport, type):
        wrong = f"is the class {transport.__name__}; call it, so that there is one to send by"
    elif isinstance(transport, Blueprint):
        return
    elif not callable(getattr(transport, "send", None)):
        what = f"is a {type(transport).__name__}, which has no method `send`"
        if callable(transport):
            wrong = f"{what}; declare a function with @app.handler(...)"
        else:
            wrong = f"{what}; pass http(...) or a transport of your own"
    elif not _is_count(batch := getattr(transport, "batch", None)):
        wrong = (
            f"has the batch {batch!r}; set `batch` to how many deliveries `send` takes at once, "
            "from 1"
        )
    else:
        return
    raise ConfigurationError(f"The transport of the destination {name!r} {wrong}.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class _Known(TypedDict):
    """What the store knows of a destination beside its name and patterns."""

    tenant: str | None
    order: Order
    limits: Limits
    fairness: Fairness
    auto_replay: AutoReplay | None
    dead_letters: Keep | None
    expire_after: timedelta | None


def read_options(options: dict[str, Any]) -> tuple[_Known, Terms]:
    """Split the options of a destination into what the store knows and what the worker does."""
    if "profile" in options:
        options = {**read_profile(options.pop("profile")), **options}
    given = options.pop("order", Order.NONE)
    try:
        order = Order(given)
    except ValueError:
        raise ConfigurationError(f"order is {given!r}; it is one of {', '.join(Order)}.") from None
    overrides = options.pop("retry_overrides", {})
    if not isinstance(overrides, Mapping):
        raise ConfigurationError(
            f"retry_overrides is {overrides!r}; map patterns to Retry, "
            'such as {"order.*": Retry(max_attempts=9)}.'
        )
    limits = _read_limits(options)
    known = _Known(
        tenant=options.pop("tenant", None),
        order=order,
        limits=limits,
        fairness=_read_fairness(options.pop("fairness", Fairness())),
        auto_replay=_read_auto_replay(options.pop("auto_replay", None)),
        dead_letters=_read_keep(options.pop("dead_letters", None)),
        expire_after=options.pop("expire_after", None),
    )
    return known, Terms(retry_overrides=tuple(overrides.items()), **options)


def _read_limits(options: dict[str, Any]) -> Limits:
    """Take the limits out of the options; the worker itself keeps to the concurrency, too."""
    return Limits(
        breaker=_read_breaker(options.pop("breaker", None)),
        rate=read_rate(options.pop("rate", None), name="rate"),
        retry_rate=read_rate(options.pop("retry_rate", _RETRY_RATE), name="retry_rate"),
        over_retry_rate=options.pop("over_retry_rate", "delay"),
        replay_rate=read_rate(options.pop("replay_rate", _REPLAY_RATE), name="replay_rate"),
        retry_budget=options.pop("retry_budget", None),
        shared_rate=options.pop("shared_rate", None),
        disable_after=options.pop("disable_after", None),
        concurrency=options.get("concurrency"),
    )


def _read_fairness(value: object) -> Fairness:
    if isinstance(value, Fairness):
        return value
    raise ConfigurationError(
        f'fairness is {value!r}; pass a Fairness, such as Fairness(weights={{"gold-*": 3}}).'
    )


def _read_auto_replay(value: object) -> AutoReplay | None:
    if value is None or isinstance(value, AutoReplay):
        return value
    raise ConfigurationError(
        f"auto_replay is {value!r}; pass an AutoReplay, such as "
        'AutoReplay(cron="*/15 * * * *"), or None for none.'
    )


def check_health(health: HealthCheck | None, limits: Limits, way: object) -> None:
    """Refuse a health check that nobody waits for, or that this way cannot make."""
    if health is None:
        return
    if limits.breaker is None:
        raise ConfigurationError(
            "A health check ends the open time of a breaker early, and this destination has no "
            "breaker; pass breaker=Breaker() beside health."
        )
    if isinstance(health.ask, str):
        if not isinstance(way, Addressed):
            raise ConfigurationError(
                f"The health check asks {health.ask!r}, which only http(...) can do; pass a "
                "function that raises when the destination is down."
            )
        way.health_url(health.ask)


def _read_keep(value: object) -> Keep | None:
    if value is None or isinstance(value, Keep):
        return value
    raise ConfigurationError(
        f"dead_letters is {value!r}; pass a Keep, such as "
        'Keep(age="90d", count=100_000), or None to keep them all.'
    )


def _read_breaker(value: object) -> Breaker | None:
    if value is None or isinstance(value, Breaker):
        return value
    raise ConfigurationError(
        f"breaker is {value!r}; pass a Breaker, such as Breaker(failures=5), or None for none."
    )
