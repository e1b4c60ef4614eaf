"""Health checks: how a destination is asked whether it is back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration

__all__ = ["HealthCheck", "HealthMethod"]

HealthMethod = Literal["GET", "HEAD"]


class HealthCheck(msgspec.Struct, frozen=True):
    """Asks a destination whether it is back, while its breaker is open.

    `ask` is a function of yours, sync or async: the destination is well unless it raises or
    returns `False`. For `http` it may be a path or a URL instead: any 2xx is well. One worker at a
    time asks, `every` so often; what takes longer than `timeout` is not well.

    >>> HealthCheck("/health", every="10s").every
    datetime.timedelta(seconds=10)
    """

    ask: Callable[[], Any] | str
    every: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=2)
    method: HealthMethod = "GET"

    if TYPE_CHECKING:
        # Durations may be given as text; once here they are a timedelta.
        def __init__(
            self,
            ask: Callable[[], Any] | str,
            every: Duration = "5s",
            timeout: Duration = "2s",
            method: HealthMethod = "GET",
        ) -> None: ...

    def __post_init__(self) -> None:
        if not callable(self.ask) and not (isinstance(self.ask, str) and self.ask):
            raise ConfigurationError(
                f"A health check asks {self.ask!r}; pass a function, or for http a path such as "
                '"/health".'
            )
        for name in ("every", "timeout"):
            read = duration(getattr(self, name), name=name)
            msgspec.structs.force_setattr(self, name, read)
            if not read:
                raise ConfigurationError(
                    f'{name} of a health check is 0s; write how long, such as "2s".'
                )
        if self.method not in get_args(HealthMethod):
            raise ConfigurationError(f"method is {self.method!r}; it is GET or HEAD.")
