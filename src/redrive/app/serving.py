"""Serving: an app as an ASGI app, and what it tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict

from redrive.clock import Clock
from redrive.errors import ConfigurationError
from redrive.model.limits import Rate, read_rate
from redrive.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.app.redrive import Redrive
    from redrive.web.caller import Caller
    from redrive.web.guard import Guard
    from redrive.worker.health import Metrics

__all__ = ["ServerOptions", "make_metrics", "make_server"]


class ServerOptions(TypedDict, total=False):
    """What `app.asgi` takes."""

    hosts: Collection[str]
    """The names that it answers to; any by default, where your own server checks them."""
    login: bool
    """Without it whoever reaches it may do everything: where your own server checks who asks."""
    is_open_without_tokens: bool
    """Let whoever reaches it do everything until the store has a token, be it made meanwhile."""
    rate: Rate | str | None
    """How often each token may ask, such as `"100/s"`."""
    hindrances: Callable[[], list[str]]
    """Says why the process is not ready, for `/readyz`."""


def make_server(app: Redrive, options: ServerOptions, clock: Clock) -> Guard:
    """Return the ASGI app of an app."""
    try:
        from redrive.web.application import make_asgi  # noqa: PLC0415 - only who uses it pays
        from redrive.web.caller import Caller, OpenDoor  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The HTTP API needs {error.name}, which is not installed; "
            "install it with: pip install 'redrive[web]'"
        ) from error

    async def authenticate(secret: str) -> Caller | None:
        token = await app.operations.authenticate(secret)
        return None if token is None else Caller.of(token)

    async def has_tokens() -> bool:
        now = clock.now()
        return any(one.is_current(now) for one in await app.operations.tokens())

    is_open = options.get("is_open_without_tokens", False)
    return make_asgi(
        app,
        hosts=options.get("hosts", ("*",)),
        authenticate=authenticate if options.get("login", True) else None,
        door=OpenDoor(has_tokens, clock) if is_open else None,
        clock=clock,
        redaction=app.settings.redaction,
        payload_limit=app.settings.payload_limit,
        rate=read_rate(options.get("rate"), name="rate"),
        metrics=make_metrics(app.observe),
        hindrances=options.get("hindrances", list),
    )


def make_metrics(observe: Callable[[Observer], None]) -> Metrics | None:
    """Return what counts the facts of an app for Prometheus, if that is installed."""
    if find_spec("prometheus_client") is None:
        return None
    from redrive.observers.prometheus import PrometheusObserver  # noqa: PLC0415 - only who has it

    metrics = PrometheusObserver()
    observe(metrics)
    return metrics
