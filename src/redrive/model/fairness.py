"""Fairness: how the tenants of a destination share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_text
from redrive.model.limits import Rate, read_rate
from redrive.model.pattern import matches

__all__ = ["Fairness"]

T = TypeVar("T")
_MOST = 1_000


class Fairness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the tenants of a destination take turns, and how much each may have.

    In its turn a tenant gets up to `turn` deliveries, times its weight. `rate` bounds the attempts
    of each tenant. `weights` and `rates` say otherwise for some, by name or by a glob such as
    `gold-*`; the first that fits counts. Events without a tenant are one tenant without a name.
    """

    turn: int = 3
    weights: tuple[tuple[str, int], ...] = ()
    rate: Rate | None = None
    rates: tuple[tuple[str, Rate | None], ...] = ()

    if TYPE_CHECKING:
        # Both may be given as a mapping, and rates as text; once here they are pairs.
        def __init__(
            self,
            *,
            turn: int = 3,
            weights: Mapping[str, int] | tuple[tuple[str, int], ...] = (),
            rate: Rate | str | None = None,
            rates: Mapping[str, Rate | str | None] | tuple[tuple[str, Rate | None], ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_count("turn", self.turn, "how many deliveries of a tenant follow each other")
        weights = _read_pairs("weights", self.weights, '{"acme": 3, "gold-*": 2}')
        for tenant, weight in weights:
            _check_count(f"The weight of {tenant!r}", weight, "how many turns in one it has")
        rates = _read_pairs("rates", self.rates, '{"noisy": "5/s"}')
        msgspec.structs.force_setattr(self, "weights", weights)
        msgspec.structs.force_setattr(self, "rate", read_rate(self.rate, name="rate"))
        msgspec.structs.force_setattr(
            self,
            "rates",
            tuple((one, read_rate(rate, name=f"The rate of {one!r}")) for one, rate in rates),
        )

    def turn_of(self, tenant: str) -> int:
        """Return how many deliveries of a tenant may follow each other while others wait."""
        return self.turn * (_first(self.weights, tenant, 1) if self.weights else 1)

    def rate_of(self, tenant: str) -> Rate | None:
        """Return how many attempts a tenant may have in which time."""
        return _first(self.rates, tenant, self.rate) if self.rates else self.rate


def _first(pairs: tuple[tuple[str, T], ...], tenant: str, default: T) -> T:
    return next((value for pattern, value in pairs if matches(pattern, tenant)), default)


def _read_pairs(name: str, value: object, example: str) -> tuple[tuple[str, object], ...]:
    given = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(given, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == len(("pattern", "value")) for pair in given
    ):
        raise ConfigurationError(
            f"{name} is {value!r}; map tenants, or globs of them, such as {example}."
        )
    for pattern, _ in given:
        if not check_text(f"A tenant in {name}", pattern):
            raise ConfigurationError(
                f"{name} names a tenant ''; write a name, or a glob such as gold-*."
            )
    return given


def _check_count(name: str, value: object, meaning: str) -> None:
    if type(value) is not int or not 1 <= value <= _MOST:
        raise ConfigurationError(
            f"{name} is {value!r}; it is {meaning}, so write a whole number from 1 to {_MOST:,}."
        )
