"""Terms: what a destination may ask of the engine, and the engine of a destination."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration
from redrive.model.health import HealthCheck
from redrive.model.pattern import check_pattern, matches
from redrive.model.request_log import RequestLog
from redrive.policies.retry import Retry

__all__ = ["Terms"]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which a destination is served.

    `retry_overrides` are pairs of a pattern and the `Retry` for the event types that fit it; the
    first that fits wins. `timeout` ends one attempt. `concurrency` bounds the attempts at one
    time. `terminal` and `transient` are exceptions of which the destination knows better.
    A delivery may be snoozed or throttled `snooze_limit` times, and until it is `snooze_age` old.
    `health` is how to ask whether the destination is back, while its breaker is open.
    `request_log` says which of its requests are kept for people to look at.
    """

    retry: Retry = Retry()
    retry_overrides: tuple[tuple[str, Retry], ...] = ()
    timeout: timedelta = timedelta(seconds=30)
    concurrency: int | None = None
    terminal: tuple[type[BaseException], ...] = ()
    transient: tuple[type[BaseException], ...] = ()
    snooze_limit: int = 100
    snooze_age: timedelta = timedelta(days=7)
    health: HealthCheck | None = None
    request_log: RequestLog | None = None

    if TYPE_CHECKING:
        # Durations may be given as text; once here they are a timedelta.
        def __init__(
            self,
            *,
            retry: Retry = ...,
            retry_overrides: tuple[tuple[str, Retry], ...] = (),
            timeout: Duration = "30s",
            concurrency: int | None = None,
            terminal: tuple[type[BaseException], ...] = (),
            transient: tuple[type[BaseException], ...] = (),
            snooze_limit: int = 100,
            snooze_age: Duration = "7d",
            health: HealthCheck | None = None,
            request_log: RequestLog | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("timeout", "snooze_age"):
            read = duration(getattr(self, name), name=name)
            msgspec.structs.force_setattr(self, name, read)
        _check_retry("retry", self.retry)
        _check_overrides(self.retry_overrides)
        _check_errors("terminal", self.terminal)
        _check_errors("transient", self.transient)
        _check_health(self.health)
        _check_log(self.request_log)
        self._check_bounds()

    def retry_for(self, event_type: str) -> Retry:
        """Return how events of this type are retried."""
        for pattern, retry in self.retry_overrides:
            if matches(pattern, event_type):
                return retry
        return self.retry

    def _check_bounds(self) -> None:
        if not self.timeout:
            raise ConfigurationError(
                "timeout is 0s, which ends every attempt before it began; "
                'write how long one attempt may take, such as "30s".'
            )
        if self.concurrency is not None and not _is_count(self.concurrency, least=1):
            raise ConfigurationError(
                f"concurrency is {self.concurrency!r}; it is how many attempts may run at one "
                "time, so write 1 or more, or leave it out for no limit of its own."
            )
        if not _is_count(self.snooze_limit, least=0):
            raise ConfigurationError(
                f"snooze_limit is {self.snooze_limit!r}; it is how often one delivery may be "
                "snoozed, so write a whole number, 0 for never."
            )


def _is_count(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_retry(name: str, value: object) -> None:
    if not isinstance(value, Retry):
        raise ConfigurationError(
            f"{name} is {value!r}; pass a Retry, such as Retry(max_attempts=3) "
            'or Retry.preset("mail").'
        )


def _check_health(value: object) -> None:
    if value is not None and not isinstance(value, HealthCheck):
        raise ConfigurationError(
            f"health is {value!r}; pass a HealthCheck, such as HealthCheck(ping) with a function "
            'of yours, or for http HealthCheck("/health").'
        )


def _check_log(value: object) -> None:
    if value is not None and not isinstance(value, RequestLog):
        raise ConfigurationError(
            f"request_log is {value!r}; pass RequestLog(keep=100), or None for no log."
        )


def _check_overrides(value: object) -> None:
    if not isinstance(value, tuple):
        raise ConfigurationError(
            f"retry_overrides is {value!r}; pass pairs of a pattern and a Retry, "
            'such as (("order.*", Retry(max_attempts=9)),).'
        )
    for pair in value:
        match pair:
            case (pattern, retry):
                _check_retry(f"The retry for {check_pattern(pattern)!r}", retry)
            case _:
                raise ConfigurationError(
                    f"retry_overrides holds {pair!r}; each is a pair of a pattern and a Retry, "
                    'such as ("order.*", Retry(max_attempts=9)).'
                )


def _check_errors(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(_is_error(one) for one in value):
        raise ConfigurationError(
            f"{name} is {value!r}; it is a tuple of exception classes, such as (KeyError,)."
        )


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
