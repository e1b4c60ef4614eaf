"""Serving: an app as an ASGI app, and what it tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict

from redrive.app.config import settings_in_force
from redrive.clock import Clock
from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration
from redrive.model.limits import Rate, read_rate

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.app.declaration import Ports
    from redrive.app.redrive import Redrive
    from redrive.web.guard import Guard
    from redrive.worker import Worker
    from redrive.worker.health import HealthEndpoint, Metrics

__all__ = ["ServerOptions", "is_guarded", "make_health", "make_metrics", "make_server"]


class ServerOptions(TypedDict, total=False):
    """What `app.asgi` takes."""

    hosts: Collection[str]
    """The names that it answers to; any by default, where your own server checks them."""
    login: bool
    """Without it whoever reaches it may do everything: where your own server checks who asks."""
    is_open_without_tokens: bool
    """Let whoever reaches it do everything until the store has a token or a user."""
    rate: Rate | str | None
    """How often each token may ask, such as `"100/s"`."""
    hindrances: Callable[[], list[str]]
    """Says why the process is not ready, for `/readyz`."""
    only_inbound: bool
    """Nothing but `/in/{source}` and the probes, for a listener that the world reaches."""


def make_health(
    app: Redrive,
    worker: Worker,
    ports: Ports,
    address: tuple[str, int],
    longest_silence: Duration,
) -> HealthEndpoint:
    """Return the port on which a worker tells of its health."""
    from redrive.worker.health import HealthEndpoint, Vitals  # noqa: PLC0415 - only who uses it pays

    silence = duration(longest_silence, name="longest_silence")
    vitals = Vitals(worker=worker.id, clock=ports.clock, longest_silence=silence)
    vitals.projections = worker.projections
    app.observe(vitals)
    return HealthEndpoint(
        vitals=vitals,
        metrics=make_metrics(app),
        open_store=app._open_store,  # noqa: SLF001 - it is made for the app alone
        clock=ports.clock,
        executor=ports.executor,
        host=address[0],
        port=address[1],
    )


def make_server(app: Redrive, options: ServerOptions, clock: Clock) -> Guard:
    """Return the ASGI app of an app."""
    try:
        from redrive.web.application import make_asgi  # noqa: PLC0415 - only who uses it pays
        from redrive.web.caller import OpenDoor  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The HTTP API needs {error.name}, which is not installed; "
            "install it with: pip install 'redrive[web]'"
        ) from error

    async def is_anybody_known() -> bool:
        return await is_guarded(app, clock)

    is_open = options.get("is_open_without_tokens", False)
    return make_asgi(
        app,
        hosts=options.get("hosts", ("*",)),
        login=options.get("login", True),
        door=OpenDoor(is_anybody_known, clock) if is_open else None,
        clock=clock,
        redaction=app.settings.redaction,
        payload_limit=app.settings.payload_limit,
        rate=read_rate(options.get("rate"), name="rate"),
        metrics=make_metrics(app),
        hindrances=options.get("hindrances", list),
        settings=lambda: settings_in_force(app.settings_read, app.settings),
        only_inbound=options.get("only_inbound", False),
    )


async def is_guarded(app: Redrive, clock: Clock) -> bool:
    """Tell whether somebody can be let in: there is a token that has not ended, or a user."""
    if await app.operations.users():
        return True
    now = clock.now()
    return any(one.is_current(now) for one in await app.operations.tokens())


def make_metrics(app: Redrive) -> Metrics | None:
    """Return what counts the facts of an app for Prometheus, if that is installed."""
    if find_spec("prometheus_client") is None:
        return None
    from redrive.observers.prometheus import PrometheusObserver  # noqa: PLC0415 - only who has it

    desk = app._tracking_desk  # noqa: SLF001 - it is asked without making a tracker
    metrics = PrometheusObserver(tracking=desk.figures, journal=desk.journal_sizes)
    app.observe(metrics)
    return metrics
